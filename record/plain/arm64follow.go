package plain

import (
	"encoding/binary"

	"github.com/fentry-dev/fentry/arch/arm64"
)

// arm64Follower follows functions of AArch64. Beside the stack pointer it follows the return address: in x30, and to where
// it is saved and back.
//
// Where jump tables lead is not read. What is not reached otherwise, in a function that jumps to an address in a register,
// is reached so: with the frame that it has there.
type arm64Follower struct {
	following[arm64Frame]
	lead     uint64 // of the function: what stays at its beginning
	targets  map[uint64]bool
	behind   []behind     // calls that may not return
	jumps    []arm64Frame // to addresses in registers
	literals map[uint64]bool
}

// behind is the place behind an instruction that may not be reached from it.
type behind struct {
	at    uint64
	frame arm64Frame
}

// arm64Frame says where the stack pointer and the frame pointer are, below the CFA, and where the return address is.
type arm64Frame struct {
	depth  int64 // of the stack pointer; unknown: the program has made room of any size
	fp     int64
	framed bool // fp is known

	lr     holder
	signed bool  // the return address is
	saved  bool  // it is in memory, slot bytes from the CFA
	maybe  bool  // it may be there
	slot   int64 // with maybe

	// A constant in a register, with which large frames are made.
	number uint8 // of the register, plus 1; 0: there is none
	value  int64
}

// holder says what x30 has.
type holder uint8

const (
	hasReturn holder = iota // the return address, as callers leave it or signed
	hasOther
	hasEither
)

func (s arm64Frame) common(o arm64Frame) (arm64Frame, bool) {
	out := arm64Frame{depth: s.depth, signed: s.signed, lr: s.lr}
	if s.framed && o.framed && s.fp == o.fp {
		out.fp, out.framed = s.fp, true
	}
	if s.depth != o.depth && out.framed { // room of any size has been made on one way
		out.depth = unknown
	} else if s.depth != o.depth {
		return out, false
	}
	if s.signed != o.signed || s.maybe && o.maybe && s.slot != o.slot {
		return out, false
	}
	if s.lr != o.lr {
		out.lr = hasEither
	}
	if out.maybe = s.maybe || o.maybe; s.maybe {
		out.slot = s.slot
	} else {
		out.slot = o.slot
	}
	out.saved = s.saved && o.saved
	if s.number == o.number && s.value == o.value {
		out.number, out.value = s.number, s.value
	}
	return out, true
}

func (s arm64Frame) atEntry() bool { return s.returns() && !s.signed }

// returns reports whether the function can return.
func (s arm64Frame) returns() bool { return s.depth == 0 && s.lr == hasReturn }

func (arm64Machine) follower(f *Finder) follower {
	return &arm64Follower{following: following[arm64Frame]{f: f, text: *f.text}}
}

func (w *arm64Follower) follow(i int) (fact, bool) {
	w.begin(i, arm64Frame{})
	w.targets, w.behind, w.jumps, w.literals = map[uint64]bool{}, w.behind[:0], w.jumps[:0], map[uint64]bool{}
	b := w.text.Range(w.start, w.end)
	lead, _ := arm64Machine{}.begin(w.f, b)
	w.lead = uint64(lead)
	w.branches(func(_, to uint64) { w.targets[to] = true })
	ok := w.run(w.inst) && w.others(b) && w.asCalled()
	w.branches(func(from, to uint64) {
		if _, known := w.seen[from]; !known || !ok {
			w.leaves(to)
		}
	})
	return w.facts, ok
}

// branches calls branch for each branch of the function.
func (w *arm64Follower) branches(branch func(from, to uint64)) {
	b := w.text.Range(w.start, w.end)
	for at := 0; at+arm64.InstLen <= len(b); at += arm64.InstLen {
		in := arm64.DecodeWord(binary.LittleEndian.Uint32(b[at:]))
		if pc := w.start + uint64(at); in.PCRel == arm64.PCRelBranch && in.Op != arm64.Call {
			branch(pc, in.Target(pc))
		}
	}
}

