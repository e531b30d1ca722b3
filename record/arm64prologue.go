package record

import (
	"encoding/binary"

	"github.com/fentry-dev/fentry/arch/arm64"
	"github.com/fentry-dev/fentry/record/code"
)

// Prologues of AArch64.
//
// The same question as for x86-64, and one more. The thunk has to find the frame's slot, which is below the caller's
// stack pointer, from x29; how far that is differs from function to function (Site.Frame). Compilers have too many ways
// to make a frame to compare code with patterns: large frames, probed ones, variable arguments. So values are computed
// for all registers: a distance from the stack pointer at entry, a number, the return address, or unknown. The
// invariant is the same, too: an instruction that is not understood makes the registers it may write unknown
// (arm64.Writes). frames_test.go compares the frames with the compiler's own unwind tables.

const (
	regFP = 29
	regLR = 30
	regSP = 31
)

// arm64Value is what a register holds, as far as known.
type arm64Value struct {
	kind arm64Kind
	v    int64
}

type arm64Kind uint8

const (
	valUnknown arm64Kind = iota
	valStack             // v above the stack pointer at entry
	valNumber            // v
	valReturn            // the return address
	valSigned            // the return address, signed
)

// arm64Walk is a prologue decoded so far.
type arm64Walk struct {
	code      *code.Text
	start, pc uint64
	ended     bool // the code does not go on to pc in a straight line
	regs      [32]arm64Value
	saved     arm64Value // valReturn or valSigned: it has been stored, v above the stack pointer at entry
	compared  arm64Value // what the stack pointer has just been compared with
}

// maxFrame is the first Site.Frame that is too large for a thunk.
const maxFrame = arm64.MaxThunkFrame

// at decodes from a function's first byte to its call of mcount. Compilers save x29 and x30 side by side and point x29
// there, in one of many ways:
//
//	stp x29, x30, [sp, #-32]!; mov x29, sp
//	sub sp, sp, #48; stp x29, x30, [sp, #32]; add x29, sp, #32
//	mov x12, #70000; sub sp, sp, x12; stp x29, x30, [sp]; mov x29, sp
//
// So the registers' distances from the stack pointer at entry are computed. Branches are not followed: behind one x29
// and what was saved still count, but not where the stack pointer is, but for loops that probe big frames and end with
// it where they compare it with.
func (w *arm64Walk) at(start, at uint64) frameInfo {
	if at-start > maxPrologue || start%arm64.InstLen != 0 {
		return frameInfo{RetFP, 0, ReasonNotAtEntry}
	}
	if w.start != start || w.pc > at || w.pc == 0 {
		*w = arm64Walk{code: w.code, start: start, pc: start}
		w.regs[regSP] = arm64Value{valStack, 0}
		w.regs[regLR] = arm64Value{valReturn, 0}
	}
	b := w.code.Range(w.pc, at)
	for len(b) >= arm64.InstLen && !w.ended {
		w.step(binary.LittleEndian.Uint32(b))
		b, w.pc = b[arm64.InstLen:], w.pc+arm64.InstLen
	}
	fp := w.regs[regFP]
	frame := -fp.v
	switch {
	case w.ended || w.pc != at:
		return frameInfo{RetFP, 0, ReasonNotAtEntry}
	case fp.kind != valStack || frame <= 0 || frame%16 != 0 || frame >= maxFrame || w.saved.v != 8-frame:
		return frameInfo{RetFP, 0, ReasonNoFramePointer}
	case w.saved.kind == valReturn:
		return frameInfo{RetFP, uint32(frame), ""}
	case w.saved.kind == valSigned:
		return frameInfo{RetSigned, uint32(frame), ""}
	}
	return frameInfo{RetFP, 0, ReasonNoFramePointer}
}

// step applies one instruction.
func (w *arm64Walk) step(word uint32) {
	compared := w.compared
	w.compared = arm64Value{}
	in := arm64.DecodeWord(word)
	switch in.Op {
	case arm64.Nop, arm64.Bti, arm64.Hint:
		return
	case arm64.PacSP, arm64.Pac, arm64.SignPC:
		w.lr(valReturn, valSigned)
		return
	case arm64.Aut, arm64.AuthPC: // xpaclri too
		w.lr(valSigned, valReturn)
		return
	case arm64.Call, arm64.CallInd: // callees keep x19 to x29
		for r := 0; r <= 18; r++ {
			w.regs[r] = arm64Value{}
		}
		w.regs[regLR] = arm64Value{}
		return
	case arm64.Jcc:
		w.regs[regSP] = arm64Value{}
		if in.Cond == 1 && in.Disp < 0 { // b.ne back: here they are equal
			w.regs[regSP] = compared
		}
		return
	case arm64.Cbz, arm64.Tbz, arm64.Cb:
		w.regs[regSP] = arm64Value{}
		return
	}
	if in.Op.EndsBlock() {
		w.ended = true
		return
	}
	if w.known(word) {
		return
	}
	out := arm64.Writes(word)
	if base, by, ok := writeBack(word); ok && w.regs[base].kind == valStack {
		w.regs[base].v += by
		out &^= 1 << base
	}
	for r := range w.regs {
		if out>>r&1 != 0 {
			w.regs[r] = arm64Value{}
		}
	}
}

