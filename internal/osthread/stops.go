//go:build linux

package osthread

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// QuietStops has the kernel send this process no SIGCHLD when a child, or a thread that it traces, stops or goes on; those that
// end still send one. Who traces a thousand threads would otherwise be interrupted by Go's handler, which does nothing, while each
// of them stops, and it or another of its threads is woken for that.
//
// It is for the whole process, so it is for the program to decide. A signal that is ignored stays so, and one for which
// signal.Notify is called for the first time has its old way again.
func QuietStops() error {
	const noChildStop, sizeOfSet = 1, 8 // SA_NOCLDSTOP
	var act struct{ handler, flags, restorer, mask uintptr }
	if _, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(unix.SIGCHLD), 0, uintptr(unsafe.Pointer(&act)), sizeOfSet, 0, 0); errno != 0 {
		return errno
	}
	if act.handler <= 1 { // SIG_DFL, SIG_IGN
		return nil
	}
	act.flags |= noChildStop
	if _, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(unix.SIGCHLD), uintptr(unsafe.Pointer(&act)), 0, sizeOfSet, 0, 0); errno != 0 {
		return errno
	}
	return nil
}
