package amd64

import (
	"bytes"
	"fmt"
)

// Displaced system calls.
//
// The instruction syscall has two bytes, so what a jump takes the place of is a run of instructions that it is one of.
// They go on elsewhere like other displaced code, but around the system call control leaves them twice, with the way
// back in rcx:
//
//	the instructions in front of it
//	lea 1f(%rip), %rcx; jmp enter
//	1: syscall
//	lea 2f(%rip), %rcx; jmp exit
//	syscall
//	2: the instructions behind it, and a jump to what follows
//
// A call that is not recorded is made at the second instruction: enter comes back 14 bytes further on.
//
// rcx and r11 are the only registers that a system call overwrites, so neither is needed in front of it or behind it.
// The stack pointer and all else stay what they are. A system call that a signal interrupts is begun again by the
// kernel at the instruction itself, so it is recorded once.

// A SyscallCopy makes the copy of a run of instructions with a system call among them.
type SyscallCopy struct {
	Code        []byte // whole instructions
	At          uint64 // their address
	Call        int    // which byte of them is the system call's first
	Enter, Exit uint64 // routines to go to, which come back to the address in rcx
}

const (
	syscallLen = 2
	leaLen     = 7
	// syscallExtra is how many bytes lead out of the copy, on each side of the system call.
	syscallExtra = leaLen + JumpLen
)

// Len returns how many bytes [SyscallCopy.Append] appends, wherever they go; 0 if the code is not what it should be.
func (s *SyscallCopy) Len() int {
	n, ok := s.Place(len(s.Code))
	if !ok || n == 0 || s.Call < 0 || !bytes.HasPrefix(s.Code[s.Call:], []byte{0x0f, 0x05}) {
		return 0
	}
	if Continues(s.Code) {
		n += JumpLen
	}
	return n
}

// Place returns where in the copy that begins which begins at an offset of the code: of the system call, what leads up
// to it. It returns false if no instruction begins there.
func (s *SyscallCopy) Place(off int) (int, bool) {
	n, ok := DisplacedAt(s.Code, off)
	if !ok {
		return 0, false
	}
	if _, ok := DisplacedAt(s.Code, s.Call); !ok {
		return 0, false
	}
	if off > s.Call {
		n += 2*syscallExtra + syscallLen
	}
	return n, true
}

// Waits tells whether an offset of the copy is that of one of its two system calls, or behind one, where threads are that
// wait in the kernel; behind is how far.
func (s *SyscallCopy) Waits(off int) (behind int, ok bool) {
	n, ok := s.Place(s.Call)
	if !ok {
		return 0, false
	}
	for _, call := range [...]int{n + syscallExtra, n + 2*syscallExtra + syscallLen} {
		if off == call || off == call+syscallLen {
			return off - call, true
		}
	}
	return 0, false
}

// Append appends the copy for address to. Errors are those of [Relocate].
func (s *SyscallCopy) Append(dst []byte, to uint64) ([]byte, error) {
	if s.Len() == 0 {
		return dst, fmt.Errorf("no system call at %#x", s.At+uint64(s.Call))
	}
	start := len(dst)
	here := func() uint64 { return to + uint64(len(dst)-start) }
	leave := func(routine uint64, skip int) error {
		dst = append(dst, 0x48, 0x8d, 0x0d, byte(JumpLen+skip), 0, 0, 0) // lea 5+skip(%rip), %rcx
		var err error
		dst, err = AppendJump(dst, here(), routine)
		return err
	}
	for o := 0; o < len(s.Code); {
		in, err := Decode(s.Code[o:])
		if err != nil {
			return dst[:start], fmt.Errorf("instruction at %#x: %w", s.At+uint64(o), err)
		}
		if o == s.Call {
			err = leave(s.Enter, 0)
		}
		if err == nil && isBareRet(in) {
			dst = append(dst, 0xf3) // repz ret
		}
		if err == nil {
			dst, err = Relocate(dst, in, s.Code[o:], s.At+uint64(o), here())
		}
		if err == nil && o == s.Call {
			err = leave(s.Exit, syscallLen)
			dst = append(dst, 0x0f, 0x05) // syscall
		}
		if err != nil {
			return dst[:start], err
		}
		o += in.Len
	}
	if !Continues(s.Code) {
		return dst, nil
	}
	out, err := AppendJump(dst, here(), s.At+uint64(len(s.Code)))
	if err != nil {
		return dst[:start], err
	}
	return out, nil
}
