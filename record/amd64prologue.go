package record

import (
	"encoding/binary"

	"github.com/fentry-dev/fentry/arch/amd64"
	"github.com/fentry-dev/fentry/record/code"
)

// Prologues of x86-64.
//
// Behind a prologue the return address can only be replaced if it is known where it is. Unwind tables would say so
// where there are any; but programs are traced that have none, and then the code is all there is. So it is decoded from
// the function's first byte up to the call, with three facts kept: how much has been pushed, whether that is certain,
// and whether %rbp has been made the frame pointer while it was. The invariant is that a fact is dropped by whatever
// may change it, known or not (amd64.Inst.MayWrite): the answer can be no where it should be yes, never the other way
// round. Functions that realign their stack first get a no, and have a reason of their own.

// frame is what is known of the stack while a prologue is decoded.
type frame struct {
	depth int64 // bytes below the return address's slot: 0 at entry, 8 behind one push
	known bool  // depth is right
	fp    bool  // %rbp is 8 below the slot, so that the return address is at 8(%rbp)
	drap  bool  // the address of the arguments was taken to another register, to find them behind a realigned stack
}

// amd64Walk is a prologue decoded so far.
type amd64Walk struct {
	code      *code.Text
	start, pc uint64
	frame     frame
	ended     bool // the code does not go on to pc in a straight line
}

// at decodes from a function's first byte to its call of mcount, and gives no reason when the caller's return address
// is at 8(%rbp) there:
//
//	55        push %rbp
//	48 89 e5  mov %rsp,%rbp
//
// in this order, with nothing else pushed before, and %rbp not written to on the way. Branches are not followed: behind
// one the frame pointer still counts, but not how much has been pushed.
func (w *amd64Walk) at(start, at uint64) frameInfo {
	if at-start > maxPrologue {
		return frameInfo{RetFP, 0, ReasonNotAtEntry}
	}
	if w.start != start || w.pc > at || w.pc == 0 {
		*w = amd64Walk{code: w.code, start: start, pc: start, frame: frame{known: true}}
	}
	b := w.code.Range(w.pc, at+15)
	for w.pc < at && !w.ended {
		in, err := amd64.Decode(b)
		if err != nil || in.Op.EndsBlock() {
			w.ended = true
			break
		}
		w.frame.step(in, b[:in.Len])
		b, w.pc = b[in.Len:], w.pc+uint64(in.Len)
	}
	switch {
	case w.ended || w.pc != at:
		return frameInfo{RetFP, 0, ReasonNotAtEntry}
	case w.frame.fp:
		return frameInfo{RetFP, 0, ""}
	case w.frame.drap:
		return frameInfo{RetFP, 0, ReasonRealignedFrame}
	}
	return frameInfo{RetFP, 0, ReasonNoFramePointer}
}

// step applies one instruction.
func (f *frame) step(in amd64.Inst, raw []byte) {
	switch in.Op {
	case amd64.Nop, amd64.Endbr64:
		return
	case amd64.Push:
		f.depth += 8
		if in.Prefix&amd64.PrefixOpSize != 0 {
			f.known = false
		}
		return
	case amd64.Pop:
		f.depth -= 8
		r, ok := poppedReg(in)
		if !ok || r == amd64.RSP || in.Prefix&amd64.PrefixOpSize != 0 {
			f.known = false
		}
		if !ok || r == amd64.RBP {
			f.fp = false
		}
		return
	case amd64.Call, amd64.CallInd:
		return // callees keep amd64.RSP and amd64.RBP
	case amd64.Jcc, amd64.Loop, amd64.Jrcxz:
		f.known = false
		return
	case amd64.Other:
	default: // leave, enter, system calls, traps
		*f = frame{drap: f.drap}
		return
	}
	if movesSPToFP(in) {
		f.fp = f.known && f.depth == 8
		return
	}
	if n, ok := adjustsSP(in, raw); ok {
		f.depth -= n
		return
	}
	if in.Opcode == 0x8d && in.Map == 0 && in.Enc == amd64.Legacy {
		if m, ok := in.Memory(raw); ok && m.Base == amd64.RSP && m.Disp == f.depth+8 && f.known {
			f.drap = true
		}
	}
	if in.MayWrite(amd64.RSP) {
		f.known = false
	}
	if in.MayWrite(amd64.RBP) {
		f.fp = false
	}
}

// movesSPToFP recognises mov %rsp,%rbp in both encodings: 48 89 e5 and 48 8b ec.
func movesSPToFP(in amd64.Inst) bool {
	return in.Enc == amd64.Legacy && in.Map == 0 && in.REX == 0x48 && in.Prefix == 0 &&
		(in.Opcode == 0x89 && in.ModRM == 0xe5 || in.Opcode == 0x8b && in.ModRM == 0xec)
}

// pushedReg is the register of push %reg.
func pushedReg(in amd64.Inst) (int, bool) {
	if in.Map != 0 || in.Opcode < 0x50 || in.Opcode > 0x57 {
		return 0, false
	}
	return int(in.Opcode&7) | int(in.REX&1)<<3, true
}

// poppedReg is the register of pop %reg.
func poppedReg(in amd64.Inst) (int, bool) {
	if in.Map != 0 || in.Opcode < 0x58 || in.Opcode > 0x5f {
		return 0, false
	}
	return int(in.Opcode&7) | int(in.REX&1)<<3, true
}

// adjustsSP recognises sub and add of a constant to the stack pointer, in both sizes of the constant, and
// lea disp(%rsp),%rsp, and returns what they add.
func adjustsSP(in amd64.Inst, raw []byte) (int64, bool) {
	if in.Enc != amd64.Legacy || in.Map != 0 || in.REX != 0x48 || !in.HasModRM {
		return 0, false
	}
	if in.Opcode == 0x8d {
		if m, ok := in.Memory(raw); ok && m.Reg == amd64.RSP && m.Base == amd64.RSP {
			return m.Disp, true
		}
		return 0, false
	}
	if in.Opcode != 0x81 && in.Opcode != 0x83 || in.ModRM>>6 != 3 || in.ModRM&7 != amd64.RSP {
		return 0, false
	}
	imm := int64(int8(raw[len(raw)-1]))
	if in.Opcode == 0x81 {
		imm = int64(int32(binary.LittleEndian.Uint32(raw[len(raw)-4:])))
	}
	switch in.ModRM >> 3 & 7 {
	case 0: // add
		return imm, true
	case 5: // sub
		return -imm, true
	}
	return 0, false
}
