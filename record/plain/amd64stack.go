package plain

import (
	"github.com/fentry-dev/fentry/arch/amd64"
	"github.com/fentry-dev/fentry/elfio/ehframe"
)

// stackAddresses are registers that have been given an address on the stack, in code without a branch in between: the return
// address can be used by them, too.
type stackAddresses struct {
	held  uint16    // which registers
	above [16]int64 // how far above the CFA the address is
	// aligned: the stack pointer has been, and a row that measures from it is not so.
	aligned bool
}

// usesReturn reports whether an instruction uses the word below the CFA so. What gcc pushes of it again where it aligns the stack,
// nobody reads but debuggers.
func (a *stackAddresses) usesReturn(in amd64.Inst, raw []byte) bool {
	if a.held == 0 || in.Op == amd64.Push {
		return false
	}
	m, ok := stackOperand(in, raw)
	return ok && m.Base >= 0 && a.held>>m.Base&1 != 0 && a.above[m.Base]+m.Disp == -8
}

// calleeSaved are the registers that a call keeps.
const calleeSaved = 1<<3 | 1<<5 | 0xf<<12 // rbx, rbp, r12 to r15

// step takes an instruction, in front of which a row holds, if that is known.
func (a *stackAddresses) step(in amd64.Inst, raw []byte, row *ehframe.Row, known bool) {
	to, above, gets := -1, int64(0), false
	if base := frameBase(row, known); base >= 0 && !(a.aligned && base == amd64.RSP) {
		if reg, from, ok := registerMove(in); ok && from == base {
			to, above, gets = reg, -row.Off, true
		} else if lea(in) && in.REX&8 != 0 {
			if m, ok := in.Memory(raw); ok && m.Base == base {
				to, above, gets = m.Reg, m.Disp-row.Off, true
			}
		}
	}
	if in.MayWrite(amd64.RSP) && resizes(in) {
		a.aligned = true
	}
	switch {
	case a.held == 0:
	case in.Op == amd64.Call || in.Op == amd64.CallInd:
		a.held &= calleeSaved
	default:
		for r := range a.above {
			if a.held>>r&1 != 0 && in.MayWrite(r) {
				a.held &^= 1 << r
			}
		}
	}
	if gets && to != amd64.RSP && to != amd64.RBP {
		a.held |= 1 << to
		a.above[to] = above
	}
}

// frameBase is the register that a row measures from; -1: none that is known.
func frameBase(row *ehframe.Row, known bool) int {
	switch {
	case !known || row == nil:
	case row.Reg == dwarfRSP:
		return amd64.RSP
	case row.Reg == dwarfRBP:
		return amd64.RBP
	}
	return -1
}
