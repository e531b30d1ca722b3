// Package mapped maps files into memory, so that large programs need not be copied. Paths come from users, and from
// traces, which anybody can have written: internal/safefile opens them, and no path makes a reader wait.
package mapped

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/internal/safefile"
)

// A File is a file in memory. The mapping is private: it stays as it is when the file is replaced. It does not when the
// file is written to or truncated: Data is read below [Guard].
type File struct {
	Path string
	Info fs.FileInfo
	Data []byte
}

// ErrEmpty is returned for files without contents, which cannot be mapped.
var ErrEmpty = errors.New("empty file")

// Open maps the regular file at path. Errors begin with the path.
func Open(path string) (*File, error) {
	f, err := safefile.Open(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, errors.Unwrap(err))
	}
	defer f.Close()
	m, err := Map(f, path)
	if err != nil {
		return nil, err
	}
	return m, nil
}

// MapFD is like Map for a descriptor, which stays the caller's.
func MapFD(fd int, name string) (*File, error) {
	dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	f := os.NewFile(uintptr(dup), name)
	defer f.Close()
	return Map(f, name)
}

// Map maps an open regular file, which can be closed then. Errors begin with name.
func Map(f *os.File, name string) (*File, error) {
	info, err := f.Stat()
	switch {
	case err != nil:
	case !info.Mode().IsRegular():
		err = safefile.ErrNotRegular
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
	m := &File{Path: name, Info: info, Data: b}
	register(m)
	return m, nil
}

// Changed returns an error if the file has been written to since it was mapped, for those who make a file of it: the
// rest of the last page of a file that was truncated reads as zeros, without a fault.
func (f *File) Changed() error {
	now, err := os.Stat(f.Path)
	if err != nil || !os.SameFile(now, f.Info) {
		return nil // replaced: the mapping is of the old one
	}
	if now.Size() != f.Info.Size() || !now.ModTime().Equal(f.Info.ModTime()) {
		return fmt.Errorf("%s: changed while it was read", f.Path)
	}
	return nil
}

// Close unmaps the file: Data must not be used any more. A nil File has nothing to close.
func (f *File) Close() error {
	if f == nil || f.Data == nil {
		return nil
	}
	unregister(f)
	b := f.Data
	f.Data = nil
	return unix.Munmap(b)
}
