package arm64

import "encoding/binary"

// Displaced system calls.
//
// The branch to a copy takes the place of the one instruction, svc #0. Around it control leaves the copy twice, by calls:
//
//	stp x16, x30, [sp, #-16]!; bl enter; ldp x16, x30, [sp], #16
//	svc #0
//	stp x16, x30, [sp, #-16]!; bl exit; ldp x16, x30, [sp], #16
//	b behind the site
//	ldp x16, x30, [sp], #16; svc #0; b behind the site
//
// A call that is not recorded is made at the second instruction: enter comes back 24 bytes further on.
//
// The kernel keeps all registers but x0, and flags, so compilers keep values in any: what a call changes is saved. Below
// the stack pointer nothing is live. At the instruction itself the stack pointer and all else is what it was. A
// system call that a signal interrupts is begun again by the kernel at the instruction, so it is recorded once.

// WordSvc is svc #0.
const WordSvc = 0xd4000001

// SyscallLen is how many bytes [SyscallCopy.Append] appends.
const SyscallLen = 11 * InstLen

const (
	pushLink = 0xa9bf7bf0 // stp x16, x30, [sp, #-16]!
	popLink  = 0xa8c17bf0 // ldp x16, x30, [sp], #16
)

// A SyscallCopy makes the copy of a system call.
type SyscallCopy struct {
	At          uint64 // its address
	Enter, Exit uint64 // routines to call, which have x16 to themselves
}

// Append appends the copy for address to. Its error is a [RangeError].
func (s *SyscallCopy) Append(dst []byte, to uint64) ([]byte, error) {
	a := assembler{dst: dst, pc: to}
	around := func(routine uint64) {
		a.word(pushLink)
		a.branch(AppendCall, routine)
		a.word(popLink)
	}
	around(s.Enter)
	a.word(WordSvc)
	around(s.Exit)
	a.branch(AppendJump, s.At+InstLen)
	a.word(popLink)
	a.word(WordSvc)
	a.branch(AppendJump, s.At+InstLen)
	if a.err != nil {
		return dst, a.err
	}
	return a.dst, nil
}

// SyscallRows appends call frame instructions of a copy, behind those that describe the frame at the original. Where that
// has the CFA at a distance from the stack pointer, cfa is that distance, else it is negative. saved says that the return
// address is not in x30. align is the CIE's code alignment, which divides InstLen.
func SyscallRows(dst []byte, cfa int64, saved bool, align uint64) []byte {
	at := 0
	advance := func(inst int) {
		dst = append(dst, dwAdvance|byte((inst-at)*InstLen/int(max(align, 1))))
		at = inst
	}
	for _, pushed := range [][2]int{{1, 3}, {5, 7}, {8, 9}} {
		advance(pushed[0])
		dst = append(dst, dwRemember)
		if cfa >= 0 {
			dst = append(dst, dwDefCFAOffset)
			dst = binary.AppendUvarint(dst, uint64(cfa)+16)
		}
		if !saved {
			dst = append(dst, dwExpression, regLR, 2, opBreg0+regSP, 8)
		}
		advance(pushed[1])
		dst = append(dst, dwRestoreState)
	}
	return dst
}

// AppendFarJump appends 16 bytes that go to an address from anywhere, by x16.
func AppendFarJump(dst []byte, to uint64) []byte {
	dst = appendWord(appendWord(dst, 0x58000050), 0xd61f0200) // ldr x16, .+8; br x16
	return appendWord(appendWord(dst, uint32(to)), uint32(to>>32))
}
