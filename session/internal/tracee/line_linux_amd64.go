package tracee

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// A line to a stopped process: one of a pair of sockets that it makes.
//
// By the other one it is handed files (hand.go), and the thread that makes calls says that it comes from a routine. Then it
// waits there, until the recorder has stopped it, or is no more: nobody else has the recorder's end.

// connect makes a line, for which there is room at an address in the process. hangUp ends it, and closes all that the process
// has been given.
func (r *remote) connect(room uint64) error {
	if err := r.expect(room); err != nil {
		return err
	}
	theirs, ours, err := r.t.sockets(r.call, room)
	if err != nil {
		r.back.files, r.back.making = nil, false // there are none, whatever their numbers are
		return errors.Join(err, r.back.write())
	}
	r.back.making = false
	line, err := take(r.pid, r.t.pid, int(ours))
	if err == nil {
		err = r.closeFile(0)
	}
	if err != nil {
		_ = unix.Close(line) // perhaps -1
		return err
	}
	r.line, r.back.socket, r.back.room = line, int(theirs), room+handByte
	r.follow = r.filtered()
	return r.back.write()
}

// expect has the process close, on its way back, the sockets that it is about to make, and the file that it is handed then.
func (r *remote) expect(room uint64) error {
	const none = ^uint64(0)
	if err := r.t.WriteAt(le.AppendUint64(nil, none), room); err != nil {
		return err
	}
	if err := r.t.WriteAt(le.AppendUint64(nil, none), room+handRights+handFile); err != nil {
		return err
	}
	r.back.files, r.back.making = []uint64{room + 4, room, room + handRights + handFile}, true
	return r.back.write()
}

// connected makes a line for a routine, if that can be had: perhaps the process has no room for one more descriptor. Then the
// routine takes longer. All threads are stopped.
func (r *remote) connected(stack remoteStack) error {
	if r.filtered() || r.connect(stack.lo+remoteRoom) == nil {
		return nil
	}
	return r.hangUp()
}

// filtered tells whether the thread's system calls are filtered: if the recorder is killed, it would be ended by those that it
// makes on a line.
func (r *remote) filtered() bool { return seccomp(fmt.Sprintf("/proc/%d/task/%d", r.pid, r.t.pid)) }

// hangUp ends the line, and has the process close what it was given.
func (r *remote) hangUp() (err error) {
	for i := range r.back.files {
		err = errors.Join(err, r.closeFile(i))
	}
	r.forsake()
	if err != nil || len(r.back.files) == 0 {
		return err
	}
	r.back.files = nil // where these are is unmapped soon
	return r.back.write()
}

// forsake ends the line: a thread that waits for the recorder, or will, goes back by itself.
func (r *remote) forsake() {
	if r.line >= 0 {
		_ = unix.Close(r.line)
		r.line = -1
	}
}

// closeFile has the process close one of its files, unless it has.
func (r *remote) closeFile(i int) error {
	b := make([]byte, 4)
	if err := r.t.ReadAt(b, r.back.files[i]); err != nil || int32(le.Uint32(b)) < 0 {
		return err
	}
	return r.through(func(regs *registers) { regs.setPC(r.back.close(i)) })
}

// hand gives the process a descriptor of a file, by the line, and returns its number there.
func (r *remote) hand(fd int) (uint64, error) {
	if err := sendFile(r.line, fd); err != nil {
		return 0, err
	}
	return r.t.receive(r.call, uint64(r.back.socket), r.back.room-handByte)
}