// lr changes what is known of x30.
func (w *arm64Walk) lr(from, to arm64Kind) {
	if w.regs[regLR].kind == from {
		w.regs[regLR].kind = to
	}
}

// known applies the instructions that prologues are made of.
func (w *arm64Walk) known(word uint32) bool {
	rd, rn, rm := word&31, word>>5&31, word>>16&31
	set := func(v arm64Value) bool {
		w.regs[rd] = v
		return true
	}
	sum := func(a, b arm64Value, minus bool) arm64Value {
		if minus {
			b.v = -b.v
		}
		switch {
		case b.kind != valNumber || a.kind != valNumber && a.kind != valStack:
			return arm64Value{}
		}
		return arm64Value{a.kind, a.v + b.v}
	}
	number := func(v int64) arm64Value { return arm64Value{valNumber, v} }
	minus := word>>30&1 == 1
	switch {
	case word&0xbf800000 == 0x91000000: // add, sub of an immediate
		imm := int64(word >> 10 & 0xfff)
		if word>>22&1 == 1 {
			imm <<= 12
		}
		return set(sum(w.regs[rn], number(imm), minus))
	case word&0xbfe0fc00 == 0x8b206000: // add, sub of an extended register: uxtx
		return set(sum(w.regs[rn], w.regs[rm], minus))
	case word&0xffe0fc1f == 0xeb20601f: // cmp with one
		if rn == regSP {
			w.compared = w.regs[rm]
		}
		return true
	case word&0xffe0ffe0 == 0xaa0003e0 && rd != regSP && rm != regSP: // mov of registers
		return set(w.regs[rm])
	case word&0x7f800000 == 0x52800000 && rd != regSP: // movz
		return set(number(int64(uint64(word>>5&0xffff) << (word >> 21 & 3 * 16))))
	case word&0x7f800000 == 0x72800000 && rd != regSP: // movk
		v := w.regs[rd]
		if v.kind == valNumber {
			shift := word >> 21 & 3 * 16
			v.v = int64(uint64(v.v)&^(0xffff<<shift) | uint64(word>>5&0xffff)<<shift)
		}
		return set(v)
	case word&0xff800000 == 0x92800000 && rd != regSP: // movn
		return set(number(^int64(uint64(word>>5&0xffff) << (word >> 21 & 3 * 16))))
	case word&0xff8003e0 == 0xb20003e0 && rd != regSP: // orr of xzr: mov of a bit mask
		v, ok := arm64.BitMask(word)
		if !ok {
			return false
		}
		return set(number(int64(v)))
	}
	return w.store(word)
}

// store notes where stp and str of 64 bits put x30. What else they do, they have in common with others.
func (w *arm64Walk) store(word uint32) bool {
	rt, rn, rt2 := word&31, word>>5&31, word>>10&31
	pair := int64(int32(word<<10)>>25) * 8
	single := int64(int32(word<<11) >> 23)
	put := func(off int64, regs ...uint32) {
		base := w.regs[rn]
		for i, r := range regs {
			if v := w.regs[r]; r == regLR && base.kind == valStack && (v.kind == valReturn || v.kind == valSigned) {
				w.saved = arm64Value{v.kind, base.v + off + int64(i)*8}
			}
		}
	}
	switch {
	case word&0xffc00000 == 0xa8800000: // stp, post-index
		put(0, rt, rt2)
	case word&0xff400000 == 0xa9000000: // stp
		put(pair, rt, rt2)
	case word&0xffc00000 == 0xf9000000: // str, unsigned offset
		put(int64(word>>10&0xfff)*8, rt)
	case word&0xffe00c00 == 0xf8000400: // str, post-index
		put(0, rt)
	case word&0xffe00400 == 0xf8000400, word&0xffe00c00 == 0xf8000000: // str, pre-index; stur
		put(single, rt)
	}
	return false
}

// writeBack returns the base register of a load or store with an index, and what is added to it.
func writeBack(word uint32) (base uint32, by int64, ok bool) {
	base = word >> 5 & 31
	switch {
	case word>>27&7 == 5 && word>>25&1 == 0 && word>>23&1 == 1: // pairs
		size := int64(4) << (word >> 31)
		if word>>26&1 == 1 { // of vectors
			size = 4 << (word >> 30)
		}
		return base, int64(int32(word<<10)>>25) * size, true
	case word>>27&7 == 7 && word>>24&3 == 0 && word>>21&1 == 0 && word>>10&1 == 1:
		return base, int64(int32(word<<11) >> 23), true
	}
	return base, 0, false
}
