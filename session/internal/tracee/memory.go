//go:build linux

package tracee

import (
	"fmt"
	"io"
	"runtime"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/arch"
)

// A process is memory that an engine of package arch can read and write at addresses
// of its own: what is written goes to read-only memory, too.
var _ arch.Memory = (*Process)(nil)

// ReadAt copies len(b) bytes from address addr of the process. The error is ErrEnded if that has no memory any more.
func (t *Process) ReadAt(b []byte, addr uint64) error {
	if n, err := t.transfer(unix.SYS_PREAD64, b, addr); n < len(b) {
		if n == 0 && err == nil { // what is not mapped is EIO
			err = ErrEnded
		} else if err == nil {
			err = io.ErrUnexpectedEOF
		}
		return &RefusedError{fmt.Errorf("read %d bytes at %#x of the program: %w", len(b), addr, err)}
	}
	return nil
}

// transferStep is how many bytes are read or written by one call.
const transferStep = 128 << 10

// The kernel copies much memory of another process a page at a time, and some machines take four times as long to copy to an address
// that is not a multiple of 64. What is written comes from the beginning of a page of the kernel's, so it is to begin where a page
// does; what is read comes to the reader's memory.

// writeStep is how many of n bytes are written to an address by one call.
func writeStep(n int, addr uint64) int {
	if head := int(-addr % PageSize); head != 0 && n >= int(PageSize) {
		return head
	}
	return n
}

// likeAddress is room for n bytes that lies in its page as address addr does. It is in all, which is the room given if that has
// enough.
func likeAddress(room []byte, n int, addr uint64) (all, b []byte) {
	if most := n + int(PageSize); len(room) < most {
		room = make([]byte, most)
	}
	skip := (addr - uint64(uintptr(unsafe.Pointer(&room[0])))) % PageSize
	return room, room[skip:][:n]
}

// transfer has the kernel read or write by the memory's descriptor, and returns how many bytes. The scheduler of Go does not know
// of the calls: it would give the place of this goroutine to another one, and processes are stopped that would wait until this
// one has a place again, for up to 10 ms.
func (t *Process) transfer(call uintptr, b []byte, addr uint64) (done int, err error) {
	defer runtime.KeepAlive(t.mem)
	for fd := t.mem.Fd(); done < len(b); {
		part := b[done:min(len(b), done+transferStep)]
		if call == unix.SYS_PWRITE64 {
			part = part[:writeStep(len(part), addr+uint64(done))]
		}
		n, _, errno := unix.RawSyscall6(call, fd, uintptr(unsafe.Pointer(&part[0])), uintptr(len(part)), uintptr(addr)+uintptr(done), 0, 0)
		switch {
		case errno == unix.EINTR:
		case errno != 0:
			return done, errno
		case n == 0:
			return done, nil
		default:
			done += int(n)
		}
	}
	return done, nil
}

// readQuickly is ReadAt for much: by its number the kernel copies a process's memory in half the time. It is another process's
// if this one has ended, whose memory by its descriptor then takes no writes.
func (t *Process) readQuickly(b []byte, addr uint64) error {
	const much = 4 << 10
	if len(b) >= much {
		local, remote := unix.Iovec{Base: &b[0], Len: uint64(len(b))}, unix.RemoteIovec{Base: uintptr(addr), Len: len(b)}
		n, _, errno := unix.RawSyscall6(unix.SYS_PROCESS_VM_READV, uintptr(t.pid), uintptr(unsafe.Pointer(&local)), 1,
			uintptr(unsafe.Pointer(&remote)), 1, 0)
		if errno == 0 && int(n) == len(b) {
			return nil
		}
	}
	return t.ReadAt(b, addr)
}

// stopped is the memory of a process that is stopped, so that its number is its own.
type stopped struct{ *Process }

// ReadAt copies from address addr to b.
func (s stopped) ReadAt(b []byte, addr uint64) error { return s.readQuickly(b, addr) }

// direct is stopped for several threads at a time.
type direct struct{ stopped }

// WriteAt copies b to address addr, if the process's memory can be written as a file.
func (d direct) WriteAt(b []byte, addr uint64) error { return d.writeFile(b, addr) }

func (t *Process) writeFile(b []byte, addr uint64) error {
	n, err := t.transfer(unix.SYS_PWRITE64, b, addr)
	if err == nil && n < len(b) {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// WriteAt copies b to address addr of the process.
func (t *Process) WriteAt(b []byte, addr uint64) error {
	var err error
	if !t.poke {
		err = t.writeFile(b, addr)
		t.poke = err != nil
	}
	if t.poke {
		_, err = unix.PtracePokeData(t.pid, uintptr(addr), b)
	}
	if err != nil {
		return &RefusedError{fmt.Errorf("write %d bytes at %#x of the program: %w", len(b), addr, err)}
	}
	return nil
}

// openFile opens a file of /proc to be read, by a call that is as short as those of transfer.
func openFile(path string) (fd uintptr, err error) {
	name, err := unix.BytePtrFromString(path)
	if err != nil {
		return 0, err
	}
	at := unix.AT_FDCWD
	fd, _, errno := unix.RawSyscall6(unix.SYS_OPENAT, uintptr(at), uintptr(unsafe.Pointer(name)), unix.O_RDONLY|unix.O_CLOEXEC, 0, 0, 0)
	if errno != 0 {
		return 0, fmt.Errorf("open %s: %w", path, errno)
	}
	return fd, nil
}

func closeFile(fd uintptr) { _, _, _ = unix.RawSyscall(unix.SYS_CLOSE, fd, 0, 0) }

// readFile reads a small file of /proc, where a process is stopped.
func readFile(path string) ([]byte, error) {
	fd, err := openFile(path)
	if err != nil {
		return nil, err
	}
	defer closeFile(fd)
	const first, most = 1 << 10, mostMaps
	b := make([]byte, 0, first)
	for len(b) < most {
		b = slices.Grow(b, first)
		room := b[len(b):cap(b)]
		n, _, errno := unix.RawSyscall(unix.SYS_READ, fd, uintptr(unsafe.Pointer(&room[0])), uintptr(len(room)))
		switch {
		case errno == unix.EINTR:
		case errno != 0:
			return b, fmt.Errorf("read %s: %w", path, errno)
		case n == 0:
			return b, nil
		default:
			b = b[:len(b)+int(n)]
		}
	}
	return b, nil
}
