package plain

import (
	"github.com/fentry-dev/fentry/arch/arm64"
	"github.com/fentry-dev/fentry/elfio/ehframe"
)

// arm64Machine is AArch64: one branch takes the place of one instruction, so nothing can go into the middle of it, and no
// function is too short. What goes to the instruction itself, whether a call, a branch or a jump table, finds what the
// unwind row there says; where that is what callers leave, it enters the function, whatever it comes from.
//
// What thunks change is x16, x17 and the flags. No function that is called can have anything there, because veneers of
// linkers may come in between (AAPCS64, 6.1.1); nor behind a call. So where functions begin they matter only in code
// written by hand, and in parts of functions that look like functions.
//
// The return address is in x30, where any instruction may use it. To save it, in the place that unwind rows say, and to
// restore and sign it, is not using it.
type arm64Machine struct{}

// DWARF numbers of registers (DWARF for the Arm 64-bit Architecture, 4.1).
const (
	dwarfX29 = 29
	dwarfSP  = 31
)

func (arm64Machine) sweeper() sweeper { return new(arm64Sweep) }

func (arm64Machine) align() uint64 { return arm64.InstLen }

func (arm64Machine) startsAtEntry(c *ehframe.CIE) bool {
	return arm64.StartsAtEntry(c.RetReg, c.CodeAlign, c.DataAlign, c.Instructions)
}

// atEntry: the return address is in x30, as the CIE says, and the stack is the caller's.
func (arm64Machine) atEntry(r *ehframe.Row) bool {
	return r.Reg == dwarfSP && r.Off == 0 && !r.Moved && !r.Signed
}

// begin: bti stays where it is. So does paciasp, which is a landing pad too, if pages can be guarded; else it is
// displaced as any instruction.
func (arm64Machine) begin(f *Finder, b []byte) (int, bool) {
	in, err := arm64.Decode(b)
	switch {
	case err != nil:
		return 0, false
	case in.Op == arm64.Bti:
		return arm64.InstLen, false
	case in.Op == arm64.PacSP && f.guarded:
		return arm64.InstLen, true
	}
	return 0, false
}

// part: what unwind rows say of the frame holds for a part as well, and if nothing that a thunk changes is used, a hook
// does no harm. But it is not a function's if a condition leads to it, or if it goes back to where it came from.
func (arm64Machine) part(e *entry, facts fact, marks mark) bool {
	return marks&otherBranch != 0 || facts&leaves != 0 || !e.scratchDead()
}

// scratch is what thunks change: registers, and in bit 32 the flags.
const (
	scratchFlags = 1 << 32
	scratchRegs  = 1<<16 | 1<<17
	scratch      = scratchRegs | scratchFlags
)

// needs returns what an instruction reads of scratch, and what it replaces.
func needs(w uint32) (reads, kills uint64) {
	reads, kills = uint64(arm64.Reads(w)), uint64(arm64.Writes(w))
	r, k := arm64.FlagUse(w)
	if r {
		reads |= scratchFlags
	}
	if k {
		kills |= scratchFlags
	}
	return reads & scratch, kills & scratch
}

// mostAhead bounds how many instructions live looks at: what a function is given is used close to its beginning.
const mostAhead = 64

// live is for functions that are called: compilers keep to the convention, and hand-written code that has something in scratch uses
// it before it calls others. It is followed along direct branches, to other functions, too. Behind one, what scalable
// vectors may use does not count, as nothing is known of their operands.
func (arm64Machine) live(e *entry) bool {
	type place struct {
		at     uint64
		need   uint64
		behind bool // a branch
	}
	f, seen := e.f, map[uint64]uint64{}
	todo := []place{{e.at, scratch, false}}
	for n := 0; len(todo) > 0 && n < mostAhead; n++ {
		p := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		in, err := arm64.Decode(f.text.From(p.at))
		if p.need &^= seen[p.at]; err != nil || p.need == 0 || p.at == e.end && !p.behind {
			continue
		}
		seen[p.at] |= p.need
		reads, kills := needs(in.Word)
		if reads&p.need != 0 && !(p.behind && arm64.IsSVE(in.Word)) {
			return true
		}
		p.need &^= kills
		switch {
		case in.Op == arm64.Call || in.Op == arm64.CallInd:
			continue
		case in.PCRel == arm64.PCRelBranch:
			todo = append(todo, place{in.Target(p.at), p.need, true})
		}
		if !in.Op.EndsBlock() {
			todo = append(todo, place{p.at + arm64.InstLen, p.need, p.behind || in.PCRel == arm64.PCRelBranch})
		}
	}
	return false
}

// maxFollowed bounds how many instructions dead looks at.
const maxFollowed = 1000

// scratchDead reports whether nothing of scratch is used on any way through the function, before it has been replaced.
// false: it is, or that cannot be seen.
func (e *entry) scratchDead() bool { return e.f.dead(e.at, e.start, e.end, scratch) }

// dead reports whether nothing of need is used on any way from an address on through a function, from start to end, before
// it has been replaced. false: it is, or that cannot be seen.
func (f *Finder) dead(at, start, end, need uint64) bool {
	type place struct {
		at   uint64
		need uint64
	}
	seen := map[uint64]uint64{} // what has been followed, by address
	todo := []place{{at, need}}
	for n := 0; len(todo) > 0; n++ {
		p := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if p.need &^= seen[p.at]; p.need == 0 {
			continue
		}
		if n == maxFollowed || p.at < start || p.at >= end {
			return false
		}
		seen[p.at] |= p.need
		in, err := arm64.Decode(f.text.From(p.at))
		if err != nil {
			return false
		}
		reads, kills := needs(in.Word)
		if reads&p.need != 0 {
			return false
		}
		p.need &^= kills
		switch in.Op {
		case arm64.Call, arm64.CallInd, arm64.Ret, arm64.Brk, arm64.Udf:
			continue
		case arm64.Jmp, arm64.Jcc, arm64.Cbz, arm64.Tbz, arm64.Cb:
			to := in.Target(p.at)
			if (to < start || to >= end) && f.begins(to) {
				break // a tail call
			}
			todo = append(todo, place{to, p.need})
		case arm64.JmpInd, arm64.Eret, arm64.Hlt:
			return false
		}
		if !in.Op.EndsBlock() {
			todo = append(todo, place{p.at + arm64.InstLen, p.need})
		}
	}
	return true
}

func (arm64Machine) jumps() []int { return []int{arm64.InstLen} }

// window takes one instruction.
func (arm64Machine) window(e *entry) Refusal {
	in, err := arm64.Decode(e.own())
	if err != nil {
		return Short
	}
	switch in.Op {
	case arm64.Call:
		if t := in.Target(e.at); t >= e.start && t < e.end { // to find out its own address
			return CallAtEntry
		} else if r := e.f.callee(t); r != "" {
			return r
		}
		e.call(e.at + arm64.InstLen)
	case arm64.CallInd:
		e.call(e.at + arm64.InstLen)
	case arm64.Syscall, arm64.Trap, arm64.Brk, arm64.Hlt, arm64.Udf, arm64.Eret:
		return SystemCall
	case arm64.LoadEx, arm64.StoreEx, arm64.Clrex:
		return Exclusive
	case arm64.SignPC, arm64.AuthPC:
		return UnusualUnwind // which knows these
	case arm64.Bti:
		return JumpInto // something may
	}
	e.n, e.moved = arm64.InstLen, arm64.InstLen
	return ""
}

func (arm64Machine) begins(b []byte, off int) bool {
	_, ok := arm64.DisplacedAt(b, off)
	return ok
}
