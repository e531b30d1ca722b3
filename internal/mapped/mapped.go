// Package mapped maps files into memory, so that large programs need not be copied.
//
// Paths come from users, and from traces, which anybody can have written. A path can lead to a pipe without a writer,
// where open waits for ever, or to a device, where open alone does something (a watchdog starts, a tape rewinds). So a
// path is first looked up without being opened (O_PATH), and only what is a regular file then is opened, through /proc:
// there is no moment at which the path could be made to lead elsewhere. Refusing symbolic links (O_NOFOLLOW) would
// refuse many programs, /usr/bin/cc among them, and would not help against directories above.
package mapped

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// A File is a file in memory. The mapping is private: it stays as it is when the file is replaced.
type File struct {
	Path string
	Info fs.FileInfo
	Data []byte
}

// ErrEmpty is returned for files without contents, which cannot be mapped.
var ErrEmpty = errors.New("empty file")

// Open maps the regular file at path. Errors begin with the path.
func Open(path string) (*File, error) {
	f, err := open(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	defer f.Close()
	m, err := Map(f, path)
	if err != nil {
		return nil, err
	}
	return m, nil
}

// open opens a regular file, and nothing else.
func open(path string) (*os.File, error) {
	fd, err := retry(func() (int, error) { return unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0) })
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, errors.New("not a regular file")
	}
	const flags = unix.O_RDONLY | unix.O_CLOEXEC | unix.O_NONBLOCK | unix.O_NOCTTY
	again := "/proc/self/fd/" + strconv.Itoa(fd)
	r, err := retry(func() (int, error) { return unix.Open(again, flags, 0) })
	if err == unix.ENOENT {
		// Without /proc, as when packages are built in a bare directory.
		r, err = retry(func() (int, error) { return unix.Open(path, flags, 0) })
	}
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(r), path), nil
}

// retry calls a system call again that a signal has interrupted: Go's own preempt goroutines.
func retry(call func() (int, error)) (int, error) {
	for {
		if n, err := call(); err != unix.EINTR {
			return n, err
		}
	}
}

// Map maps an open regular file, which can be closed then. Errors begin with name.
func Map(f *os.File, name string) (*File, error) {
	info, err := f.Stat()
	switch {
	case err != nil:
	case !info.Mode().IsRegular():
		err = errors.New("not a regular file")
	case info.Size() == 0:
		err = ErrEmpty
	case info.Size() != int64(int(info.Size())):
		err = unix.EFBIG
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	b, err := unix.Mmap(int(f.Fd()), 0, int(info.Size()), unix.PROT_READ, unix.MAP_PRIVATE)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return &File{Path: name, Info: info, Data: b}, nil
}

// Close unmaps the file: Data must not be used any more. A nil File has nothing to close.
func (f *File) Close() error {
	if f == nil || f.Data == nil {
		return nil
	}
	b := f.Data
	f.Data = nil
	return unix.Munmap(b)
}
