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

// hand gives the process a descriptor of a file, and returns its number there. There is room for what that takes at an
// address in the process. closeFiles closes all that it has been given then.
func (r *remote) hand(pid, fd int, room uint64) (uint64, error) {
	const none = ^uint64(0)
	if err := r.t.WriteAt(le.AppendUint64(nil, none), room); err != nil {
		return 0, err
	}
	if err := r.t.WriteAt(le.AppendUint64(nil, none), room+handRights+handFile); err != nil {
		return 0, err
	}
	r.back.files = []uint64{room, room + 4, room + handRights + handFile}
	if err := r.back.write(); err != nil {
		return 0, err
	}
	if _, err := r.call(unix.SYS_SOCKETPAIR, unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0, room); err != nil {
		return 0, fmt.Errorf("socketpair in the process: %w", err)
	}
	b := make([]byte, 8)
	if err := r.t.ReadAt(b, room); err != nil {
		return 0, err
	}
	theirs, ours := uint64(le.Uint32(b)), uint64(le.Uint32(b[4:]))
	if err := send(pid, r.t.pid, int(ours), fd); err != nil {
		return 0, err
	}
	return r.receive(theirs, room)
}

// The room of hand: what socketpair returns, a byte, a struct iovec, a control message with a descriptor, a struct msghdr.
const (
	handByte, handVector, handRights, handHeader = 8, 16, 32, 64
	handFile                                     = 16 // behind a struct cmsghdr
	handRightsLen                                = 24
)

// send sends a descriptor through a socket that a process has, of which a thread is stopped.
func send(pid, tid, socket, fd int) error {
	const thread = unix.O_EXCL // PIDFD_THREAD, from Linux 6.9: the first thread can have ended
	p, err := unix.PidfdOpen(tid, thread)
	if err != nil {
		p, err = unix.PidfdOpen(pid, 0)
	}
	if err != nil {
		return fmt.Errorf("pidfd_open: %w", err)
	}
	defer unix.Close(p)
	s, err := unix.PidfdGetfd(p, socket, 0)
	if err != nil {
		return fmt.Errorf("pidfd_getfd: %w", err)
	}
	defer unix.Close(s)
	// Its number was in the process's memory, where other threads can write any.
	made, err := unix.GetsockoptUcred(s, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil || int(made.Pid) != pid {
		return errors.Join(errors.New("the process has changed a descriptor"), err)
	}
	return unix.Sendmsg(s, []byte{0}, unix.UnixRights(fd), nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
}

// receive has the process take a descriptor from a socket.
func (r *remote) receive(socket, room uint64) (uint64, error) {
	b := make([]byte, 16+56)
	le.PutUint64(b, room+handByte)
	le.PutUint64(b[8:], 1)
	if err := r.t.WriteAt(b[:16], room+handVector); err != nil {
		return 0, err
	}
	header := b[16:]
	clear(header)
	le.PutUint64(header[16:], room+handVector) // msg_iov
	le.PutUint64(header[24:], 1)
	le.PutUint64(header[32:], room+handRights) // msg_control
	le.PutUint64(header[40:], handRightsLen)
	if err := r.t.WriteAt(header, room+handHeader); err != nil {
		return 0, err
	}
	if _, err := r.call(unix.SYS_RECVMSG, socket, room+handHeader, unix.MSG_CMSG_CLOEXEC|unix.MSG_DONTWAIT); err != nil {
		return 0, fmt.Errorf("recvmsg in the process: %w", err)
	}
	if err := r.t.ReadAt(b[:handRightsLen], room+handRights); err != nil {
		return 0, err
	}
	if le.Uint32(b[12:]) != unix.SCM_RIGHTS {
		return 0, fmt.Errorf("recvmsg in the process: no descriptor")
	}
	return uint64(le.Uint32(b[handFile:])), nil
}
