package amd64

import (
	"encoding/binary"
)

// A PCFDE says where in .eh_frame the frame description of a piece of code is.
type PCFDE struct {
	PC   uint64 // first instruction
	Addr uint64 // of the frame description entry
}

// Frames is the unwind information of thunks.
type Frames struct {
	EhFrame    []byte  // for the address it was made for; no terminator
	FDEs       []PCFDE // sorted as the thunks were
	DebugFrame []byte  // the same rows for .debug_frame, with absolute addresses
}

// DWARF call frame instructions and operators (DWARF 4, 6.4.2 and 2.5), and the
// numbers of registers (x86-64 psABI, figure 3.36).
const (
	dwAdvance      = 0x40 // | delta
	dwOffset       = 0x80 // | register
	dwExpression   = 0x10
	dwValExpr      = 0x16
	dwDefCFA       = 0x0c
	dwDefCFAOffset = 0x0e
	dwRestore      = 0xc0 // | register

	opConst1u = 0x08
	opConst1s = 0x09
	opAnd     = 0x1a
	opMinus   = 0x1c
	opShl     = 0x24
	opXor     = 0x27
	opLit1    = 0x31
	opLit8    = 0x38

	regSP = 7
	regIP = 16
)

// shadowBit is the bit in which the address of a return address and that of its
// copy in shadow memory differ (stub/src/layout.h: SHADOW_RET).
const shadowBit = 46

// hidden are the rules from where the thunk has taken the caller's return address
// off the stack to where exit has put it back: it is in shadow memory, and the
// stack pointer is that of the caller after the return.
//
// The CFA is one more than the stack pointer, because unwinders tell frames apart
// by their CFA: the thunk's frame would have the same as its caller's, and libgcc
// aborts when the frame with the handler seems to be met twice.
var hidden = []byte{
	dwDefCFA, regSP, 1,
	dwExpression, regIP, 10, // at ((CFA & -2) - 8) ^ 1<<46
	opConst1s, 0xfe, opAnd, opLit8, opMinus, opLit1, opConst1u, shadowBit, opShl, opXor,
	dwValExpr, regSP, 3, // CFA & -2
	opConst1s, 0xfe, opAnd,
}

// shown are the rules at entry: the return address is on the stack.
var shown = []byte{dwDefCFA, regSP, 8, dwOffset | regIP, 1}

// exitRows are the rows from the return of the body on.
func exitRows(b []byte) []byte {
	b = append(b, dwAdvance|thunkRetPush-thunkRet, dwDefCFAOffset, 9)
	b = append(b, dwAdvance|thunkRetJump-thunkRetPush, dwDefCFAOffset, 17)
	return b
}

// rows are the call frame instructions of a thunk of one kind. The initial state
// is shown.
func (k ThunkKind) rows() []byte {
	b := []byte{
		dwAdvance | 14, dwDefCFAOffset, 16, // id pushed
		dwAdvance | thunkCallEnd - 14, dwDefCFAOffset, 8, // enter dropped it
	}
	switch k {
	case ThunkGraph:
		b = append(b, dwAdvance|thunkPad-thunkCallEnd)
		b = append(b, hidden...)
		b = append(b, dwAdvance|thunkRet-thunkPad)
		b = exitRows(b)
	case ThunkMcount:
		// The row of the return address has to begin before it: unwinders look it
		// up as the end of a call.
		b = append(b, dwAdvance|thunkCallEnd+1-thunkCallEnd)
		b = append(b, hidden...)
		b = append(b, dwAdvance|thunkRet-(thunkCallEnd+1))
		b = exitRows(b)
	default:
		return b
	}
	b = append(b, dwAdvance|thunkBypass-thunkRetJump)
	b = append(b, shown...)
	return append(b, dwRestore|regSP) // the caller's stack pointer is the CFA again
}

// ThunkFrames returns the unwind information of thunks, for .eh_frame at address
// base.
func ThunkFrames(base uint64, thunks []Thunk) Frames {
	le := binary.LittleEndian
	var f Frames
	f.FDEs = make([]PCFDE, 0, len(thunks))
	eh := appendCIE(make([]byte, 0, 32+80*len(thunks)), false)
	df := appendCIE(make([]byte, 0, 32+96*len(thunks)), true)
	var rows [ThunkMcountFunc + 1][]byte
	for k := range rows {
		rows[k] = ThunkKind(k).rows()
	}
	for i := range thunks {
		t := &thunks[i]
		r := rows[t.Kind]
		at := len(eh)
		f.FDEs = append(f.FDEs, PCFDE{t.Addr, base + uint64(at)})
		eh = le.AppendUint32(eh, 0)
		eh = le.AppendUint32(eh, uint32(at+4)) // back to the CIE, which is first
		eh = le.AppendUint32(eh, uint32(t.Addr-(base+uint64(at)+8)))
		eh = le.AppendUint32(eh, ThunkSize)
		eh = append(eh, 0) // no augmentation data
		eh = append(eh, r...)
		eh = finish(eh, at, 8)

		at = len(df)
		df = le.AppendUint32(df, 0)
		df = le.AppendUint32(df, 0) // the CIE, which is first
		df = le.AppendUint64(df, t.Addr)
		df = le.AppendUint64(df, ThunkSize)
		df = append(df, r...)
		df = finish(df, at, 8)
	}
	f.EhFrame, f.DebugFrame = eh, df
	return f
}

// appendCIE appends the common information entry: the state at a thunk's start.
func appendCIE(b []byte, debug bool) []byte {
	le := binary.LittleEndian
	at := len(b)
	b = le.AppendUint32(b, 0)
	if debug {
		b = le.AppendUint32(b, ^uint32(0))
		b = append(b, 1, 0) // version, no augmentation
	} else {
		b = le.AppendUint32(b, 0)
		b = append(b, 1, 'z', 'R', 0)
	}
	b = append(b, 1, 0x78, regIP) // code and data alignment (-8), return address column
	if !debug {
		b = append(b, 1, 0x1b) // addresses are PC-relative, 4 bytes signed
	}
	b = append(b, shown...)
	return finish(b, at, 8)
}

// finish pads the entry at at to a multiple of align and fills in its length.
func finish(b []byte, at, align int) []byte {
	for (len(b)-at)%align != 0 {
		b = append(b, 0) // DW_CFA_nop
	}
	binary.LittleEndian.PutUint32(b[at:], uint32(len(b)-at-4))
	return b
}
