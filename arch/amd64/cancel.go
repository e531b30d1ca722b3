package amd64

import "encoding/binary"

// Calls of routines that make system calls.
//
// Where a system call has to stay, a call of the function that it is in moves, whose arguments are a function's: rdi has
// the address of a word, of which some bits say that no call is made; rsi the number; rdx, rcx, r8, r9 and two words on
// the stack what the kernel gets. Registers that functions may change are free on both sides of it.
//
//	 0: testl $cancelled, (%rdi); jne 75f
//	 8: push %rdi; push %rsi; push %rdx; push %rcx; push %r8; push %r9
//	16: mov to where the kernel has them: rax, rdi, rsi, rdx, r10, r8, r9
//	41: lea 53f(%rip), %rcx; jmp enter
//	53: pop all; jmp 85f; nop
//	67: pop all
//	75: call routine; jmp behind the site
//	85: call routine; lea 102f(%rip), %rcx; jmp exit
//	102: jmp behind the site
//
// A call that is not recorded goes on 14 bytes further on, as in a [SyscallCopy]. The routine is called where the stack
// pointer is what it was at the site.

// A SyscallCallCopy makes the copy of such a call.
type SyscallCallCopy struct {
	At          uint64 // of the call, JumpLen bytes
	Routine     uint64 // what it calls
	Cancelled   uint32 // bits of the word
	Enter, Exit uint64 // as in SyscallCopy
}

// SyscallCallLen is how many bytes [SyscallCallCopy.Append] appends.
const SyscallCallLen = 107

var (
	callRegs   = []byte{0x57, 0x56, 0x52, 0x51, 0x41, 0x50, 0x41, 0x51} // push
	returnRegs = []byte{0x41, 0x59, 0x41, 0x58, 0x59, 0x5a, 0x5e, 0x5f} // pop
	fromStack  = []byte{
		0x4c, 0x8b, 0x44, 0x24, 48, // mov 48(%rsp), %r8
		0x4c, 0x8b, 0x4c, 0x24, 56, // mov 56(%rsp), %r9
	}
)

// MoveArguments are the instructions that take a function's arguments in registers, behind the first, to where the kernel
// has number and arguments: mov %rsi, %rax; mov %rdx, %rdi; mov %rcx, %rsi; mov %r8, %rdx; mov %r9, %r10. The last two
// arguments are on the stack.
const MoveArguments = "\x48\x89\xf0" + "\x48\x89\xd7" + "\x48\x89\xce" + "\x4c\x89\xc2" + "\x4d\x89\xca"

// Append appends the copy for address to.
func (c *SyscallCallCopy) Append(dst []byte, to uint64) ([]byte, error) {
	start := len(dst)
	var failed error
	add := func(b ...byte) { dst = append(dst, b...) }
	branch := func(f func([]byte, uint64, uint64) ([]byte, error), target uint64) {
		b, err := f(dst, to+uint64(len(dst)-start), target)
		if dst = b; err != nil && failed == nil {
			failed = err
		}
	}
	leave := func(routine uint64) {
		add(0x48, 0x8d, 0x0d, JumpLen, 0, 0, 0) // lea 5(%rip), %rcx
		branch(AppendJump, routine)
	}
	add(0xf7, 0x07)
	dst = binary.LittleEndian.AppendUint32(dst, c.Cancelled)
	add(0x75, 75-8)
	add(callRegs...)
	dst = append(dst, MoveArguments...)
	add(fromStack...)
	leave(c.Enter)
	add(returnRegs...)
	add(0xeb, 85-63)
	dst = AppendNops(dst, 4)
	add(returnRegs...)
	branch(AppendCall, c.Routine)
	branch(AppendJump, c.At+JumpLen)
	branch(AppendCall, c.Routine)
	leave(c.Exit)
	branch(AppendJump, c.At+JumpLen)
	if failed != nil {
		return dst[:start], failed
	}
	return dst, nil
}

// Call frame instructions (DWARF 5, 7.24).
const (
	dwAdvance      = 0x40 // | delta
	dwDefCFAOffset = 0x0e
)

// StackPointer is the DWARF number of rsp (psABI, figure 3.36).
const StackPointer = 7

// SyscallCallRows appends call frame instructions of a copy, behind those that describe the frame at the call, where the
// CFA is at a distance from the stack pointer. align is the CIE's code alignment.
func SyscallCallRows(dst []byte, cfa int64, align uint64) []byte {
	at := 0
	row := func(to int, pushed int64) {
		dst = append(dst, dwAdvance|byte((to-at)/int(max(align, 1))), dwDefCFAOffset)
		dst = binary.AppendUvarint(dst, uint64(cfa+8*pushed))
		at = to
	}
	popped := func(from int) {
		for i, to := range [...]int{0, 2, 4, 5, 6, 7, 8} {
			row(from+to, int64(6-i))
		}
	}
	for i, to := range [...]int{9, 10, 11, 12, 14, 16} {
		row(to, int64(i+1))
	}
	popped(53)
	popped(67)
	return dst
}
