package main

import (
	"errors"
	"fmt"
	"os/signal"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry"
	"github.com/fentry-dev/fentry/patch"
	"github.com/fentry-dev/fentry/session"
)

// recordError gives an error the exit status that says whether it was the
// program or fentry that failed.
func recordError(err error) error {
	code := exitRecord
	switch {
	case errors.Is(err, fentry.ErrEmulator):
		code = exitNotFound
		err = fmt.Errorf("%w; or name another emulator with --emulator", err)
	case errors.Is(err, session.ErrNotFound):
		code = exitNotFound
	case errors.Is(err, session.ErrNotExecutable):
		code = exitNotExecutable
	case errors.Is(err, session.ErrRecording):
		err = fmt.Errorf("%w; use -o", err)
	default:
		err = withTracer(err)
	}
	return &exitError{code, err}
}

// withTracer names the tracer that a program needs to an error that says so.
func withTracer(err error) error {
	switch {
	case errors.Is(err, patch.ErrSanitizer):
		return fmt.Errorf("%w; use -T function", err)
	case errors.Is(err, patch.ErrFunctionOnly):
		return fmt.Errorf("%w, or use -T function", err)
	}
	return err
}

// endLike ends fentry the way the program ended.
func endLike(ws syscall.WaitStatus) error {
	if !ws.Signaled() {
		if ws.ExitStatus() == 0 {
			return nil
		}
		return &exitError{Code: ws.ExitStatus()}
	}
	dieOf(ws.Signal())
	return &exitError{Code: 128 + int(ws.Signal())}
}

// dieOf kills this process by a signal, without a second core file. It returns
// only if that is impossible.
func dieOf(sig syscall.Signal) {
	runtime.LockOSThread()
	_ = unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{})
	// The runtime's own handler must go, which package signal does not do for
	// signals such as SIGSEGV.
	signal.Reset(sig)
	var action [4]uint64 // struct sigaction: SIG_DFL, no flags, empty mask
	unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(&action)), 0, 8, 0, 0)
	set := uint64(1) << (uint(sig) - 1)
	const sigUnblock = 1
	unix.RawSyscall6(unix.SYS_RT_SIGPROCMASK, sigUnblock, uintptr(unsafe.Pointer(&set)), 0, 8, 0, 0)
	_ = unix.Tgkill(unix.Getpid(), unix.Gettid(), sig)
}
