package plain

import (
	"encoding/binary"

	"github.com/fentry-dev/fentry/arch/amd64"
	"github.com/fentry-dev/fentry/elfio/ehframe"
)

// amd64Follower follows functions of x86-64.
type amd64Follower struct {
	following[stackFrame]
	dispatched []uint64   // where its jumps by tables go, once they have been looked for
	from       stackFrame // with which frame they have gone there
}

// stackFrame says where the stack pointer and a frame pointer are, below the CFA: 8 at the first instruction.
type stackFrame struct {
	depth  int64 // of the stack pointer; unknown: it has been aligned
	rbp    int64
	framed bool // rbp is known
	// args is a register, its number plus 1, that has been made the CFA before the stack was aligned: gcc keeps that in
	// memory, and has it there again when the function ends. 0: none.
	args int
	held bool // the register has it
}

// common: two ways must agree about the stack pointer; a frame pointer is known if both know it.
func (s stackFrame) common(o stackFrame) (stackFrame, bool) {
	out := stackFrame{depth: s.depth}
	if s.framed && o.framed && s.rbp == o.rbp {
		out.rbp, out.framed = s.rbp, true
	}
	if s.args == o.args {
		out.args, out.held = s.args, s.held && o.held
	}
	return out, s.depth == o.depth
}

func (s stackFrame) atEntry() bool { return s.depth == 8 }

func (amd64Machine) follower(f *Finder) follower {
	return &amd64Follower{following: following[stackFrame]{f: f, text: *f.text}}
}

func (w *amd64Follower) follow(i int) (fact, bool) {
	w.begin(i, stackFrame{depth: 8})
	w.dispatched = nil
	ok := w.run(w.inst)
	if !ok {
		w.lost()
	}
	return w.facts, ok
}

// lost notes where a function that is not understood jumps to.
func (w *amd64Follower) lost() {
	b := w.text.Range(w.start, w.end)
	for at := 0; at < len(b); {
		in, err := amd64.Decode(b[at:])
		if err != nil {
			at++
			continue
		}
		if in.PCRel == amd64.PCRelBranch && in.Op != amd64.Call {
			w.leaves(in.Target(w.start + uint64(at)))
		}
		at += in.Len
	}
}

// inst follows one instruction.
func (w *amd64Follower) inst(pc uint64) bool {
	s := w.seen[pc]
	b := w.text.From(pc)
	in, err := amd64.Decode(b)
	if err != nil {
		return false
	}
	raw := b[:in.Len]
	if w.usesReturn(in, raw, s) {
		w.facts |= usesCaller
	}
	next := pc + uint64(in.Len)
	switch in.Op {
	case amd64.Ret:
		return s.atEntry() && in.ImmLen == 0
	case amd64.Ud, amd64.Hlt, amd64.Int3:
		return true
	case amd64.Jmp:
		return w.reach(in.Target(pc), s)
	case amd64.Jcc, amd64.Loop, amd64.Jrcxz:
		return w.reach(in.Target(pc), s) && w.reach(next, s)
	case amd64.JmpInd:
		return w.dispatch(in, s)
	case amd64.Call:
		if t := in.Target(pc); w.inside(t) && t != w.start {
			return false // to find out its own address, or another function that is not known
		}
		return w.behindCall(next, s)
	case amd64.CallInd:
		return w.behindCall(next, s)
	case amd64.Nop, amd64.Endbr64, amd64.Endbr32, amd64.Syscall, amd64.Int:
		return w.reach(next, s)
	case amd64.Push, amd64.Pop, amd64.Leave, amd64.Other:
		s, ok := s.step(in, raw)
		return ok && w.reach(next, s)
	}
	return false
}

// behindCall goes on behind a call. One at the end of a function, or of a part of it, does not return.
func (w *amd64Follower) behindCall(next uint64, s stackFrame) bool {
	s.held = s.held && s.args-1 != argsRegister
	return w.endsBehind(next) || w.reach(next, s)
}