// others goes on with what no branch leads to for certain.
func (w *arm64Follower) others(b []byte) bool {
	for len(w.behind) > 0 {
		n := w.behind[len(w.behind)-1]
		w.behind = w.behind[:len(w.behind)-1]
		if had, ok := w.seen[n.at]; ok {
			if _, ok := n.frame.common(had); !ok || had.lr != n.frame.lr {
				continue // it does not get there
			}
		}
		if !w.reach(n.at, n.frame) || !w.run(w.inst) {
			return false
		}
	}
	if len(w.jumps) == 0 {
		return true
	}
	from, ok := w.jumps[0], true
	for _, s := range w.jumps[1:] {
		if from, ok = from.common(s); !ok {
			return false
		}
	}
	found := from.atEntry() // then they may be tail calls
	for at := w.start; at+arm64.InstLen <= w.start+uint64(len(b)); at += arm64.InstLen {
		word := binary.LittleEndian.Uint32(b[at-w.start:])
		if _, ok := w.seen[at]; ok || word == 0 || w.literals[at] || arm64.DecodeWord(word).Op == arm64.Nop {
			continue
		}
		if found = true; !w.reach(at, from) || !w.run(w.inst) {
			return false
		}
	}
	return found
}

// asCalled reports whether what goes to the function's beginning has the frame that callers leave.
func (w *arm64Follower) asCalled() bool {
	at, ok := w.seen[w.start+w.lead]
	return w.seen[w.start].atEntry() && ok && at.returns()
}

// inst follows one instruction.
func (w *arm64Follower) inst(pc uint64) bool {
	s := w.seen[pc]
	in, err := arm64.Decode(w.text.From(pc))
	if err != nil {
		return false
	}
	next := pc + arm64.InstLen
	switch in.Op {
	case arm64.Ret:
		const plainRet = 0xd65f03c0
		return s.returns() && in.Reg == 30 && in.PCRel == arm64.PCRelNone && s.signed == (in.Word != plainRet)
	case arm64.Udf, arm64.Hlt:
		return true
	case arm64.Brk:
		return !debugger(in) || w.reach(next, s)
	case arm64.Jmp:
		return w.reach(in.Target(pc), s)
	case arm64.Jcc, arm64.Cbz, arm64.Tbz, arm64.Cb:
		w.reads(in, s)
		return w.reach(in.Target(pc), s) && w.reach(next, s)
	case arm64.JmpInd:
		if w.reads(in, s); !w.inside(pc) {
			return s.atEntry() // in a linker's stub
		}
		w.jumps = append(w.jumps, s)
		return true
	case arm64.Call:
		if t := in.Target(pc); w.inside(t) && t != w.start {
			return false // to find out its own address, or another function that is not known
		}
		return w.behindCall(next, s)
	case arm64.CallInd:
		w.reads(in, s)
		return w.behindCall(next, s)
	case arm64.Eret, arm64.Trap, arm64.SignPC, arm64.AuthPC:
		return false
	case arm64.PacSP, arm64.Pac, arm64.Aut:
		ok := s.sign(in)
		return ok && w.reach(next, s)
	case arm64.LdrLit, arm64.LdrLitFP:
		for i := range uint64(4) {
			w.literals[in.Target(pc)+i*arm64.InstLen] = true
		}
	}
	ok := w.step(in, &s)
	return ok && w.reach(next, s)
}

// debugger reports whether brk is one that debuggers go on behind: __builtin_debugtrap. The others mark what is not reached.
func debugger(in arm64.Inst) bool {
	n := in.Word >> 5 & 0xffff
	return n == 0 || n == 0xf000
}

