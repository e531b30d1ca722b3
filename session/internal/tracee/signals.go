//go:build linux

package tracee

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/session/internal/procfs"
)

// SetSignals gives the process the mask, and has it ignore the signals, that it
// would have inherited: bit n-1 stands for signal n. This process cannot ignore all of them itself: the Go
// runtime needs some.
func (t *Process) SetSignals(ignored, blocked uint64) error {
	now, err := procfs.IgnoredBy(t.pid)
	if err != nil {
		return &RefusedError{err}
	}
	if missing := ignored &^ now; missing != 0 {
		if err := t.ignore(missing); err != nil {
			return err
		}
	}
	mask := uintptr(unsafe.Pointer(&blocked))
	if _, _, errno := unix.RawSyscall6(unix.SYS_PTRACE, ptraceSetSigmask, uintptr(t.pid), 8, mask, 0, 0); errno != 0 {
		return &RefusedError{fmt.Errorf("PTRACE_SETSIGMASK: %w", errno)}
	}
	return nil
}

// ignore sets dispositions in the process, with a struct sigaction on its
// stack, below all that is in use.
func (t *Process) ignore(signals uint64) error {
	const (
		sigIgn     = 1
		actionSize = 32 // handler, flags, restorer, mask
		below      = 256
	)
	regs, err := t.registers()
	if err != nil {
		return &RefusedError{err}
	}
	action := make([]byte, actionSize)
	action[0] = sigIgn
	addr := regs.sp() - below
	if err := t.WriteAt(action, addr); err != nil {
		return err
	}
	for s := uint64(1); s <= 64; s++ {
		if signals&(1<<(s-1)) == 0 {
			continue
		}
		if _, err := t.syscall(unix.SYS_RT_SIGACTION, s, addr, 0, 8); err != nil {
			return &RefusedError{fmt.Errorf("ignore signal %d in the program: %w", s, err)}
		}
	}
	return t.WriteAt(make([]byte, actionSize), addr)
}
