package plain

import (
	"encoding/binary"

	"github.com/fentry-dev/fentry/arch/arm64"
	"github.com/fentry-dev/fentry/elfio/ehframe"
)

// Where the return address is used.
//
// A function finds it in x30, and saves it if it calls others. Unwind rows say where; those of clang, unless they are to
// be right at every instruction, only from the end of the prologue on, and say nothing of epilogues. So it is followed
// whether x30 can still hold it, instruction by instruction. Branches carry that ahead. Where one carries it back to code
// that was taken not to have it, and x30 is read in such code, the function is gone through again, until nothing changes.
// Where jump tables lead is not known: a function that uses one while x30 holds its return address, and reads x30 where
// it was taken not to, is refused. Compilers use x30 for other values, but rarely there.
//
// Where the place is in which it is saved is known as a distance from the CFA, so the stack pointer and the frame
// pointer have to be, too. The row tells of one of them; the other is followed through the prologue.

// arm64Sweep decodes units of AArch64.
type arm64Sweep struct {
	lead int
	seen []seen // by instruction

	holds    bool // x30 may hold the return address
	doubt    bool // it may where it was taken not to
	indirect bool // likewise, where a jump table leads
	others   bool // x30 has been read where it was taken not to
	slot     int64
	hasSlot  bool // the return address is saved at slot from the CFA

	sp, deep, fp     int64 // CFA minus the stack pointer, and at most; minus the frame pointer
	spKnown, fpKnown bool
	told, dynamic    bool // rows have told sp; it has been set to what only the program knows

	pages [31]uint64 // what adrp has left in registers
	known uint32     // in which ones
	x8    uint32     // the constant in x8

	// Behind a call, until nothing that it has left in scratch can be used.
	callee, ret uint64
	need        uint64
}

// seen is what is known of an instruction.
type seen struct {
	held   bool  // a branch goes there while x30 holds the return address
	was    bool  // x30 held it there
	reads  bool  // it reads x30, which it must not if that holds the return address
	writes bool  // it replaces x30
	sets   bool  // by the return address
	ends   bool  // the next instruction is not reached from it
	to     int32 // where it branches to, plus one; 0: nowhere
}

func (s *arm64Sweep) unit(d *decoder, b []byte) {
	n := len(b) / arm64.InstLen
	s.start(d, b, n)
	var last arm64.Inst
	lastAt, before := 0, uint32(0)
	for i := range n {
		at := i * arm64.InstLen
		in := arm64.DecodeWord(binary.LittleEndian.Uint32(b[at:]))
		if arm64Swaps(before, in.Word) {
			d.facts |= swapsStack
		}
		before = in.Word
		d.own[at] |= instruction
		s.holds = s.holds || s.seen[i].held
		s.seen[i].was = s.holds
		s.inst(d, in, d.u.lo+uint64(at))
		if in.Op.EndsBlock() { // behind an epilogue, perhaps
			s.holds, s.sp, s.spKnown = s.indirect, max(s.sp, s.deep), !s.dynamic
			s.seen[i].ends = true
		}
		if in.Op != arm64.Nop {
			last, lastAt = in, at
		}
	}
	if s.others && (s.indirect || s.doubt && s.again()) {
		d.facts |= usesCaller
	}
	if arm64RunsOn(last) && d.u.fn >= 0 {
		d.runOn(d.u.lo+uint64(lastAt), arm64.IsNops(d.behind()))
	}
}

// start begins a unit of n instructions.
func (s *arm64Sweep) start(d *decoder, b []byte, n int) {
	list := s.seen
	if cap(list) < n {
		list = make([]seen, n, 2*n)
	}
	list = list[:n]
	clear(list)
	*s = arm64Sweep{seen: list, holds: true, spKnown: true, x8: ^uint32(0)}
	s.lead, _ = arm64Machine{}.begin(d.f, b)
	if d.frames.found {
		for i := range d.frames.rows {
			if r := &d.frames.rows[i]; r.Saved {
				s.slot, s.hasSlot = r.Ret, true
				break
			}
		}
	}
}

// again goes through the unit until it is certain where x30 can hold the return address, and reports whether it is read
// there, or whether that takes too long to find out.
func (s *arm64Sweep) again() bool {
	for range maxAgain {
		changed, holds := false, true
		for i := range s.seen {
			n := &s.seen[i]
			if holds = holds || n.held; holds && n.reads {
				return true
			}
			if n.to > 0 && holds && !s.seen[n.to-1].held {
				s.seen[n.to-1].held = true
				changed = changed || int(n.to-1) <= i
			}
			if n.writes {
				holds = n.sets
			}
			holds = holds && !n.ends
		}
		if !changed {
			return false
		}
	}
	return true
}

// maxAgain is more than loops are nested.
const maxAgain = 20

// arm64RunsOn reports whether the code behind the last instruction of a function is reached from it. A call at the end is
// one that does not return.
func arm64RunsOn(in arm64.Inst) bool {
	switch in.Op {
	case arm64.Call, arm64.CallInd, arm64.Brk:
		return false
	}
	return in.Len > 0 && !in.Op.EndsBlock()
}

