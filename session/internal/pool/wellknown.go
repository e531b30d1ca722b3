//go:build linux

package pool

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// wellKnown makes the pool's file a descriptor where runtimes look for it, too. Where that
// cannot be had (it is in use, or over a limit that cannot be raised), there is none:
// the program itself gets the whole path, and only programs patched
// offline that it starts do not find the pool.
//
// The table of descriptors has to grow for it. The kernel then waits until no thread looks at the old one any more, 10 to
// 25 ms in a process of several threads, for which nobody else waits unless a limit has to be raised, which a program that is started
// meanwhile would inherit. When the returned channel is closed, the descriptor is there, or none.
func (p *Pool) wellKnown() <-chan struct{} {
	done := make(chan struct{})
	if _, err := unix.FcntlInt(poolFD, unix.F_GETFD, 0); err == nil {
		close(done)
		return done
	}
	var lim unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &lim) == nil && lim.Cur > poolFD {
		go func() {
			defer close(done)
			p.known = unix.Dup3(p.FD, poolFD, unix.O_CLOEXEC) == nil
		}()
		return done
	}
	defer close(done)
	old := lim
	lim.Cur = poolFD + 1
	lim.Max = max(lim.Max, lim.Cur)
	// Not through the syscall package: it would take the new limit for what
	// programs started from here are to have.
	if rawSetrlimit(unix.RLIMIT_NOFILE, &lim) == nil {
		p.known = unix.Dup3(p.FD, poolFD, unix.O_CLOEXEC) == nil
		// The descriptor stays valid under a lower limit.
		_ = rawSetrlimit(unix.RLIMIT_NOFILE, &old)
	}
	return done
}

// WaitKnown waits until programs find the pool without being told where it is, if they can.
func (p *Pool) WaitKnown() {
	if p.settled != nil {
		<-p.settled
	}
}

// Warm has the kernel begin with what a new pool needs.
func Warm() {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		return
	}
	if above, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, poolFD+1); err == nil {
		unix.Close(above)
	}
	unix.Close(fd)
}

func rawSetrlimit(resource int, lim *unix.Rlimit) error {
	_, _, errno := unix.RawSyscall6(unix.SYS_PRLIMIT64, 0, uintptr(resource), uintptr(unsafe.Pointer(lim)), 0, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}
