//go:build linux

package launch

import (
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Waiting for the program, which a thread of this process can be tracing: because its libraries are being loaded, or, at
// any time, because it executes another program. Whoever waits for a child by its number is told of stops that are the
// tracer's business, and the tracer of its end. So the end is waited for by a descriptor, and a tracer that has got the
// status hands it over (Reaped).

// Reaped hands over how a process has ended, if it is the program.
func (s *Started) Reaped(pid int, status syscall.WaitStatus) {
	if pid == s.PID && s.reaped != nil {
		s.reaped <- status
	}
}

// reapedLimit is longer than handing over takes, also where the tracer has to wait for a processor.
const reapedLimit = 10 * time.Second

// Wait waits for the program to end.
func (s *Started) Wait() syscall.WaitStatus {
	switch l := s.loading; {
	case s.Ended:
		return s.Status
	case l != nil:
		<-l.done
		if l.ended {
			return l.status
		}
	}
	s.ended()
	var ws syscall.WaitStatus
	for {
		_, err := syscall.Wait4(s.PID, &ws, 0, nil)
		if err == syscall.EINTR {
			continue
		}
		if err == syscall.ECHILD && s.reaped != nil {
			limit := reapedLimit
			if signal.Ignored(syscall.SIGCHLD) {
				limit = 0 // nobody gets the status
			}
			select {
			case ws = <-s.reaped:
			case <-time.After(limit):
			}
			return ws
		}
		if err != nil || ws.Exited() || ws.Signaled() {
			return ws
		}
	}
}

// ended returns when the program has ended.
func (s *Started) ended() {
	fd, err := unix.PidfdOpen(s.PID, 0)
	if err != nil {
		return // it has, and somebody has waited for it; or kernels before 5.3
	}
	defer unix.Close(fd)
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for {
		if n, err := unix.Poll(fds, -1); n > 0 || err != unix.EINTR {
			return
		}
	}
}
