package golang

import (
	"github.com/fentry-dev/fentry/arch/amd64"
)

// What the instructions of a function are to those who move some of them.

// An instruction, with what is known of its place.
type instruction struct {
	amd64.Inst
	pc     uint64
	target int   // of a branch inside the function: index of the instruction that it goes to, else -1
	sp     int32 // how far the stack pointer is from the frame's beginning
	exit   bool  // the function ends here
	leader bool  // a branch of the function goes here
	fixed  bool  // something else does: it must stay where it is
	back   bool  // the call in front of it returns here
}

func (x *instruction) end() uint64 { return x.pc + uint64(x.Len) }

// A body is the code of one function.
type body struct {
	f      *Func
	code   []byte
	ins    []instruction
	sp     Values
	unsafe Values
	pad    int  // bytes of padding behind it
	strict bool // what can fault does not move
}

func (b *body) raw(i int) []byte {
	x := &b.ins[i]
	return b.code[x.pc-b.f.Entry:][:x.Len]
}

// body decodes a function. Refusals are those of functions that cannot be followed.
func (im *Image) body(f *Func) (*body, Reason) {
	b := &body{f: f, code: im.text[f.Entry-im.TextStart : f.Next-im.TextStart]}
	var err error
	if b.sp, err = im.Values(f, le.Uint32(f.rec[RecPCSP:])); err != nil || b.sp == nil {
		return nil, External
	}
	if b.unsafe, err = im.Values(f, PCData(f.rec, PCDataUnsafe)); err != nil {
		return nil, External
	}
	at := make([]int32, len(b.code)) // index of the instruction that begins at an offset, plus 1
	for o := 0; o < len(b.code); {
		in, err := amd64.Decode(b.code[o:])
		if err != nil {
			return nil, Undecodable
		}
		pc := f.Entry + uint64(o)
		b.ins = append(b.ins, instruction{Inst: in, pc: pc, target: -1, sp: b.sp.At(pc)})
		at[o] = int32(len(b.ins))
		o += in.Len
	}
	// What stands behind the last instruction is padding. A jump's last byte can look like it.
	for n := len(b.ins); n > 0 && b.ins[n-1].Op == amd64.Int3; n = len(b.ins) {
		b.ins = b.ins[:n-1]
		b.pad++
	}
	b.code = b.code[:len(b.code)-b.pad]
	if len(b.ins) == 0 {
		return nil, External
	}
	for i := range b.ins {
		if r := b.follow(i, at); r != "" {
			return nil, r
		}
	}
	for i := range b.ins {
		x := &b.ins[i]
		x.fixed = im.interior[x.pc] || x.pc == f.DeferReturn()
		x.leader = x.leader || x.fixed
		x.back = i > 0 && isCall(b.ins[i-1].Op)
	}
	return b, ""
}

// follow notes where an instruction goes.
func (b *body) follow(i int, at []int32) Reason {
	x := &b.ins[i]
	switch x.Op {
	case amd64.Ret:
		x.exit = true
	case amd64.JmpInd:
		x.exit = !b.isTable(i)
	case amd64.Jmp, amd64.Jcc, amd64.Loop, amd64.Jrcxz, amd64.Xbegin:
		to := x.Target(x.pc) - b.f.Entry
		if to >= uint64(len(b.code)) {
			x.exit = true
			return ""
		}
		if at[to] == 0 {
			return Undecodable
		}
		x.target = int(at[to]) - 1
		b.ins[x.target].leader = true
	}
	return ""
}

// isTable reports whether an indirect jump is that of a switch: its operand has an index, or there is a frame, which a
// function that ends has given back.
func (b *body) isTable(i int) bool {
	x := &b.ins[i]
	if x.ModRM>>6 == 3 {
		return x.sp != 0
	}
	_, plain := x.Memory(b.raw(i))
	return !plain && x.PCRel == amd64.PCRelNone || x.sp != 0
}

func isCall(op amd64.Op) bool { return op == amd64.Call || op == amd64.CallInd || op == amd64.CallFar }

// movable reports whether an instruction does elsewhere what it does where it is, as far as anybody can tell. A call
// leaves its address on the stack, where the runtime looks it up, in the tables that copies have as well; so a call can
// move with what it returns to.
func (x *instruction) movable(calls bool) bool {
	switch x.Op {
	case amd64.Other, amd64.Push, amd64.Pop, amd64.Leave, amd64.Nop, amd64.Jmp, amd64.Jcc, amd64.Ret, amd64.JmpInd:
		return true
	case amd64.Call, amd64.CallInd:
		return calls
	}
	return false
}

// ends reports whether nothing goes on behind an instruction.
func (x *instruction) ends() bool { return x.Op.EndsBlock() || x.Op == amd64.JmpInd }

// isWrapper reports whether a function is called by the convention of assembly, in which r14 is not the goroutine:
// before its first call it reads thread-local memory, where the goroutine is.
func (b *body) isWrapper() bool {
	for i := range b.ins {
		x := &b.ins[i]
		if isCall(x.Op) {
			return false
		}
		if x.Prefix&amd64.PrefixSeg != 0 && b.raw(i)[0] == 0x64 {
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
	for n := range min(len(b.ins)-1, 4) {
		if !b.isGuard(n) {
			continue
		}
		jump := &b.ins[n+1]
		if jump.Op != amd64.Jcc || jump.Cond != 6 || jump.target < 0 {
			return 0
		}
		for i := 1; i <= n+1; i++ {
			if b.ins[i].leader {
				return 0
			}
		}
		return n + 2
	}
	return 0
}

// isGuard recognises cmp 16(%r14) or 24(%r14), with %rsp or %r12.
func (b *body) isGuard(i int) bool {
	x := &b.ins[i]
	m, ok := x.Memory(b.raw(i))
	const r12, r14 = 12, 14
	return ok && x.Enc == amd64.Legacy && x.Map == 0 && x.Opcode == 0x3b && m.Base == r14 && (m.Disp == 16 || m.Disp == 24) &&
		(i == 0 && m.Reg == amd64.RSP || i > 0 && m.Reg == r12)
}
