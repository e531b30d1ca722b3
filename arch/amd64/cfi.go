package amd64

import (
	"slices"

	"github.com/fentry-dev/fentry/arch"
)

// DWARF call frame instructions and operators (DWARF 4, 6.4.2 and 2.5), and the
// numbers of registers (x86-64 psABI, figure 3.36).
const (
	dwOffset     = 0x80 // | register
	dwDefCFA     = 0x0c
	dwDefCFAExpr = 0x0f
	dwExpression = 0x10
	dwValExpr    = 0x16

	opDeref   = 0x06
	opConst1u = 0x08
	opConst1s = 0x09
	opDup     = 0x12
	opAnd     = 0x1a
	opMinus   = 0x1c
	opPlus    = 0x22
	opPlusU   = 0x23
	opShl     = 0x24
	opShra    = 0x26
	opXor     = 0x27
	opBra     = 0x28
	opEQ      = 0x29
	opGE      = 0x2a
	opSkip    = 0x2f
	opLit0    = 0x30
	opLit1    = 0x31
	opLit8    = 0x38
	opBreg0   = 0x70
	opDerefSz = 0x94

	regSP = 7
	regIP = 16
)

// A step changes the state of a thunk's frame from an offset on.
type step struct {
	at     byte // offset in the thunk
	words  int8 // change of the distance from the stack pointer to the CFA, in words
	hidden int8 // 1: from here on the caller's return address is in the shadow; -1: no longer
}

// behind reports whether sites for thunks of kind k are behind the prologue.
func behind(k arch.ThunkKind) bool {
	return k == arch.ThunkMcount || k == arch.ThunkMcountFunc || k == arch.ThunkMcountCount
}

// steps describes a thunk of a kind. At its first byte the CFA is a word above the
// stack pointer, and the return address is in that word. Sites behind the prologue
// jump to the thunk, too, but to unwinders the function has called it, and goes on
// by its own rows: there the CFA is the stack pointer at the site. Only the part that
// the body returns to is called by the function's caller.
func steps(k arch.ThunkKind) []step {
	exit := []step{
		{thunkRet, 0, 1},     // the return address is not in the slot
		{thunkRetCall, 1, 0}, // which is on the stack again
	}
	switch k {
	case arch.ThunkCount, arch.ThunkMcountCount:
		return []step{
			{1, 1, 0},               // rax pushed
			{thunkCountJump, -1, 0}, // and popped
			{thunkCountSlow, 1, 0},  // from between
		}
	case arch.ThunkGraph:
		return append([]step{{thunkCallEnd, -1, 0}}, exit...) // enter has dropped the return address
	case arch.ThunkMcount:
		return append(exit,
			step{thunkBehind, 0, -1}, // a return address pushed, but not as there
			step{thunkBehind + 5, -1, 0})
	}
	return nil
}

// rules are the call frame instructions for all thunks of one kind that stand one
// after another: the state follows from the instruction pointer's low bits, as in
// the FDEs that linkers make for procedure linkage tables. It is computed from
// where the thread is or will return to, not from the instruction before, so an enter
// that drops the caller's address must unwind as a routine that drops an argument. Until
// the body is called that address is still in the slot, a word below the stack pointer.
//
// Where the body returns to, the stack pointer is the caller's. Unwinders tell frames apart by their CFA, which would be
// the same for the thunk's frame and the caller's: libgcc aborts when the frame with the handler seems to be met twice.
// So the caller's has to be another one than the stack pointer, but libunwind takes the CFA for the stack pointer,
// whatever is said of that. Therefore the thunk has two frames there. The first one says that the stack pointer is one
// more than the CFA, and returns to the next byte of the thunk; of the second one, the CFA is the stack pointer, which
// is odd, but not to libunwind, as it has not listened.
func rules(k arch.ThunkKind, size int) []byte {
	cfa := []byte{opLit1}
	if behind(k) {
		cfa[0] = opLit0
	}
	var hid []byte // pushes 1 where the return address is in the shadow
	for _, s := range steps(k) {
		if s.words != 0 {
			op := byte(opPlus)
			if s.words < 0 {
				op = opMinus
			}
			cfa = append(append(cfa, from(s.at, size)...), op)
		}
		switch s.hidden {
		case 1:
			hid = append(hid, from(s.at, size)...)
		case -1:
			hid = append(append(hid, from(s.at, size)...), opMinus)
		}
	}
	cfa = append(cfa, opLit1+2, opShl, opBreg0+regSP, 0, opPlus) // words to bytes, from the stack pointer
	slot := []byte{opConst1s, 0xfe, opAnd, opLit8, opMinus}      // (CFA & -2) - 8
	sp := []byte{opConst1s, 0xfe, opAnd}
	b := expression(dwDefCFAExpr, cfa)
	if hid == nil && !behind(k) {
		return append(append(b, expression(dwExpression, slot, regIP)...), expression(dwValExpr, sp, regSP)...)
	}
	var ret []byte // pushes the return address
	if hid != nil {
		slot = append(append(slot, hid...), opConst1u, ShadowBit, opShl, opXor)
		sp = append(append(sp, returned(size)...), opPlus)
		ret = append(returned(size), opBra)
	}
	caller := append(slot, opDeref)
	if behind(k) {
		caller = returnBehind(k, size, caller, hid)
	}
	if hid != nil {
		caller = append(caller, opSkip, 2, 0)
		ret = append(append(ret, byte(len(caller)), 0), caller...)
		caller = []byte{opBreg0 + regIP, 1}
	}
	ret = append(ret, caller...)
	return append(append(b, expression(dwValExpr, ret, regIP)...), expression(dwValExpr, sp, regSP)...)
}