// dispatch follows a jump to an address in a register or in memory. If nothing is on the stack it can be a tail call.
// Else it goes to what tables have of the function, which is the same for all such jumps of it.
func (w *amd64Follower) dispatch(in amd64.Inst, s stackFrame) bool {
	if in.PCRel == amd64.PCRelMem {
		return s.atEntry()
	}
	if w.dispatched == nil {
		w.dispatched = []uint64{}
		for at := w.start + 1; at < w.end; at++ {
			if m := w.f.marks.get(at); m&(tableEntry|pointed) != 0 && m&instruction != 0 {
				w.dispatched = append(w.dispatched, at)
			}
		}
		w.from = s
	} else if w.from == s {
		return true
	}
	for _, at := range w.dispatched {
		if !w.reach(at, s) {
			return false
		}
	}
	return s.atEntry() || len(w.dispatched) > 0
}

// usesReturn reports whether an instruction reads or changes the word that has the return address.
func (w *amd64Follower) usesReturn(in amd64.Inst, raw []byte, s stackFrame) bool {
	if s.depth != unknown && usesReturn(in, raw, &ehframe.Row{Reg: dwarfRSP, Off: s.depth}) {
		return true
	}
	return s.framed && usesReturn(in, raw, &ehframe.Row{Reg: dwarfRBP, Off: s.rbp})
}

// The registers that gcc makes the CFA: one that calls change, or one that they keep if the first has something else, such
// as the variables around a nested function.
const (
	argsRegister = 10 // r10
	keptRegister = 13 // r13
)

// hold is the frame when an instruction may have written the register that is the CFA. It is the CFA still if it comes from
// where gcc keeps it, in the aligned part of the stack: code that goes on on another stack loads such an address from elsewhere.
func (s stackFrame) hold(in amd64.Inst, raw []byte) stackFrame {
	r := s.args - 1
	m, moves := in.Move(raw)
	switch {
	case s.args == 0:
	case moves && !m.Store && m.Reg == r && m.Base == amd64.RBP, pops(in) == r:
		s.held = s.aligned()
	case in.Op == amd64.Other && (in.Enc != amd64.Legacy || in.MayWrite(r)): // other encodings have more operands than are looked at
		s.held = false
	}
	return s
}

// pops is the register that an instruction pops, or -1.
func pops(in amd64.Inst) int {
	if in.Op != amd64.Pop || !legacy(in) || in.Opcode&^7 != 0x58 {
		return -1
	}
	return int(in.Opcode&7) | int(in.REX&1)<<3
}

// resizes reports whether an instruction that writes the stack pointer aligns it, or makes room of any size.
func resizes(in amd64.Inst) bool {
	switch op := in.ModRM >> 3 & 7; in.Opcode {
	case 0x81, 0x83:
		return legacy(in) && op == 4
	case 0x29, 0x2b:
		return legacy(in)
	}
	return false
}

// step returns the frame behind an instruction that is no branch; false: it cannot be known.
func (s stackFrame) step(in amd64.Inst, raw []byte) (stackFrame, bool) {
	s = s.hold(in, raw)
	if in.Prefix&amd64.PrefixOpSize != 0 && (in.Op == amd64.Push || in.Op == amd64.Pop || in.Op == amd64.Leave) {
		return s, false
	}
	switch in.Op {
	case amd64.Push:
		return s.moved(8), true
	case amd64.Pop:
		switch pops(in) {
		case -1:
			return s.moved(-8), legacy(in) && in.Opcode == 0x9d // popf; others may change any register
		case amd64.RSP:
			return s, false
		case amd64.RBP:
			s.framed = false
		}
		return s.moved(-8), true
	case amd64.Leave:
		out := stackFrame{depth: s.rbp - 8, args: s.args, held: s.held}
		if !s.framed {
			out.depth = unknown
		}
		return out, s.framed || s.aligned()
	}
	if to, from, ok := registerMove(in); ok && to^from == amd64.RSP^amd64.RBP && (to == amd64.RSP || to == amd64.RBP) {
		return s.lea(amd64.MemOp{Reg: to, Base: from})
	}
	if add, ok := addsToStack(in, raw); ok {
		return s.moved(-add), true
	}
	if m, ok := in.Memory(raw); ok && lea(in) && in.REX&8 != 0 {
		switch {
		case m.Reg == amd64.RSP || m.Reg == amd64.RBP:
			return s.lea(m)
		case m.Base == amd64.RSP && s.depth == m.Disp && (m.Reg == argsRegister || m.Reg == keptRegister):
			s.args, s.held = m.Reg+1, true
		}
		return s, true
	}
	if !ofHighByte(in) {
		if in.MayWrite(amd64.RSP) { // it is aligned, or makes room of any size, which a frame pointer has an end with
			if s.depth = unknown; !resizes(in) {
				s.args = 0
			}
		}
		if s.depth == unknown && !s.framed && s.args == 0 {
			return s, false
		}
		s.framed = s.framed && !in.MayWrite(amd64.RBP)
	}
	return s, true
}

