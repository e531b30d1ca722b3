package tracee

import (
	"errors"
	"io"
	"os/exec"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// What a thread is made to do is done once, also if one of the calls does not end: what that has done is not known. The
// process goes on where it was.
func TestStuck(t *testing.T) {
	limit := remoteLimit
	defer func() { remoteLimit = limit }()
	cmd, in, out := started(t, "cat")
	says := func(s string) {
		t.Helper()
		b := make([]byte, len(s))
		if _, err := io.WriteString(in, s); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(out, b); err != nil || string(b) != s {
			t.Fatalf("%q, %v; want %q", b, err, s)
		}
	}
	says("before\n")
	ts, ms := opened(t, cmd)
	var stack remoteStack
	times := 0
	err := ts.within(true, func() error {
		times++
		return ts.calling(ms, func(r *remote) (err error) {
			if stack, err = r.mapStack(); err != nil {
				return err
			}
			long := unix.Timespec{Sec: 1000}
			b := unsafe.Slice((*byte)(unsafe.Pointer(&long)), unsafe.Sizeof(long))
			if err := r.t.WriteAt(b, stack.lo); err != nil {
				return err
			}
			remoteLimit = 20 * time.Millisecond
			_, err = r.call(unix.SYS_NANOSLEEP, stack.lo, 0)
			remoteLimit = limit
			return errors.Join(err, r.unmapStack(stack)) // it can be had again
		})
	})
	if errors.Is(err, unix.EPERM) {
		t.Skip(err)
	}
	if times != 1 || !errors.Is(err, errStuck) {
		t.Errorf("done %d times: %v", times, err)
	}
	says("after\n")
	if after, err := ts.maps(); err != nil || len(after) != len(ms) {
		t.Errorf("%v; %d mappings, %d before", err, len(after), len(ms))
	}
}

// startedCat starts cat, and returns when it runs: until then the kernel may still be executing it.
func startedCat(t *testing.T) *exec.Cmd {
	t.Helper()
	cmd, in, out := started(t, "cat")
	b := []byte{'x'}
	if _, err := in.Write(b); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(out, b); err != nil {
		t.Fatal(err)
	}
	return cmd
}

// A routine that does nothing but system calls is not followed for ever.
func TestRunAround(t *testing.T) {
	limit := remoteLimit
	defer func() { remoteLimit = limit }()
	ts, ms := opened(t, startedCat(t))
	err := ts.within(true, func() error {
		return ts.calling(ms, func(r *remote) error {
			stack, err := r.mapStack()
			if err != nil {
				return err
			}
			code, err := r.mmap(0, PageSize, unix.PROT_READ|unix.PROT_EXEC)
			if err != nil {
				return err
			}
			around := []byte{
				0xb8, unix.SYS_GETPID, 0, 0, 0, // mov $39, %eax
				0x0f, 0x05, // syscall
				0xeb, 0xf7, // jmp to the beginning
			}
			if err := r.t.WriteAt(around, code); err != nil {
				return err
			}
			remoteLimit = 20 * time.Millisecond
			_, err = r.run(stack, code, code, stack.hi-PageSize)
			return err
		})
	})
	if errors.Is(err, unix.EPERM) {
		t.Skip(err)
	}
	if !errors.Is(err, errNoAnswer) {
		t.Error(err)
	}
}
