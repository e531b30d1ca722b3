package arm64

import (
	"encoding/binary"
	"math/bits"
)

// Calls of routines that make system calls.
//
// Where a system call has to stay, a call of the function that it is in moves, whose arguments are a function's: x0 has
// the address of a word, of which some bits say that no call is made; x1 the number; x2 to x7 what the kernel gets.
// Registers that functions may change are free on both sides of it, x30 among them.
//
//	 0: ldr w16, [x0]; cbnz w16, 24f, or tbnz w16, #bit, 24f
//	 2: stp x0, x1, [sp, #-64]!; stp x2, x3, [sp, #16]; stp x4, x5, [sp, #32]; stp x6, x7, [sp, #48]
//	 6: mov to where the kernel has them: x8, x0 to x5
//	13: bl enter
//	14: ldp all; b 26f; nop
//	20: ldp all
//	24: bl routine; b behind the site
//	26: bl routine; bl exit; b behind the site
//
// A call that is not recorded goes on 24 bytes behind enter, as in a [SyscallCopy]. The routine is called where the stack
// pointer is what it was at the site.

// A SyscallCallCopy makes the copy of such a call.
type SyscallCallCopy struct {
	At          uint64 // of the call
	Routine     uint64 // what it calls
	Cancelled   uint32 // bits of the word: all, or one
	Enter, Exit uint64 // as in SyscallCopy
}

// SyscallCallLen is how many bytes [SyscallCallCopy.Append] appends.
const SyscallCallLen = 29 * InstLen

// Append appends the copy for address to. Its error is a [RangeError].
func (c *SyscallCallCopy) Append(dst []byte, to uint64) ([]byte, error) {
	a := assembler{dst: dst, pc: to}
	words := func(ws ...uint32) {
		for _, w := range ws {
			a.word(w)
		}
	}
	restore := []uint32{
		0xa9431fe6, // ldp x6, x7, [sp, #48]
		0xa94217e4, // ldp x4, x5, [sp, #32]
		0xa9410fe2, // ldp x2, x3, [sp, #16]
		0xa8c407e0, // ldp x0, x1, [sp], #64
	}
	test := uint32(0x35000010) | (24-1)<<5 // cbnz w16
	if c.Cancelled != ^uint32(0) {
		test = 0x37000010 | uint32(bits.TrailingZeros32(c.Cancelled))<<19 | (24-1)<<5 // tbnz w16
	}
	words(0xb9400010, test) // ldr w16, [x0]
	words(0xa9bc07e0,       // stp x0, x1, [sp, #-64]!
		0xa9010fe2, // stp x2, x3, [sp, #16]
		0xa90217e4, // stp x4, x5, [sp, #32]
		0xa9031fe6) // stp x6, x7, [sp, #48]
	words(MoveArguments[:]...)
	a.branch(AppendCall, c.Enter)
	words(restore...)
	words(0x14000000|(26-18), 0xd503201f) // b, nop
	words(restore...)
	a.branch(AppendCall, c.Routine)
	a.branch(AppendJump, c.At+InstLen)
	a.branch(AppendCall, c.Routine)
	a.branch(AppendCall, c.Exit)
	a.branch(AppendJump, c.At+InstLen)
	if a.err != nil {
		return dst, a.err
	}
	return a.dst, nil
}

// MoveArguments are the instructions that take a function's arguments behind the first to where the kernel has number and
// arguments.
var MoveArguments = [...]uint32{
	0xaa0103e8, // mov x8, x1
	0xaa0203e0, // mov x0, x2
	0xaa0303e1, // mov x1, x3
	0xaa0403e2, // mov x2, x4
	0xaa0503e3, // mov x3, x5
	0xaa0603e4, // mov x4, x6
	0xaa0703e5, // mov x5, x7
}

// SyscallCallRows appends call frame instructions of a copy, behind those that describe the frame at the call, where the
// CFA is at a distance from the stack pointer. align is the CIE's code alignment, which divides InstLen.
func SyscallCallRows(dst []byte, cfa int64, align uint64) []byte {
	at := 0
	for _, r := range [...]struct {
		inst   int
		pushed int64
	}{{3, 64}, {18, 0}, {20, 64}, {24, 0}} {
		dst = append(dst, dwAdvance|byte((r.inst-at)*InstLen/int(max(align, 1))), dwDefCFAOffset)
		dst = binary.AppendUvarint(dst, uint64(cfa+r.pushed))
		at = r.inst
	}
	return dst
}