// inst takes what one instruction tells.
func (s *arm64Sweep) inst(d *decoder, in arm64.Inst, pc uint64) {
	row, known := d.frames.at(pc)
	n := &s.seen[(pc-d.u.lo)/arm64.InstLen]
	if known {
		s.frame(d, in, pc, row, n)
		if (in.Op == arm64.Call || in.Op == arm64.CallInd) && sharesStack(row) {
			d.facts |= usesCaller
		}
	}
	if s.need != 0 {
		s.afterCall(d, in, pc)
	}
	switch in.Op {
	case arm64.Call:
		t := in.Target(pc)
		s.callee, s.ret, s.need = t, pc+arm64.InstLen, scratch
		d.facts |= calls
		d.called(t)
		s.holds, n.writes, n.sets = false, true, false
	case arm64.CallInd:
		d.facts |= calls
		s.holds, n.writes, n.sets = false, true, false
	case arm64.JmpInd:
		if to, ok := veneer(d, in, pc); ok {
			d.branch(to, true, true, s.lead)
			break
		}
		d.facts |= dispatches
		// If it has not been saved, rows say so where this leads to as well.
		s.indirect = s.indirect || s.holds && !(known && !row.Moved)
	case arm64.Jmp, arm64.Jcc, arm64.Cbz, arm64.Tbz, arm64.Cb:
		t := in.Target(pc)
		d.branch(t, in.Op == arm64.Jmp, known && arm64Machine{}.atEntry(row), s.lead)
		if t >= d.u.lo && t-d.u.lo < uint64(len(s.seen)*arm64.InstLen) {
			i := (t - d.u.lo) / arm64.InstLen
			n.to = int32(i + 1)
			s.seen[i].held = s.seen[i].held || s.holds
			s.doubt = s.doubt || s.holds && t <= pc && !s.seen[i].was
		}
	case arm64.Syscall:
		if s.holds && (s.x8 == sysClone || s.x8 == sysClone3) {
			d.facts |= forks
		}
	}
	s.address(d, in, pc)
}

// veneer returns where a jump at pc leads that a linker has made for what branches do not reach, and that is all of a unit:
//
//	adrp x16, to; add x16, x16, #:lo12:to; br x16
//	ldr x16, =to; br x16
func veneer(d *decoder, in arm64.Inst, pc uint64) (to uint64, ok bool) {
	text := *d.f.text
	b := text.From(d.u.lo)
	switch n := pc - d.u.lo; {
	case n == 2*arm64.InstLen && len(b) > int(n):
		page, add := arm64.DecodeWord(binary.LittleEndian.Uint32(b)), binary.LittleEndian.Uint32(b[arm64.InstLen:])
		r := uint32(in.Reg)
		ok = page.Op == arm64.Adrp && page.Reg == in.Reg && add&0xffc003ff == 0x91000000|r<<5|r
		to = page.Target(d.u.lo) + uint64(add>>10&0xfff)
	case n == arm64.InstLen && len(b) > int(n):
		const load = 0x58000000 // ldr x, literal
		w := binary.LittleEndian.Uint32(b)
		if literal := text.From(arm64.DecodeWord(w).Target(d.u.lo)); w&0xff00001f == load|uint32(in.Reg) && len(literal) >= 8 {
			to, ok = binary.LittleEndian.Uint64(literal), true
		}
	}
	return to, ok && text.Region(to) != nil
}

// System calls that return twice (asm-generic/unistd.h). A function that makes them without having saved its return
// address is vfork, or starts a thread; fork, whose child has memory of its own, saves it.
const (
	sysClone  = 220
	sysClone3 = 435
)

// frame judges what an instruction does with the return address, and follows it and the frame.
func (s *arm64Sweep) frame(d *decoder, in arm64.Inst, pc uint64, row *ehframe.Row, n *seen) {
	const x30 = 1 << 30
	s.follow(row)
	if !row.Moved { // whatever came before, such as a call that does not return
		s.holds, n.was, n.held = true, true, true
	}
	var room [2]byte
	a, ok := arm64.AccessOf(in.Word, &room)
	stored := false // x30 goes to the place where it belongs
	if ok {
		stored = s.access(d, &a)
	}
	if arm64.Reads(in.Word)&x30 != 0 && !stored {
		switch {
		case !s.holds && row.Moved:
			s.others, n.reads = true, true
		case !s.handsOver(d, in, pc):
			d.facts |= usesCaller
		}
	}
	if s.writes(in, &a, ok) {
		s.holds = ok && !a.Store && s.hasSlot && s.isSlot(&a, 30)
		n.writes, n.sets = true, s.holds
	}
	s.prologue(in, &a, ok)
}

// handsOver reports whether an instruction moves the return address to another register, where unwinders look for it
// from there on.
func (s *arm64Sweep) handsOver(d *decoder, in arm64.Inst, pc uint64) bool {
	if in.Word&^31 != 0xaa1e03e0 { // mov xd, x30
		return false
	}
	row, known := d.frames.at(pc + arm64.InstLen)
	return known && row.Moved && !row.Saved
}

