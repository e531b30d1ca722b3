package arm64

import "github.com/fentry-dev/fentry/arch"

// DWARF call frame instructions and operators (DWARF 4, 6.4.2 and 2.5), and the
// numbers of registers (DWARF for the Arm 64-bit Architecture, AADWARF64, 4.1).
const (
	dwAdvance      = 0x40 // | delta
	dwOffset       = 0x80 // | register
	dwRestore      = 0xc0 // | register
	dwAdvance1     = 0x02
	dwAdvance2     = 0x03
	dwAdvance4     = 0x04
	dwOffsetExt    = 0x05
	dwRestoreExt   = 0x06
	dwUndefined    = 0x07
	dwSameValue    = 0x08
	dwRegister     = 0x09
	dwRemember     = 0x0a
	dwRestoreState = 0x0b
	dwDefCFA       = 0x0c
	dwDefCFAReg    = 0x0d
	dwDefCFAOffset = 0x0e
	dwDefCFAExpr   = 0x0f
	dwExpression   = 0x10
	dwOffsetExtSf  = 0x11
	dwDefCFASf     = 0x12
	dwDefCFAOffSf  = 0x13
	dwValOffset    = 0x14
	dwValOffsetSf  = 0x15
	dwValExpr      = 0x16
	dwNegateRAPC   = 0x2c // DW_CFA_AARCH64_negate_ra_state_with_pc
	dwNegateRA     = 0x2d // DW_CFA_AARCH64_negate_ra_state
	dwArgsSize     = 0x2e

	opDeref      = 0x06
	opConst1u    = 0x08
	opConst1s    = 0x09
	opConst4u    = 0x0c
	opConstu     = 0x10
	opDup        = 0x12
	opDrop       = 0x13
	opOver       = 0x14
	opSwap       = 0x16
	opAnd        = 0x1a
	opMinus      = 0x1c
	opMul        = 0x1e
	opPlusUconst = 0x23
	opShl        = 0x24
	opShr        = 0x25
	opXor        = 0x27
	opBra        = 0x28
	opEq         = 0x29
	opGt         = 0x2b
	opNe         = 0x2e
	opLit0       = 0x30 // + n
	opBreg0      = 0x70 // + register

	regLR      = 30
	regSP      = 31
	regRAState = 34
)

// hidden are the rules where the caller's return address is only in shadow memory,
// and the stack pointer is that of the caller after the return.
//
// The CFA is one more than the stack pointer, because unwinders tell frames apart
// by their CFA: the thunk's frame would have the same as its caller's, and libgcc
// aborts when the frame with the handler seems to be met twice.
func hidden(s Shadow) []byte {
	even := []byte{opConst1s, 0xfe, opAnd} // CFA & -2
	e := append(append([]byte(nil), even...), opLit0+8, opMinus)
	e = append(e, s.expr()...)
	b := []byte{dwDefCFA, regSP, 1}
	b = append(append(b, dwExpression, regLR, byte(len(e))), e...)
	return append(append(b, dwValExpr, regSP, byte(len(even))), even...)
}

// shown are the rules where everything is as the site had it: the return address is
// in x30. They are those of a thunk's start.
var shown = []byte{dwDefCFA, regSP, 0}

// rows are the call frame instructions of a thunk of one kind. The initial state
// is shown. The code alignment is 1: the row of a return address has to begin
// before it, because unwinders look it up as the end of a call.
func (k ThunkKind) rows(s Shadow) []byte {
	var b []byte
	switch k {
	case ThunkGraph:
		b = append(b, dwAdvance|thunkCall, dwRegister, regLR, 16)
		b = append(b, dwAdvance|ThunkCallEnd-thunkCall)
		b = append(b, hidden(s)...)
		b = append(b, dwAdvance|ThunkBypass-ThunkCallEnd)
	case ThunkFunc:
		return append(b, dwAdvance|thunkCall, dwRegister, regLR, 16, dwAdvance|thunkFunc-thunkCall, dwRestore|regLR)
	case ThunkMcount:
		b = append(b, dwAdvance|thunkJump+1)
		b = append(b, hidden(s)...)
		b = append(b, dwAdvance|ThunkBypass-(thunkJump+1))
	default:
		return nil
	}
	b = append(b, shown...)
	return append(b, dwRestore|regLR, dwRestore|regSP)
}

// ThunkFrames returns the unwind information of thunks, for .eh_frame at address
// base: an FDE for each.
func ThunkFrames(base uint64, thunks []Thunk, s Shadow) *arch.Frames {
	f := arch.NewFrames(base, regLR, shown)
	var rows [ThunkMcountFunc + 1][]byte
	for k := range rows {
		rows[k] = ThunkKind(k).rows(s)
	}
	for i := range thunks {
		f.Add(thunks[i].Addr, ThunkSize, rows[thunks[i].Kind])
	}
	return f
}