// behindCall goes on behind a call. One at the end of a function does not return. If the return address has not been
// saved the function itself cannot, and nothing that it does from there on has to do with that.
func (w *arm64Follower) behindCall(next uint64, s arm64Frame) bool {
	if s.lr == hasReturn && !s.saved {
		return true
	}
	if s.lr = hasOther; s.number > 0 && s.number-1 <= lastScratch {
		s.number, s.value = 0, 0
	}
	switch {
	case w.endsBehind(next):
		return true
	case w.targets[next]:
		w.behind = append(w.behind, behind{next, s})
		return true
	}
	return w.reach(next, s)
}

// lastScratch is the last register that calls change.
const lastScratch = 18

// sign follows what signs and authenticates the return address; false: not so that it can be followed.
func (s *arm64Frame) sign(in arm64.Inst) bool {
	const (
		autiasp, autibsp = 0xd50323bf, 0xd50323ff
		key              = 1 << 6
	)
	switch {
	case in.Op == arm64.PacSP:
		ok := s.lr == hasReturn && !s.signed
		s.signed = true
		return ok
	case in.Word == autiasp || in.Word == autibsp:
		ok := s.lr == hasReturn && s.signed
		s.signed = false
		return ok
	}
	switch in.Word &^ key { // those of x17
	case 0xd503211f, 0xd503219f: // pacia1716, autia1716
		return true
	}
	return false
}

// reads notes that an instruction reads the return address in x30.
func (w *arm64Follower) reads(in arm64.Inst, s arm64Frame) {
	const x30 = 1 << 30
	if s.lr != hasOther && arm64.Reads(in.Word)&x30 != 0 {
		w.facts |= usesCaller
	}
}

// step goes behind an instruction that is no branch; false: its frame cannot be known.
func (w *arm64Follower) step(in arm64.Inst, s *arm64Frame) bool {
	var room [2]byte
	if a, ok := arm64.AccessOf(in.Word, &room); ok {
		w.access(&a, s)
		s.moved(&a)
	} else {
		w.reads(in, *s)
		if in.Op != arm64.LoadEx && in.Op != arm64.StoreEx && arm64Replaces(in.Word) {
			s.lr = hasOther
		}
		if !s.compute(in) {
			return false
		}
	}
	if s.maybe && s.depth != unknown && s.slot < -s.depth { // it is below the stack
		s.saved, s.maybe, s.slot = false, false, 0
	}
	return s.depth != unknown || s.framed
}

// arm64Replaces reports whether an instruction that is neither a branch nor an access at a constant distance certainly
// replaces x30.
func arm64Replaces(w uint32) bool {
	op := w >> 25 & 15
	indexed := w&0x3f200c00 == 0x38200800 && w>>22&3 != 0 // loads with a register as the index
	return w&31 == 30 && (op>>1 == 4 || op&7 == 5 || indexed)
}

// access judges a load or store, and follows the return address to where it is saved, and back.
func (w *arm64Follower) access(a *arm64.Access, s *arm64Frame) {
	at, known := s.place(a)
	if a.Base == 30 && s.lr != hasOther {
		w.facts |= usesCaller
	}
	before := *s
	for i, r := range a.Regs {
		from, size := at+int64(i)*int64(a.Size), int64(a.Size)
		over := known && before.maybe && from < before.slot+8 && from+size > before.slot
		isSlot := over && from == before.slot && size == 8
		switch {
		case r != 30 || before.lr == hasOther && a.Store:
			if over {
				w.facts |= usesCaller
			}
		case !a.Store && isSlot && before.saved:
			s.lr = hasReturn
		case !a.Store && over:
			s.lr = hasEither
		case !a.Store:
			s.lr = hasOther
		case before.lr == hasReturn && known && size == 8 && (isSlot || !before.maybe):
			s.saved, s.maybe, s.slot = true, true, from
		default:
			w.facts |= usesCaller
		}
		if r == 29 && !a.Store {
			s.framed, s.fp = false, 0
		}
		if !a.Store && r == s.number-1 {
			s.number, s.value = 0, 0
		}
	}
}