// sharesStack reports whether a function that has its return address in another register still has the stack pointer that it was
// called with. What it calls has the same one then, by which tracers tell open calls apart: glibc's rawmemchr calls strlen so.
func sharesStack(row *ehframe.Row) bool {
	return row.Moved && !row.Saved && row.Reg == dwarfSP && row.Off == 0
}

// writes reports whether an instruction certainly replaces x30.
func (s *arm64Sweep) writes(in arm64.Inst, a *arm64.Access, access bool) bool {
	if access {
		if !a.Store {
			for _, r := range a.Regs {
				if r == 30 {
					return true
				}
			}
		}
		return false
	}
	return arm64Replaces(in.Word)
}

// follow takes what a row says of the stack pointer and the frame pointer.
func (s *arm64Sweep) follow(row *ehframe.Row) {
	switch {
	case row.Reg == dwarfX29:
		s.fp, s.fpKnown = row.Off, true
	case row.Reg == dwarfSP && (row.At > 0 || s.told):
		s.sp, s.spKnown, s.told = row.Off, true, true
	}
}

// prologue follows the stack pointer to where rows tell of it, and takes note of the frame pointer.
func (s *arm64Sweep) prologue(in arm64.Inst, a *arm64.Access, access bool) {
	w := in.Word
	imm := int64(w>>10&0xfff) << (w >> 22 & 1 * 12)
	switch {
	case access && a.Base == 31:
		s.sp -= a.Index
	case w&0xff8003ff == 0xd10003ff: // sub sp, sp, #n
		s.sp += imm
	case w&0xff8003ff == 0x910003ff: // add sp, sp, #n
		s.sp -= imm
	case w&0xff8003ff == 0x910003fd: // add x29, sp, #n
		s.fp, s.fpKnown = s.sp-imm, s.spKnown
	case w&0xff8003ff == 0x910003bf || w&0xff8003ff == 0xd10003bf: // add, sub sp, x29, #n
		if s.sp = s.fp + imm; w>>30&1 == 0 {
			s.sp = s.fp - imm
		}
		s.spKnown = s.fpKnown
	case in.PCRel == arm64.PCRelNone && arm64.Writes(w)>>31 == 1:
		s.spKnown, s.dynamic = false, true
	}
	if s.spKnown {
		s.deep = max(s.deep, s.sp)
	}
}

// place returns how far from the CFA an access begins.
func (s *arm64Sweep) place(a *arm64.Access) (int64, bool) {
	switch {
	case a.Base == 31:
		return a.Disp - s.sp, s.spKnown
	case a.Base == 29 && s.fpKnown:
		return a.Disp - s.fp, true
	}
	return 0, false
}

// isSlot reports whether register r of an access is the one that goes to, or comes from, the place of the return address.
func (s *arm64Sweep) isSlot(a *arm64.Access, r byte) bool {
	at, ok := s.place(a)
	for i := range a.Regs {
		if ok && a.Regs[i] == r && at+int64(i)*int64(a.Size) == s.slot {
			return true
		}
	}
	return false
}

// access judges a load or store. It reports whether x30 goes to its place.
func (s *arm64Sweep) access(d *decoder, a *arm64.Access) bool {
	at, ok := s.place(a)
	if !ok || !s.hasSlot {
		return false
	}
	for i, r := range a.Regs {
		from := at + int64(i)*int64(a.Size)
		if from >= s.slot+8 || from+int64(a.Size) <= s.slot {
			continue
		}
		if r == 30 && from == s.slot && (s.holds || !a.Store) {
			return a.Store
		}
		d.facts |= usesCaller
	}
	return false
}

// afterCall watches whether what a function leaves in scratch is used.
func (s *arm64Sweep) afterCall(d *decoder, in arm64.Inst, pc uint64) {
	reads, kills := needs(in.Word)
	if reads&s.need != 0 {
		d.results = append(d.results, result{s.callee, s.ret, pc})
		s.need = 0
		return
	}
	if s.need &^= kills; in.PCRel == arm64.PCRelBranch || in.Op.EndsBlock() || in.Op == arm64.CallInd {
		s.need = 0
	}
}

// address notes the addresses that instructions compute: adr; adrp and add. It also knows the constant in x8.
func (s *arm64Sweep) address(d *decoder, in arm64.Inst, pc uint64) {
	w := in.Word
	rd, rn := w&31, w>>5&31
	switch {
	case in.Op == arm64.Adr:
		d.names(in.Target(pc))
	case in.Op == arm64.Adrp && rd < 31:
		s.pages[rd], s.known = in.Target(pc), s.known|1<<rd
	case w&0xffc00000 == 0x91000000 && rn < 31 && s.known>>rn&1 == 1: // add xd, xn, #lo12
		d.names(s.pages[rn] + uint64(w>>10&0xfff))
	case w&0x7fe0001f == 0x52800008: // mov x8, #n
		s.x8 = w >> 5 & 0xffff
	}
}
