//go:build linux

package session

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/session/internal/procfs"
)

// Programs that cannot find the recorder in /proc, because they are in another PID namespace or another user's, ask for
// the pool at a socket in the trace directory (stub/src/recorder.c says why there). The kernel tells who asks. Whoever
// has reached the socket is this user or root; it gets the pool if it is in a PID namespace below this one, where only a
// program whose own trace would be here finds this directory, or if the recorder is its ancestor. Any other program that
// starts in the directory is not what the user has asked to record.
//
// Programs in a namespace name themselves by the ids they see. The recorder learns here which processes they are.

// A door is where they ask.
type door struct {
	l      *net.UnixListener
	serves sync.WaitGroup
}

// openDoor begins to answer; where there can be no socket, programs say that they are not traced.
func (s *session) openDoor() {
	if s.pool == nil {
		return
	}
	l, err := s.dir.Listen()
	if err != nil {
		return
	}
	s.door.l = l
	s.door.serves.Go(func() {
		for {
			c, err := l.AcceptUnix()
			if err != nil {
				return
			}
			s.admit(c)
			c.Close()
		}
	})
}

// closeDoor ends that.
func (s *session) closeDoor() {
	if s.door.l == nil {
		return
	}
	s.door.l.Close()
	s.door.serves.Wait()
	s.dir.Unlisten()
	s.door.l = nil
}

// admit hands the pool to a process that may have it.
func (s *session) admit(c *net.UnixConn) {
	pid, ok := peer(c)
	if !ok {
		return
	}
	inner, below := procfs.InnerPID(pid)
	if !below && !procfs.Descends(pid, os.Getpid()) {
		return
	}
	s.live.Join(inner, pid)
	_, _, _ = c.WriteMsgUnix([]byte{0}, unix.UnixRights(s.pool.FD), nil)
}

// peer returns the process at the other end of a connection. ok is false if it is another user's, or in no PID
// namespace that is seen from here.
func peer(c *net.UnixConn) (pid int, ok bool) {
	cred, err := trusted(c)
	if err != nil || cred.Pid <= 0 {
		return 0, false
	}
	return int(cred.Pid), true
}

// trusted returns what the kernel says of the process at the other end of a connection, or an error if that is not this
// user's or root's.
func trusted(c *net.UnixConn) (cred *unix.Ucred, err error) {
	if cred, err = credentials(c); err != nil {
		return nil, err
	}
	if uid := int(cred.Uid); uid != 0 && uid != os.Geteuid() {
		return nil, fmt.Errorf("process %d is user %d's", cred.Pid, uid)
	}
	return cred, nil
}

// credentials are those of who is at the other end of a socket, as the kernel says.
func credentials(c *net.UnixConn) (cred *unix.Ucred, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	var cerr error
	err = raw.Control(func(fd uintptr) {
		cred, cerr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	return cred, errors.Join(err, cerr)
}
