package tracee

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The registers of an arm64 process in its exec stop. There is no PTRACE_GETREGS
// on this machine: registers come in sets, and what makes the thread's identity,
// TPIDR_EL0, is in a set of its own.
type registers struct {
	unix.PtraceRegs
	tls uint64
}

func (r *registers) pc() uint64      { return r.Pc }
func (r *registers) sp() uint64      { return r.Sp }
func (r *registers) setPC(pc uint64) { r.Pc = pc }

// setThreadBlock: thunks find a thread's control block from TPIDR_EL0, which is 0
// until the C library has set it; they have to cope with that in any case.
func (r *registers) setThreadBlock(uint64) {}

// noRestart: the kernel keeps by itself what says that a system call is under
// way, and forgets it at execve; a call that is not to be restarted is not.
func (r *registers) noRestart() {}

// keepThread takes over what makes the thread's identity.
func (r *registers) keepThread(from *registers) { r.tls = from.tls }

// Instructions (Arm ARM C6.2). The process stops at a breakpoint, not behind it.
var (
	breakpoint  = []byte{0x00, 0x00, 0x20, 0xd4} // brk #0
	syscallInsn = []byte{0x01, 0x00, 0x00, 0xd4} // svc #0
)

func (r *registers) stoppedAt(addr uint64) bool { return r.Pc == addr }

// openCalls are the system calls that open a file by its path, and which of their arguments that is.
var openCalls = map[uint64]int{unix.SYS_OPENAT: 1}

func (r *registers) setCall(nr uint64, a [6]uint64) {
	r.Regs[8] = nr
	copy(r.Regs[:], a[:])
}

func (r *registers) result() uint64 { return r.Regs[0] }

// Register sets (linux/elf.h).
const (
	ntPrstatus = 1
	ntArmTLS   = 0x401
)

// registerSet reads or writes a set of n bytes at p.
func (t *Process) registerSet(request uintptr, set uintptr, p unsafe.Pointer, n uintptr) error {
	iov := unix.Iovec{Base: (*byte)(p), Len: uint64(n)}
	_, _, errno := unix.RawSyscall6(unix.SYS_PTRACE, request, uintptr(t.pid), set, uintptr(unsafe.Pointer(&iov)), 0, 0)
	if errno != 0 {
		return errno
	}
	if iov.Len != uint64(n) {
		return errors.New("not a 64-bit process")
	}
	return nil
}

func (t *Process) registers() (*registers, error) {
	r := new(registers)
	general, size := unsafe.Pointer(&r.PtraceRegs), unsafe.Sizeof(r.PtraceRegs)
	if err := t.registerSet(unix.PTRACE_GETREGSET, ntPrstatus, general, size); err != nil {
		return nil, fmt.Errorf("PTRACE_GETREGSET NT_PRSTATUS: %w", err)
	}
	if err := t.registerSet(unix.PTRACE_GETREGSET, ntArmTLS, unsafe.Pointer(&r.tls), 8); err != nil {
		return nil, fmt.Errorf("PTRACE_GETREGSET NT_ARM_TLS: %w", err)
	}
	return r, nil
}

func (t *Process) setRegisters(r *registers) error {
	general, size := unsafe.Pointer(&r.PtraceRegs), unsafe.Sizeof(r.PtraceRegs)
	if err := t.registerSet(unix.PTRACE_SETREGSET, ntPrstatus, general, size); err != nil {
		return fmt.Errorf("PTRACE_SETREGSET NT_PRSTATUS: %w", err)
	}
	if err := t.registerSet(unix.PTRACE_SETREGSET, ntArmTLS, unsafe.Pointer(&r.tls), 8); err != nil {
		return fmt.Errorf("PTRACE_SETREGSET NT_ARM_TLS: %w", err)
	}
	return nil
}
