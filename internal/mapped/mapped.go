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
