//go:build linux

package pool

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// wellKnownFD moves fd to the descriptor where runtimes look for it. Where that
// cannot be had (it is in use, or over a limit that cannot be raised), fd stays
// what it is: the program itself gets the whole path, and only programs patched
// offline that it starts do not find the pool.
func wellKnownFD(fd int) int {
	if _, err := unix.FcntlInt(poolFD, unix.F_GETFD, 0); err == nil {
		return fd
	}
	if unix.Dup3(fd, poolFD, unix.O_CLOEXEC) != nil {
		var lim unix.Rlimit
		if unix.Getrlimit(unix.RLIMIT_NOFILE, &lim) != nil || lim.Cur > poolFD {
			return fd
		}
		old := lim
		lim.Cur = poolFD + 1
		lim.Max = max(lim.Max, lim.Cur)
		// Not through the syscall package: it would take the new limit for what
		// programs started from here are to have.
		if rawSetrlimit(unix.RLIMIT_NOFILE, &lim) != nil {
			return fd
		}
		err := unix.Dup3(fd, poolFD, unix.O_CLOEXEC)
		// The descriptor stays valid under a lower limit.
		_ = rawSetrlimit(unix.RLIMIT_NOFILE, &old)
		if err != nil {
			return fd
		}
	}
	unix.Close(fd)
	return poolFD
}

func rawSetrlimit(resource int, lim *unix.Rlimit) error {
	_, _, errno := unix.RawSyscall6(unix.SYS_PRLIMIT64, 0, uintptr(resource), uintptr(unsafe.Pointer(lim)), 0, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}
