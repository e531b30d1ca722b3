package tracee

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// The registers of an x86-64 process in its exec stop.
//
// A process of this machine's other instruction set, i386, has another code
// segment; plans are never made for it, but what runs can differ from what was
// planned.
type registers struct{ unix.PtraceRegs }

func (r *registers) pc() uint64      { return r.Rip }
func (r *registers) sp() uint64      { return r.Rsp }
func (r *registers) setPC(pc uint64) { r.Rip = pc }

// setThreadBlock points the first thread at its control block: thunks load it
// from the gs base, and constructors run before the runtime's own start.
func (r *registers) setThreadBlock(addr uint64) { r.Gs_base = addr }

// noRestart: no system call is under way that could be restarted.
func (r *registers) noRestart() { r.Orig_rax = ^uint64(0) }

// Results of system calls that are to be made again: ERESTARTSYS to ERESTART_RESTARTBLOCK (include/linux/errno.h).
const firstRestart, lastRestart = 512, 516

// again tells whether a thread is in a system call that the stop has interrupted, and that the kernel makes again then. It can
// wait there for long. One that has come to the end of its call just goes on.
func (r *registers) again() bool {
	v := -int64(r.Rax)
	return int64(r.Orig_rax) >= 0 && firstRestart <= v && v <= lastRestart
}

// keepThread takes over what makes the thread's identity.
func (r *registers) keepThread(from *registers) { r.Fs_base, r.Gs_base = from.Fs_base, from.Gs_base }

// breakpoint is int3; the process stops behind it.
var breakpoint = []byte{0xcc}

func (r *registers) stoppedAt(addr uint64) bool { return r.Rip == addr+uint64(len(breakpoint)) }

// openCalls are the system calls that open a file by its path, and which of their arguments that is.
var openCalls = map[uint64]int{unix.SYS_OPEN: 0, unix.SYS_OPENAT: 1}

var syscallInsn = []byte{0x0f, 0x05}

func (r *registers) setCall(nr uint64, a [6]uint64) {
	r.Rax, r.Rdi, r.Rsi, r.Rdx, r.R10, r.R8, r.R9 = nr, a[0], a[1], a[2], a[3], a[4], a[5]
}

func (r *registers) result() uint64 { return r.Rax }

const userCS64 = 0x33 // __USER_CS of arch/x86/include/asm/segment.h

func (t *Process) registers() (*registers, error) {
	r := new(registers)
	if err := unix.PtraceGetRegs(t.pid, &r.PtraceRegs); err != nil {
		return nil, fmt.Errorf("PTRACE_GETREGS: %w", err)
	}
	if r.Cs != userCS64 {
		return nil, errors.New("not a 64-bit process")
	}
	return r, nil
}

func (t *Process) setRegisters(r *registers) error {
	if err := unix.PtraceSetRegs(t.pid, &r.PtraceRegs); err != nil {
		return fmt.Errorf("PTRACE_SETREGS: %w", err)
	}
	return nil
}
