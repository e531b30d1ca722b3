package plain

import (
	"encoding/binary"

	"github.com/fentry-dev/fentry/arch/arm64"
)

// How functions that swap pieces of a stack go on behind the copying (swap.go), on AArch64: the stack pointer and the frame pointer
// move by the same register,
//
//	add sp, sp, xN; add x29, x29, xN
//
// or the stack pointer is what a call has returned, unless that is 0:
//
//	cbz x0, 1f; mov sp, x0

// arm64Swaps reports whether a word of code and the one before it are these.
func arm64Swaps(before, w uint32) bool {
	const (
		addSP   = 0x8b2063ff // add sp, sp, x0
		addX29  = 0x8b0003bd // add x29, x29, x0
		addend  = 31 << 16
		cbzX0   = 0xb4000000 // cbz x0, .
		cbzDisp = 0x7ffff << 5
		movX0SP = 0x9100001f // mov sp, x0
	)
	return w&^addend == addX29 && before == addSP|w&addend || w == movX0SP && before&^cbzDisp == cbzX0
}

// maySwap looks for them at each instruction.
func (arm64Machine) maySwap(b []byte) bool {
	before := uint32(0)
	for ; len(b) >= arm64.InstLen; b = b[arm64.InstLen:] {
		w := binary.LittleEndian.Uint32(b)
		if arm64Swaps(before, w) {
			return true
		}
		before = w
	}
	return false
}
