package stacks

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// stoppedRegisters reads the registers of a stopped thread.
func stoppedRegisters(tid int) (registers, error) {
	const prStatus = 1 // NT_PRSTATUS of elf.h
	var u unix.PtraceRegs
	iov := unix.Iovec{Base: (*byte)(unsafe.Pointer(&u))}
	iov.SetLen(int(unsafe.Sizeof(u)))
	_, _, e := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_GETREGSET, uintptr(tid), prStatus,
		uintptr(unsafe.Pointer(&iov)), 0, 0)
	if e != 0 {
		return registers{}, e
	}
	r := registers{pc: u.Pc}
	for i, v := range u.Regs {
		r.set(i, v)
	}
	r.set(aarch64.sp, u.Sp)
	return r, nil
}