// ofHighByte reports whether an instruction is of bytes, and has no prefix that would make registers 4 to 7 be other ones
// than those of %ah to %bh.
func ofHighByte(in amd64.Inst) bool {
	if !legacy(in) || in.REX != 0 {
		return false
	}
	switch op := in.Opcode; {
	case op < 0x40:
		return op&5 == 0
	case op >= 0xb0 && op <= 0xb7:
		return true
	}
	switch in.Opcode {
	case 0x80, 0x86, 0x88, 0x8a, 0xc0, 0xc6, 0xd0, 0xd2, 0xf6, 0xfe:
		return true
	}
	return false
}

// moved is the frame when the stack pointer has gone down.
func (s stackFrame) moved(by int64) stackFrame {
	if s.depth != unknown {
		s.depth += by
	}
	return s
}

// aligned reports whether the stack has been aligned, and the CFA is in a register.
func (s stackFrame) aligned() bool { return s.depth == unknown && s.args != 0 }

// lea is the frame behind lea disp(%base), and %rsp or %rbp.
func (s stackFrame) lea(m amd64.MemOp) (stackFrame, bool) {
	base, known := m.Disp+unknown, false // which leads to unknown
	switch {
	case m.Base == amd64.RSP && s.depth != unknown:
		base, known = s.depth, true
	case m.Base == amd64.RBP && s.framed:
		base, known = s.rbp, true
	case m.Base == s.args-1 && s.held && s.aligned():
		base, known = 0, true
	}
	if m.Reg == amd64.RBP {
		if s.rbp, s.framed = base-m.Disp, known; !known {
			s.rbp = 0
		}
		return s, true
	}
	ok := known || m.Base == amd64.RBP && s.aligned()
	s.depth = base - m.Disp
	return s, ok
}

// registerMove recognises mov %from,%to of 64 bits.
func registerMove(in amd64.Inst) (to, from int, ok bool) {
	if !legacy(in) || !in.HasModRM || in.ModRM>>6 != 3 || in.REX&8 == 0 {
		return 0, 0, false
	}
	reg, rm := int(in.ModRM>>3&7)|int(in.REX&4)<<1, int(in.ModRM&7)|int(in.REX&1)<<3
	switch in.Opcode {
	case 0x89:
		return rm, reg, true
	case 0x8b:
		return reg, rm, true
	}
	return 0, 0, false
}

// addsToStack recognises add and sub of a constant.
func addsToStack(in amd64.Inst, raw []byte) (int64, bool) {
	op := in.ModRM >> 3 & 7
	if !legacy(in) || in.Opcode != 0x81 && in.Opcode != 0x83 || in.ModRM>>6 != 3 || in.ModRM&7 != amd64.RSP ||
		in.REX&(8|1) != 8 || op != 0 && op != 5 {
		return 0, false
	}
	n := int64(int8(raw[len(raw)-1]))
	if in.ImmLen == 4 {
		n = int64(int32(binary.LittleEndian.Uint32(raw[len(raw)-4:])))
	}
	if op == 5 {
		n = -n
	}
	return n, true
}
