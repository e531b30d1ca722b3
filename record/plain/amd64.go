package plain

import (
	"debug/elf"

	"github.com/fentry-dev/fentry/arch/amd64"
	"github.com/fentry-dev/fentry/elfio/ehframe"
	"github.com/fentry-dev/fentry/record/code"
)

// amd64Machine is x86-64: a jump takes five bytes, and what it takes the place of can be several instructions. So
// anything may go into the middle of it, and the return address is on the stack, where any instruction may use it.
type amd64Machine struct{}

// DWARF numbers of registers (x86-64 psABI, figure 3.36).
const (
	dwarfRBP = 6
	dwarfRSP = amd64.StackPointer
)

func (amd64Machine) sweeper() sweeper { return &amd64Sweep{code: code.MachineOf(elf.EM_X86_64)} }

func (amd64Machine) align() uint64 { return 1 }

func (amd64Machine) startsAtEntry(c *ehframe.CIE) bool {
	return amd64.StartsAtEntry(c.RetReg, c.CodeAlign, c.DataAlign, c.Instructions)
}

func (amd64Machine) begin(_ *Finder, b []byte) (int, bool) {
	if code.MachineOf(elf.EM_X86_64).HasPad(b) {
		return code.PadLen, false
	}
	return 0, false
}

func (amd64Machine) begins(b []byte, off int) bool {
	_, ok := amd64.DisplacedAt(b, off)
	return ok
}

// part judges a function without a name that only jumps enter: it can be one that is only tail-called, or a part
// of another that compilers have moved away. A hook is for functions only; and in a part of a function that calls
// nothing, the memory below the stack pointer can be in use, which a hook overwrites. Parts are reached by conditional
// branches or by jump tables, jump back, or are not aligned; and if there is doubt, a part is what it is taken for.
func (amd64Machine) part(e *entry, facts fact, marks mark) bool {
	return marks&(otherBranch|tableEntry) != 0 || facts&leaves != 0 || e.start%functionAlign != 0 ||
		facts&redZone != 0 && facts&calls == 0
}

// functionAlign is what compilers align functions to, unless they are to be small.
const functionAlign = 16

func (amd64Machine) jumps() []int { return []int{amd64.JumpLen, amd64.JumpShortLen} }

// window takes whole instructions, as many as a jump needs at least, and padding behind a short function.
func (amd64Machine) window(e *entry) Refusal {
	own := e.own()
	ends := false
	for e.n < e.jump && !ends {
		if e.n >= len(own) {
			return Short
		}
		in, err := amd64.Decode(own[e.n:])
		if err == amd64.ErrTruncated {
			return Short
		}
		if err != nil {
			return Undecodable
		}
		if r := amd64Instruction(e, in, e.at+uint64(e.n)); r != "" {
			return r
		}
		ends = in.Op.EndsBlock()
		e.n += in.Len
	}
	e.moved = e.n
	for e.n < e.jump { // padding, behind the function or in it: no target, as around sees
		in, err := amd64.Decode(e.code[min(e.n, len(e.code)):])
		if err != nil || in.Op != amd64.Nop && in.Op != amd64.Int3 {
			return Short
		}
		e.n += in.Len
	}
	return ""
}

// amd64Instruction judges one that is to be displaced.
func amd64Instruction(e *entry, in amd64.Inst, pc uint64) Refusal {
	switch in.Op {
	case amd64.Call:
		if t := in.Target(pc); t >= e.start && t < e.end { // to find out its own address
			return CallAtEntry
		} else if r := e.f.callee(t); r != "" {
			return r
		}
		e.call(pc + uint64(in.Len))
	case amd64.CallInd:
		e.call(pc + uint64(in.Len))
	case amd64.CallFar, amd64.JmpFar:
		return CallAtEntry
	case amd64.Syscall, amd64.Sysret, amd64.Int, amd64.Int3, amd64.Iret, amd64.RetFar, amd64.Xbegin, amd64.Hlt:
		return SystemCall
	case amd64.Endbr64:
		return JumpInto // something may
	}
	return ""
}

// atEntry: the return address is what the stack pointer points to.
func (amd64Machine) atEntry(r *ehframe.Row) bool { return r.Reg == dwarfRSP && r.Off == 8 && !r.Moved }

// usesReturn reports whether an instruction reads or changes the return address of its function, as far as its operand
// tells: the word below the CFA. Taking its address is not using it, and neither is lock or $0, a fence.
func usesReturn(in amd64.Inst, raw []byte, r *ehframe.Row) bool {
	base := -1
	switch r.Reg {
	case dwarfRSP:
		base = amd64.RSP
	case dwarfRBP:
		base = amd64.RBP
	default:
		return false
	}
	if in.Op == amd64.Pop && base == amd64.RSP && r.Off == 8 {
		return true
	}
	m, ok := stackOperand(in, raw)
	return ok && m.Base == base && m.Disp == r.Off-8
}

// belowStack reports whether an instruction uses memory below the stack pointer: the red zone, which only functions that
// call nothing may use (psABI, 3.2.2).
func belowStack(in amd64.Inst, raw []byte) bool {
	m, ok := stackOperand(in, raw)
	return ok && m.Base == amd64.RSP && m.Disp < 0
}

// stackOperand is an operand in memory at a register plus a constant, which the instruction uses.
func stackOperand(in amd64.Inst, raw []byte) (amd64.MemOp, bool) {
	switch {
	case !in.HasModRM || in.ModRM>>6 == 3 || in.Op == amd64.Nop:
		return amd64.MemOp{}, false
	case lea(in):
		return amd64.MemOp{}, false
	case legacy(in) && in.Prefix&amd64.PrefixLock != 0 && in.Opcode == 0x83 && raw[len(raw)-1] == 0: // lock or $0
		return amd64.MemOp{}, false
	}
	return in.Memory(raw)
}
