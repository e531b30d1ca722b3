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
	opConst8u    = 0x0e
	opConstu     = 0x10
	opDup        = 0x12
	opDrop       = 0x13
	opOver       = 0x14
	opSwap       = 0x16
	opAnd        = 0x1a
	opMinus      = 0x1c
	opMul        = 0x1e
	opOr         = 0x21
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

// even takes the lowest bit off a CFA.
var even = []byte{opConst1s, 0xfe, opAnd}

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

// front are the rules of the fronts of thunks. The return address is in x30, as the site had it, but while enter runs and where
// that has returned. Then it is in x16, and x30 leads behind the call of enter. That is told by the instruction in front of
// the call, mov x16, x30, which no compiler puts before a call, as those destroy x16. It is read only where x30 can be
// such an address: with bit 4 set, as it is behind the calls of fronts, what is read is on the same page.
func front() []byte {
	e := frontReturn()
	return append([]byte{dwDefCFA, regSP, 0, dwValExpr, regLR, byte(len(e))}, e...)
}

// frontReturn is the expression that leaves that address on the stack, over what is there.
func frontReturn() []byte {
	then := []byte{opDrop, opBreg0 + 16, 0}
	test := []byte{opDup, opLit0 + 8, opMinus, opDerefSize, 4, opConst4u}
	test = append(binary.LittleEndian.AppendUint32(test, movReg(16, 30)), opNe, opBra, byte(len(then)), 0)
	e := []byte{opBreg0 + regLR, 0, opDup, opLit0 + 16, opAnd, opLit0, opNe, opOver, opConst4u}
	e = append(binary.LittleEndian.AppendUint32(e, lowestCode), opGt, opAnd, opLit0, opEq, opBra, byte(len(test)+len(then)), 0)
	return append(append(e, test...), then...)
}

// ThunkFrames returns the unwind information of thunks, sorted by address, which stand one behind another, for
// .eh_frame at address base.
func ThunkFrames(base uint64, thunks []Thunk, s Shadow) *arch.Frames {
	var runs, fronts []arch.ThunkRun
	for i := range thunks {
		runs = arch.AppendThunkRun(runs, thunks[i].Addr, FrontSize, thunks[i].Kind)
		if !thunks[i].displaces() {
			fronts = arch.AppendThunkRun(fronts, thunks[i].Addr, FrontSize, thunks[i].Kind)
		}
	}
	if len(thunks) == 0 {
		return ThunkRunFrames(base, nil, nil, 0, s)
	}
	return ThunkRunFrames(base, fronts, runs, thunks[0].Back, s)
}

// ThunkRunFrames is [ThunkFrames] for runs of thunks, sorted by address, and the address of the first one's back. fronts are
// those of which the fronts are described, too: entries of their own describe fronts that have displaced instructions.
func ThunkRunFrames(base uint64, fronts, runs []arch.ThunkRun, back uint64, s Shadow) *arch.Frames {
	f := arch.NewFrames(base, regLR, front())
	for _, r := range fronts {
		f.Add(r.Addr, uint64(r.N)*FrontSize, nil)
	}
	f.Begin(regLR, hidden(s))
	for _, r := range runs {
		if HasBack(r.Kind) {
			f.Add(back+(r.Addr-runs[0].Addr)/FrontSize*BackSize, uint64(r.N)*BackSize, nil)
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
