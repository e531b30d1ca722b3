//go:build linux

package tracee

import (
	"fmt"
	"io"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/arch"
)

// A process is memory that an engine of package arch can read and write at addresses
// of its own: what is written goes to read-only memory, too.
var _ arch.Memory = (*Process)(nil)

// ReadAt copies len(b) bytes from address addr of the process. The error is ErrEnded if that has no memory any more.
func (t *Process) ReadAt(b []byte, addr uint64) error {
	if n, err := t.mem.ReadAt(b, int64(addr)); err != nil {
		if n == 0 && err == io.EOF { // what is not mapped is EIO
			err = ErrEnded
		}
		return &RefusedError{fmt.Errorf("read %d bytes at %#x of the program: %w", len(b), addr, err)}
	}
	return nil
}

// readQuickly is ReadAt for much: by its number the kernel copies a process's memory in half the time. It is another process's
// if this one has ended, whose memory by its descriptor then takes no writes.
func (t *Process) readQuickly(b []byte, addr uint64) error {
	const much = 4 << 10
	if len(b) >= much {
		local, remote := unix.Iovec{Base: &b[0], Len: uint64(len(b))}, unix.RemoteIovec{Base: uintptr(addr), Len: len(b)}
		if n, err := unix.ProcessVMReadv(t.pid, []unix.Iovec{local}, []unix.RemoteIovec{remote}, 0); err == nil && n == len(b) {
			return nil
		}
	}
	return t.ReadAt(b, addr)
}

// stopped is the memory of a process that is stopped, so that its number is its own.
type stopped struct{ *Process }

// ReadAt copies from address addr to b.
func (s stopped) ReadAt(b []byte, addr uint64) error { return s.readQuickly(b, addr) }

// WriteAt copies b to address addr of the process.
func (t *Process) WriteAt(b []byte, addr uint64) error {
	var err error
	if !t.poke {
		if _, err = t.mem.WriteAt(b, int64(addr)); err != nil {
			t.poke = true
		}
	}
	if t.poke {
		_, err = unix.PtracePokeData(t.pid, uintptr(addr), b)
	}
	if err != nil {
		return &RefusedError{fmt.Errorf("write %d bytes at %#x of the program: %w", len(b), addr, err)}
	}
	return nil
}
