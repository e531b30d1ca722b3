//go:build linux

package tracee

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Handing a file to a stopped process.
//
// The process may not open what the recorder has open by its path in /proc: it is another user's, or in another
// namespace. So it makes a pair of sockets, of which the recorder takes one by the process's descriptor (pidfd_getfd), and
// sends the file.

// caller has a process make system calls.
type caller func(nr uint64, args ...uint64) (uint64, error)

// give gives a process that is stopped at its exec a descriptor of a file, and returns its number there.
func (t *Process) give(fd int) (got uint64, err error) {
	regs, err := t.registers()
	if err != nil {
		return 0, &RefusedError{err}
	}
	const below = 1024 // of the stack, more than any machine's red zone
	room := regs.sp() - below
	saved := make([]byte, handSize)
	if err := t.ReadAt(saved, room); err != nil {
		return 0, err
	}
	theirs, ours, err := t.sockets(t.syscall, room)
	if err == nil {
		if err = pass(t.pid, int(ours), fd); err == nil {
			got, err = t.receive(t.syscall, theirs, room)
		}
		for _, socket := range []uint64{theirs, ours} {
			_, cerr := t.syscall(unix.SYS_CLOSE, socket)
			err = errors.Join(err, cerr)
		}
	}
	if err != nil {
		return 0, &RefusedError{fmt.Errorf("a file cannot be given to it: %w", err)}
	}
	return got, t.WriteAt(saved, room)
}

// giveFile gives it one of the file at a path here.
func (t *Process) giveFile(path string) (uint64, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, &RefusedError{fmt.Errorf("open %s: %w", path, err)}
	}
	defer unix.Close(fd)
	return t.give(fd)
}

// The room that the calls take: what socketpair returns, a byte, a struct iovec, a control message with a descriptor, a
// struct msghdr.
const (
	handByte, handVector, handRights, handHeader = 8, 16, 32, 64
	handFile                                     = 16 // behind a struct cmsghdr
	handRightsLen                                = 24
	handHeaderLen                                = 56
	handSize                                     = handHeader + handHeaderLen
)

// sockets has the process make a pair of sockets.
func (t *Process) sockets(call caller, room uint64) (theirs, ours uint64, err error) {
	if _, err := call(unix.SYS_SOCKETPAIR, unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0, room); err != nil {
		if errors.Is(err, unix.EMFILE) {
			return 0, 0, errors.New("it has no two descriptors left (RLIMIT_NOFILE), which it needs for a moment to get a file")
		}
		return 0, 0, fmt.Errorf("socketpair in the process: %w", err)
	}
	b := make([]byte, 8)
	if err := t.ReadAt(b, room); err != nil {
		return 0, 0, err
	}
	return uint64(le.Uint32(b)), uint64(le.Uint32(b[4:])), nil
}

// take returns a socket that a process has made, of which a thread is stopped.
func take(pid, tid, socket int) (int, error) {
	const thread = unix.O_EXCL // PIDFD_THREAD, from Linux 6.9: the first thread can have ended
	p, err := unix.PidfdOpen(tid, thread)
	if err != nil {
		p, err = unix.PidfdOpen(pid, 0)
	}
	if err != nil {
		return -1, fmt.Errorf("pidfd_open: %w", err)
	}
	defer unix.Close(p)
	s, err := unix.PidfdGetfd(p, socket, 0)
	if err != nil {
		return -1, fmt.Errorf("pidfd_getfd: %w", err)
	}
	// Its number was in the process's memory, where other threads can write any.
	made, err := unix.GetsockoptUcred(s, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil || int(made.Pid) != pid {
		unix.Close(s)
		return -1, errors.Join(errors.New("the process has changed a descriptor"), err)
	}
	return s, nil
}

// pass sends a descriptor through a socket that a process has, which is stopped.
func pass(pid, socket, fd int) error {
	line, err := take(pid, pid, socket)
	if err != nil {
		return err
	}
	defer unix.Close(line)
	return sendFile(line, fd)
}

// sendFile sends a descriptor through a socket.
func sendFile(socket, fd int) error {
	if err := unix.Sendmsg(socket, []byte{0}, unix.UnixRights(fd), nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL); err != nil {
		return fmt.Errorf("a file for the process: %w", err)
	}
	return nil
}

// receive has the process take a descriptor from a socket.
func (t *Process) receive(call caller, socket, room uint64) (uint64, error) {
	b := make([]byte, 16+handHeaderLen)
	le.PutUint64(b, room+handByte)
	le.PutUint64(b[8:], 1)
	if err := t.WriteAt(b[:16], room+handVector); err != nil {
		return 0, err
	}
	header := b[16:]
	clear(header)
	le.PutUint64(header[16:], room+handVector) // msg_iov
	le.PutUint64(header[24:], 1)
	le.PutUint64(header[32:], room+handRights) // msg_control
	le.PutUint64(header[40:], handRightsLen)
	if err := t.WriteAt(header, room+handHeader); err != nil {
		return 0, err
	}
	if _, err := call(unix.SYS_RECVMSG, socket, room+handHeader, unix.MSG_CMSG_CLOEXEC|unix.MSG_DONTWAIT); err != nil {
		return 0, fmt.Errorf("recvmsg in the process: %w", err)
	}
	if err := t.ReadAt(b[:handRightsLen], room+handRights); err != nil {
		return 0, err
	}
	if le.Uint32(b[12:]) != unix.SCM_RIGHTS {
		return 0, fmt.Errorf("recvmsg in the process: no descriptor")
	}
	return uint64(le.Uint32(b[handFile:])), nil
}
