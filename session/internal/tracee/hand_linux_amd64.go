package tracee

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"
)

// Handing a file to a stopped process.
//
// The process may not open what the recorder has open by its path in /proc: it is another user's, or in another
// namespace. So it makes a pair of sockets, of which the recorder takes one by the process's descriptor (pidfd_getfd), and
// sends the file.

// hand gives the process a descriptor of a file, and returns its number there. There is room for what that takes at an
// address in the process.
func (r *remote) hand(pid, fd int, room uint64) (uint64, error) {
	if _, err := r.call(unix.SYS_SOCKETPAIR, unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0, room); err != nil {
		return 0, fmt.Errorf("socketpair in the process: %w", err)
	}
	b := make([]byte, 8)
	if err := r.t.ReadAt(b, room); err != nil {
		return 0, err
	}
	theirs, ours := uint64(le.Uint32(b)), uint64(le.Uint32(b[4:]))
	err := send(pid, r.t.pid, int(ours), fd)
	var got uint64
	if err == nil {
		got, err = r.receive(theirs, room)
	}
	for _, s := range []uint64{theirs, ours} {
		if _, cerr := r.call(unix.SYS_CLOSE, s); err == nil {
			err = cerr
		}
	}
	return got, err
}

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
	return unix.Sendmsg(s, []byte{0}, unix.UnixRights(fd), nil, 0)
}

// receive has the process take a descriptor from a socket.
func (r *remote) receive(socket, room uint64) (uint64, error) {
	const (
		byteAt, vector, rights, header = 0, 16, 32, 64
		rightsLen                      = 24 // struct cmsghdr, and a descriptor
	)
	b := make([]byte, header+56)
	order := binary.LittleEndian
	order.PutUint64(b[vector:], room+byteAt)
	order.PutUint64(b[vector+8:], 1)
	order.PutUint64(b[header+16:], room+vector) // msg_iov
	order.PutUint64(b[header+24:], 1)
	order.PutUint64(b[header+32:], room+rights) // msg_control
	order.PutUint64(b[header+40:], rightsLen)
	if err := r.t.WriteAt(b, room); err != nil {
		return 0, err
	}
	if _, err := r.call(unix.SYS_RECVMSG, socket, room+header, unix.MSG_CMSG_CLOEXEC|unix.MSG_DONTWAIT); err != nil {
		return 0, fmt.Errorf("recvmsg in the process: %w", err)
	}
	if err := r.t.ReadAt(b[:rightsLen], room+rights); err != nil {
		return 0, err
	}
	if order.Uint32(b[12:]) != unix.SCM_RIGHTS {
		return 0, fmt.Errorf("recvmsg in the process: no descriptor")
	}
	return uint64(order.Uint32(b[16:])), nil
}
