package plain

import (
	"github.com/fentry-dev/fentry/arch/amd64"
	"github.com/fentry-dev/fentry/elfio/ehframe"
)

// DWARF numbers of registers (x86-64 psABI, figure 3.36).
const (
	dwarfRBP = 6
	dwarfRSP = 7
)

// frames says where the frame is at the addresses of one function, which are mostly asked for in ascending order.
type frames struct {
	fde   ehframe.FDE
	found bool // the function has an entry, and its rows could be read
	rows  []ehframe.Row
	next  int
}

// open begins with another function.
func (f *frames) open(x *ehframe.Index, addr uint64) {
	f.rows, f.next = f.rows[:0], 0
	if f.fde, f.found = x.Find(addr); !f.found {
		return
	}
	var err error
	f.rows, err = f.fde.AppendRows(f.rows)
	f.found = err == nil
}

// at returns the row of an address; false: nothing is known there.
func (f *frames) at(addr uint64) (*ehframe.Row, bool) {
	off := addr - f.fde.PC
	if !f.found || off >= f.fde.Size {
		return nil, false
	}
	if f.rows[f.next].At > off {
		f.next = 0
	}
	for f.next+1 < len(f.rows) && f.rows[f.next+1].At <= off {
		f.next++
	}
	return &f.rows[f.next], true
}

// atEntry reports whether the frame is as callers leave it: the return address is what the stack pointer points to.
func atEntry(r *ehframe.Row) bool { return r.Reg == dwarfRSP && r.Off == 8 && !r.Moved }

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
	legacy := in.Enc == amd64.Legacy && in.Map == 0
	switch {
	case !in.HasModRM || in.ModRM>>6 == 3 || in.Op == amd64.Nop:
		return amd64.MemOp{}, false
	case legacy && in.Opcode == 0x8d: // lea
		return amd64.MemOp{}, false
	case legacy && in.Prefix&amd64.PrefixLock != 0 && in.Opcode == 0x83 && raw[len(raw)-1] == 0: // lock or $0
		return amd64.MemOp{}, false
	}
	return in.Memory(raw)
}
