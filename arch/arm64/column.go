package arm64

import (
	"encoding/binary"
	"slices"
)

// Descriptions of functions that stay as they are.
//
// On this machine the return address moves: it is in x30 at first, and then wherever the function saves it, which its
// frame description says again and again. A rule that looks behind thunks has to be added at each of these places, to
// each function's description (Rows), and then all of them are new and larger.
//
// But a description need not be asked for x30. Its CIE names the column of the return address, and it can be another one:
// that of the pc, 32 in the ABI's numbering, which no function's description mentions. A rule for it in the CIE alone
// gives the return address, and what the function says of x30 stays what it is, without a meaning for unwinders. The rule
// has to know where the function keeps the address. Compilers save x30 at the same distance from the CFA throughout a
// function, and where the CFA is the stack pointer, at its beginning and at its end, it is in x30. So there is one CIE
// for each such distance, a dozen in a program, and one for functions that never save it. What is left is the code
// between the reservation of a frame and the saving of x30, a few instructions of some functions: there the address is
// still in x30. There the CFA is odd, by a mark in the function's description (elfio/ehframe/mark.go), and the CIE
// has a rule for the stack pointer, which is the CFA without it. Code that has no room for a mark has a description of its own.
//
// gdb (since 10), libgcc and LLVM's unwinder take the pc from that column. libgcc must not do so for its own functions,
// because it aborts where its registers have values in place of addresses: those are left as they are.

// PCColumn is the column of the pc (AADWARF64, 4.1).
const PCColumn = 32

// StackPointer is the column of the stack pointer.
const StackPointer = regSP

// What stands for a distance where the return address is never saved.
const (
	InRegister = 0 // it is in x30
	InFront    = 1 // the code is a thunk's front, with displaced instructions: it is in x30, or in x16
)

// ColumnRule returns the call frame instructions that add a rule for PCColumn to a CIE for which StartsAtEntry: of
// functions that save x30 at distance off from the CFA, which is negative, or never (InRegister, InFront). The runtime's own walks
// know what it looks like (cfi-read.h).
func (c Callers) ColumnRule(off int64) []byte {
	var e []byte // the CFA is on the stack; on top of it comes the return address
	switch off {
	case InRegister:
		e = append(e, opBreg0+regLR, 0)
	case InFront:
		e = frontReturn()
	default:
		saved := append(binary.AppendUvarint([]byte{opDup, opConstu}, uint64(-off)), opMinus, opDeref)
		e = append(e, opDup, opBreg0+regSP, 0, opEq, opOver, opLit0+1, opAnd, opOr, opSwap)
		e = append(append(e, even...), opSwap, opBra, byte(len(saved)+3), 0)
		e = append(append(e, saved...), opSkip, 2, 0, opBreg0+regLR, 0)
	}
	shadow := slices.Concat([]byte{opDrop, opLit0 + 8, opMinus}, c.Shadow.expr(), []byte{opDeref})
	e = appendThunkTest(e, shadow)
	var b []byte
	if off < 0 {
		b = append([]byte{dwValExpr, regSP, byte(len(even))}, even...)
	}
	b = append(b, dwValExpr, PCColumn)
	return append(binary.AppendUvarint(b, uint64(len(e))), e...)
}

// appendThunkTest appends what executes then if the address on the top of the stack is one that a thunk's body returns
// to. It reads the code there, but only of addresses that could be a thunk's.
func appendThunkTest(e, then []byte) []byte {
	test := []byte{opDup, opDeref, opConst8u}
	test = binary.LittleEndian.AppendUint64(test, backLowMask<<32|backHighMask)
	test = append(test, opAnd, opConst8u)
	test = append(binary.LittleEndian.AppendUint64(test, backLow<<32|backHigh), opNe, opBra)
	test = binary.LittleEndian.AppendUint16(test, uint16(len(then)))
	e = append(e, opDup, opLit0+BackSize-1, opAnd, opLit0+ThunkRet, opEq, opOver, opConst4u)
	e = append(binary.LittleEndian.AppendUint32(e, lowestCode), opGt, opAnd, opLit0, opEq, opBra)
	e = binary.LittleEndian.AppendUint16(e, uint16(len(test)+len(then)))
	return append(append(e, test...), then...)
}
