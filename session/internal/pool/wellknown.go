//go:build linux

package pool

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Where runtimes look for the pool among their ancestors' descriptors (stub/src/session.c). The low one is the last that a
// process has room for from its beginning (NR_OPEN_DEFAULT, include/linux/fdtable.h). For a higher one its table has to
// grow, and the kernel waits until no thread looks at the old one any more: 10 to 25 ms in a process of several threads.
const (
	lowFD  = 63
	highFD = 1000
)

// wellKnown makes the pool's file a descriptor where runtimes look for it, too. Where that
// cannot be had (it is in use, or over a limit that cannot be raised), there is none:
// the program itself gets the whole path, and only programs patched
// offline that it starts do not find the pool.
//
// Nobody else waits for the table of descriptors to grow, unless a limit has to be raised, which a program that is started
// meanwhile would inherit. When the returned channel is closed, or if it is nil, the descriptor is there, or none.
func (p *Pool) wellKnown() <-chan struct{} {
	if p.become(lowFD) {
		return nil
	}
	var lim unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &lim) == nil && lim.Cur > highFD {
		done := make(chan struct{})
		go func() {
			defer close(done)
			p.become(highFD)
		}()
		return done
	}
	old := lim
	lim.Cur = highFD + 1
	lim.Max = max(lim.Max, lim.Cur)
	// Not through the syscall package: it would take the new limit for what
	// programs started from here are to have.
	if rawSetrlimit(unix.RLIMIT_NOFILE, &lim) == nil {
		p.become(highFD)
		// The descriptor stays valid under a lower limit.
		_ = rawSetrlimit(unix.RLIMIT_NOFILE, &old)
	}
	return nil
}

// become makes the pool's file a descriptor, too, if that is free.
func (p *Pool) become(fd int) bool {
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil {
		return false
	}
	got, err := unix.FcntlInt(uintptr(p.FD), unix.F_DUPFD_CLOEXEC, fd)
	if err != nil {
		return false
	}
	if got != fd { // somebody has opened it meanwhile
		unix.Close(got)
		return false
	}
	p.known = fd
	return true
}

// WaitKnown waits until programs find the pool without being told where it is, if they can.
func (p *Pool) WaitKnown() {
	if p.settled != nil {
		<-p.settled
	}
}

// manyCPUs are so many processors that descriptors of events on them all do not fit into a process's first table.
const manyCPUs = 24

// Warm has the kernel begin with what a session on a machine of many processors needs.
func Warm() {
	if runtime.NumCPU() < manyCPUs {
		return
	}
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		return
	}
	if above, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, highFD+1); err == nil {
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
