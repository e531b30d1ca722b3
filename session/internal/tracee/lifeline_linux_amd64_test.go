package tracee

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"
)

// Where no sockets can be made, the kernel has written their numbers all the same. They are not closed on the way back: by then
// they can be those of another thread's files.
func TestNoSockets(t *testing.T) {
	for name, protocol := range map[string]uint64{"made": 0, "not made": 77} {
		t.Run(name, func(t *testing.T) {
			ts, ms := opened(t, startedCat(t))
			err := ts.within(true, func() error {
				return ts.calling(ms, func(r *remote) error { return closedBehind(t, r, protocol) })
			})
			if errors.Is(err, unix.EPERM) {
				t.Skip(err)
			}
			if err != nil {
				t.Fatal(err)
			}
		})
	}
}

// closedBehind looks at what a thread closes by itself behind a call for sockets.
func closedBehind(t *testing.T, r *remote, protocol uint64) error {
	stack, err := r.mapStack()
	if err != nil {
		return err
	}
	if err := r.expect(stack.lo + remoteRoom); err != nil {
		return err
	}
	_, made := r.call(unix.SYS_SOCKETPAIR, unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, protocol, stack.lo+remoteRoom)
	if (made == nil) != (protocol == 0) {
		t.Errorf("socketpair: %v", made)
	}
	b := make([]byte, 8)
	err = r.t.ReadAt(b, stack.lo+remoteRoom)
	number := le.Uint64(b)
	if err != nil {
		return err
	}
	if int32(number) < 0 || int32(number>>32) < 0 {
		t.Errorf("the kernel has written %#x", number)
	}
	var closed []int32
	for len(closed) < len(r.back.files) {
		for range 2 { // its beginning, its end
			if err := r.next(); err != nil {
				return err
			}
			now, err := r.t.registers()
			if err != nil {
				return err
			}
			if int64(now.Rax) == -int64(unix.ENOSYS) && now.Orig_rax == unix.SYS_CLOSE {
				closed = append(closed, int32(now.Rdi))
			}
		}
	}
	want := []int32{int32(number >> 32), int32(number), -1}
	if made != nil {
		want = []int32{-1, -1, -1}
	}
	for i := range want {
		if closed[i] != want[i] {
			t.Errorf("closed %d; want %d", closed, want)
			break
		}
	}
	r.back.files, r.back.making = nil, false
	return errors.Join(r.back.write(), r.unmapStack(stack))
}