// returnBehind is where a thunk for sites behind the prologue returns to: the body,
// whose address is in a jump of the thunk, and where hid pushes 1 what caller pushes.
func returnBehind(k arch.ThunkKind, size int, caller, hid []byte) []byte {
	jump := byte(thunkBypass + 1) // its last five bytes are as those of a jmp
	if k == arch.ThunkMcountCount {
		jump = thunkCountJump
	}
	body := []byte{
		opBreg0 + regIP, 0, opConst1s, byte(0x100 - size), opAnd, opDup, opPlusU, jump + 1, opDerefSz, 4,
		opConst1u, 32, opShl, opConst1u, 32, opShra, opPlus, opPlusU, jump + 5,
	}
	if hid == nil {
		return body
	}
	body = append(body, opSkip, byte(len(caller)), 0)
	hid = append(slices.Clone(hid), opBra, byte(len(body)), 0)
	return append(append(hid, body...), caller...)
}

// returned pushes 1 if the instruction pointer is where the body returns to, else 0.
func returned(size int) []byte {
	return []byte{opBreg0 + regIP, 0, opConst1u, byte(size - 1), opAnd, opConst1u, thunkRet, opEQ}
}

// expression is an instruction, of a register unless it is for the CFA, with an expression.
func expression(op byte, e []byte, reg ...byte) []byte {
	b := append([]byte{op}, reg...)
	return append(appendULEB(b, len(e)), e...)
}

// from pushes 1 if the instruction pointer is at offset at of its thunk or behind, else 0.
func from(at byte, size int) []byte {
	return []byte{opBreg0 + regIP, 0, opConst1u, byte(size - 1), opAnd, opConst1u, at, opGE}
}

func appendULEB(b []byte, v int) []byte {
	for v >= 0x80 {
		b = append(b, byte(v)|0x80)
		v >>= 7
	}
	return append(b, byte(v))
}

// ThunkFrames returns the unwind information of thunks, sorted by address, for
// .eh_frame at address base: an FDE for each run of thunks of one kind.
func ThunkFrames(base uint64, thunks []Thunk) *arch.Frames {
	var runs []arch.ThunkRun
	for i := range thunks {
		runs = arch.AppendThunkRun(runs, thunks[i].Addr, thunks[i].size(), thunks[i].Kind)
	}
	return ThunkRunFrames(base, runs)
}

// ThunkRunFrames is [ThunkFrames] for runs of thunks, sorted by address.
func ThunkRunFrames(base uint64, runs []arch.ThunkRun) *arch.Frames {
	// At a thunk's start the CFA is a word above the stack pointer, and the return
	// address is in that word.
	f := arch.NewFrames(base, regIP, []byte{dwDefCFA, regSP, 8, dwOffset | regIP, 1})
	for _, r := range runs {
		f.Add(r.Addr, uint64(r.N)*uint64(r.Size), rules(r.Kind, r.Size))
	}
	return f
}
