package golang

import (
	"github.com/fentry-dev/fentry/arch/amd64"
	"github.com/fentry-dev/fentry/record/moves"
)

// What the instructions of a function are to those who move some of them.

// A body is the code of one function.
type body struct {
	*moves.Body
	f *Func
}

// body decodes a function. Refusals are those of functions that cannot be followed. What a jump of two bytes leads to must
// look to the runtime like the jump: the same distance of the stack pointer, and the same answer to whether the goroutine may
// be stopped, because it can be asked there.
func (im *Image) body(f *Func) (*body, Reason) {
	sp, err := im.Values(f, le.Uint32(f.rec[RecPCSP:]))
	if err != nil || sp == nil {
		return nil, External
	}
	unsafe, err := im.Values(f, PCData(f.rec, PCDataUnsafe))
	if err != nil {
		return nil, External
	}
	code, why := moves.Decode(f.Entry, im.text[f.Entry-im.TextStart:f.Next-im.TextStart], sp.At, isTable)
	if why != "" {
		return nil, planned[why]
	}
	if len(code.Ins) == 0 {
		return nil, External
	}
	b := &body{code, f}
	for i := range b.Ins {
		x := &b.Ins[i]
		x.Fixed = im.interior[x.PC] || x.PC == f.DeferReturn()
		x.Leader = x.Leader || x.Fixed
	}
	b.Head, b.Scratch = b.checkEnd(), scratch
	b.Stay = func(int) bool { return false }
	b.Alike = func(from, to uint64) bool { return sp.At(from) == sp.At(to) && unsafe.At(from) == unsafe.At(to) }
	return b, ""
}

// isTable reports whether an indirect jump is that of a switch: its operand has an index, or there is a frame, which a
// function that ends has given back.
func isTable(b *moves.Body, i int) bool {
	x := &b.Ins[i]
	if x.Op != amd64.JmpInd {
		return false
	}
	if x.ModRM>>6 == 3 {
		return x.SP != 0
	}
	_, plain := x.Memory(b.Raw(i))
	return !plain && x.PCRel == amd64.PCRelNone || x.SP != 0
}

// isWrapper reports whether a function is called by the convention of assembly, in which r14 is not the goroutine:
// before its first call it reads thread-local memory, where the goroutine is.
func (b *body) isWrapper() bool {
	for i := range b.Ins {
		x := &b.Ins[i]
		if moves.IsCall(x.Op) {
			return false
		}
		if x.Prefix&amd64.PrefixSeg != 0 && b.Raw(i)[0] == 0x64 {
			return true
		}
	}
	return false
}

// checkEnd returns how many instructions at the beginning of a function look whether there is room on the stack; 0: none
// do. The forms are those of cmd/internal/obj/x86, for small frames, larger ones and huge ones:
//
//	cmp 16(%r14), %rsp; jbe
//	lea -N(%rsp), %r12; cmp 16(%r14), %r12; jbe
//	mov %rsp, %r12; sub $N, %r12; jb; cmp 16(%r14), %r12; jbe
func (b *body) checkEnd() int {
	for n := range min(len(b.Ins)-1, 4) {
		if !b.isGuard(n) {
			continue
		}
		jump := &b.Ins[n+1]
		if jump.Op != amd64.Jcc || jump.Cond != 6 || jump.To < 0 {
			return 0
		}
		for i := 1; i <= n+1; i++ {
			if b.Ins[i].Leader {
				return 0
			}
		}
		return n + 2
	}
	return 0
}

// isGuard recognises cmp 16(%r14) or 24(%r14), with %rsp or %r12.
func (b *body) isGuard(i int) bool {
	x := &b.Ins[i]
	m, ok := x.Memory(b.Raw(i))
	const r12, r14 = 12, 14
	return ok && x.Enc == amd64.Legacy && x.Map == 0 && x.Opcode == 0x3b && m.Base == r14 && (m.Disp == 16 || m.Disp == 24) &&
		(i == 0 && m.Reg == amd64.RSP || i > 0 && m.Reg == r12)
}
