package arm64

import (
	"encoding/binary"

	"github.com/fentry-dev/fentry/arch"
)

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
	opSkip       = 0x2f
	opLit0       = 0x30 // + n
	opBreg0      = 0x70 // + register
	opDerefSize  = 0x94

	regLR      = 30
	regSP      = 31
	regRAState = 34
)

// lowestCode is below all code: nothing is mapped there (vm.mmap_min_addr).
const lowestCode = 0x10000

// hidden are the rules where the caller's return address is only in shadow memory,
// and the stack pointer is that of the caller after the return.
//
// The CFA is one more than the stack pointer, because unwinders tell frames apart
// by their CFA: the thunk's frame would have the same as its caller's, and libgcc
// aborts when the frame with the handler seems to be met twice.
//
// That must not be so where the caller is the kernel, for a signal handler: libgcc
// has no other way to the interrupted program's registers than the CFA, as the
// code that the handler returns to (mov x8, #139; svc #0) is not described. The
// rule looks for that code at the return address, as libgcc does.
func hidden(s Shadow) []byte {
	even := []byte{opConst1s, 0xfe, opAnd} // CFA & -2
	e := append(append([]byte(nil), even...), opLit0+8, opMinus)
	e = append(e, s.expr()...)
	c := cfaExpr(s)
	b := append([]byte{dwDefCFAExpr, byte(len(c))}, c...)
	b = append(append(b, dwExpression, regLR, byte(len(e))), e...)
	return append(append(b, dwValExpr, regSP, byte(len(even))), even...)
}

// cfaExpr is the stack pointer, plus one if the caller is not the kernel.
func cfaExpr(s Shadow) []byte {
	const (
		movX8 = 0xd2801168 // mov x8, #__NR_rt_sigreturn
		svc   = 0xd4000001 // svc #0
	)
	e := append([]byte{opBreg0 + regSP, 0, opDup, opLit0 + 8, opMinus}, s.expr()...)
	e = append(e, opDeref, opDup, opConst4u) // sp, return address
	e = binary.LittleEndian.AppendUint32(e, lowestCode)
	e = append(e, opGt, opLit0, opEq, opBra, 0, 0)
	none := len(e)
	e = append(e, opDup, opDerefSize, 4, opConst4u)
	e = binary.LittleEndian.AppendUint32(e, movX8)
	e = append(e, opNe, opBra, 0, 0)
	other := len(e)
	e = append(e, opDup, opPlusUconst, 4, opDerefSize, 4, opConst4u)
	e = binary.LittleEndian.AppendUint32(e, svc)
	e = append(e, opNe, opBra, 4, 0, // to the second drop
		opDrop, opSkip, 3, 0) // to the end
	binary.LittleEndian.PutUint16(e[none-2:], uint16(len(e)-none))
	binary.LittleEndian.PutUint16(e[other-2:], uint16(len(e)-other))
	return append(e, opDrop, opPlusUconst, 1)
}

// shown are the rules where everything is as the site had it: the return address is
// in x30. They are those of a thunk's start.
var shown = []byte{dwDefCFA, regSP, 0, dwSameValue, regLR, dwSameValue, regSP}

// even is shown behind hidden: that the stack pointer is the CFA without its lowest bit is right here, too.
var even = shown[:5]

// thunkRun is how many thunks one entry describes at most: unwinders read it from its beginning.
const thunkRun = 64

// thunkRows are the call frame instructions of n thunks of one kind. The initial state is hidden, which is long; so it is
// remembered for each thunk, and brought back where the return address is hidden. The code alignment is 1: the row of a
// return address has to begin before it, because unwinders look it up as the end of a call.
func thunkRows(k arch.ThunkKind, n int) []byte {
	var b []byte
	hides := k == arch.ThunkGraph || k == arch.ThunkMcount
	if hides {
		b = append(b, dwRemember)
	}
	b = append(b, shown...)
	if hides {
		b = b[:1+len(even)]
	}
	behind := byte(0) // from the last row of one thunk to the next one
	for i := range n {
		switch k {
		case arch.ThunkGraph:
			b = append(b, dwAdvance|behind+thunkCall, dwRegister, regLR, 16)
			b = append(b, dwAdvance|ThunkCallEnd-thunkCall, dwRestoreState)
			behind = ThunkCallEnd
		case arch.ThunkMcount:
			b = append(b, dwAdvance|behind+thunkJump+1, dwRestoreState)
			behind = thunkJump + 1
		case arch.ThunkFunc, arch.ThunkCount:
			b = append(b, dwAdvance|behind+thunkCall, dwRegister, regLR, 16)
			b = append(b, dwAdvance|thunkFunc-thunkCall, dwSameValue, regLR)
			behind = arch.ThunkSize - thunkFunc
		}
		if hides {
			if i < n-1 {
				b = append(b, dwRemember)
			}
			b = append(append(b, dwAdvance|ThunkBypass-behind), even...)
			behind = arch.ThunkSize - ThunkBypass
		}
	}
	return b
}

// ThunkFrames returns the unwind information of thunks, sorted by address, for
// .eh_frame at address base: an FDE for up to thunkRun of one kind that stand one behind another.
func ThunkFrames(base uint64, thunks []Thunk, s Shadow) *arch.Frames {
	var runs []arch.ThunkRun
	for i := range thunks {
		runs = arch.AppendThunkRun(runs, thunks[i].Addr, arch.ThunkSize, thunks[i].Kind)
	}
	return ThunkRunFrames(base, runs, s)
}

// ThunkRunFrames is [ThunkFrames] for runs of thunks, sorted by address.
func ThunkRunFrames(base uint64, runs []arch.ThunkRun, s Shadow) *arch.Frames {
	f := arch.NewFrames(base, regLR, hidden(s))
	for _, r := range runs {
		for i := 0; i < r.N; i += thunkRun {
			n := min(thunkRun, r.N-i)
			f.Add(r.Addr+uint64(i)*arch.ThunkSize, uint64(n)*arch.ThunkSize, thunkRows(r.Kind, n))
		}
	}
	return f
}

// VeneerRows returns the call frame instructions of veneers and landings, to be added to the result of ThunkFrames:
// everything is as it was at the branch to them.
func VeneerRows() []byte { return shown }

// AuthenticatedRows returns the call frame instructions of code that begins with autiasp: the return address is signed,
// and behind that instruction it is not. align is the CIE's code alignment, which divides InstLen.
func AuthenticatedRows(align uint64) []byte {
	return []byte{dwNegateRA, dwAdvance | byte(InstLen/max(align, 1)), dwNegateRA}
}