// place returns how far from the CFA an access begins.
func (s *arm64Frame) place(a *arm64.Access) (int64, bool) {
	switch {
	case a.Base == 31:
		return a.Disp - s.depth, s.depth != unknown
	case a.Base == 29:
		return a.Disp - s.fp, s.framed
	}
	return 0, false
}

// moved follows what an access with an index does to its base.
func (s *arm64Frame) moved(a *arm64.Access) {
	switch {
	case a.Index == 0:
	case a.Base == 31 && s.depth != unknown:
		s.depth -= a.Index
	case a.Base == 29:
		s.framed, s.fp = false, 0
	case a.Base == s.number-1:
		s.number, s.value = 0, 0
	}
}

// compute follows what an instruction does to the stack pointer, the frame pointer and the constant; false: the stack
// pointer cannot be known.
func (s *arm64Frame) compute(in arm64.Inst) bool {
	w := in.Word
	rd, rn, rm := uint8(w&31), uint8(w>>5&31), uint8(w>>16&31)
	imm := int64(w>>10&0xfff) << (w >> 22 & 1 * 12)
	if w>>30&1 == 1 {
		imm = -imm
	}
	ofStack := rn == 31 && s.depth != unknown
	switch {
	case w&0xbf800000 == 0x91000000 && (rd == 31 || rd == 29) && (rn == 31 || rn == 29): // add, sub #n
		base, known := s.fp, s.framed
		if rn == 31 {
			base, known = s.depth, ofStack
		}
		if rd == 31 {
			if s.depth = base - imm; !known {
				s.depth = unknown
			}
		} else if s.fp, s.framed = base-imm, known; !known {
			s.fp = 0
		}
		return true
	case w&0xbfe0fc00 == 0x8b206000 && rd == 31 && ofStack && s.number > 0 && rm == s.number-1: // add, sub sp, sp, xm
		if w>>30&1 == 1 {
			s.depth += s.value
		} else {
			s.depth -= s.value
		}
		return true
	}
	if in.PCRel == arm64.PCRelNone && arm64.Writes(w)>>31 == 1 {
		s.depth = unknown
	}
	if in.PCRel != arm64.PCRelNone { // an address, or what is there
		if rd == 29 && in.Op != arm64.LdrLitFP && in.Op != arm64.PrfmLit {
			s.framed, s.fp = false, 0
		}
	} else if arm64.Writes(w)>>29&1 == 1 && !arm64Vector(w) {
		s.framed, s.fp = false, 0
	}
	s.constant(w, rd)
	return true
}

// constant follows movz, movn and movk of 64 bits, and of 32 bits what fits.
func (s *arm64Frame) constant(w uint32, rd uint8) {
	shift := w >> 21 & 3 * 16
	v := int64(w>>5&0xffff) << shift
	wide := w >> 31 & 1
	switch w & 0x7f800000 {
	case 0x52800000: // movz
		s.number, s.value = rd+1, v
		return
	case 0x12800000: // movn
		if s.number, s.value = rd+1, ^v; wide == 0 {
			s.value = int64(uint32(s.value))
		}
		return
	case 0x72800000: // movk
		if s.number == rd+1 {
			s.value = s.value&^(0xffff<<shift) | v
			return
		}
	}
	if s.number > 0 && arm64.Writes(w)>>(s.number-1)&1 == 1 {
		s.number, s.value = 0, 0
	}
}

// arm64Vector reports whether an instruction is one of vectors or floating point whose result is no general register.
func arm64Vector(w uint32) bool {
	switch {
	case w>>25&7 != 7:
		return false
	case w&0x5f000000 == 0x1e000000 && (w>>21&1 == 0 || w>>10&63 == 0): // conversions
		return false
	case w&0x9fe08400 == 0x0e000400: // copies
		return false
	}
	return true
}
