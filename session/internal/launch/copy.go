//go:build linux

package launch

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/internal/memfile"
)

// patchedCopy is a patched copy of a program, ready for execve.
//
// It has no name that could be left behind: it is an unnamed file (unnamedFile). execve gets a link of the program's name
// to it (link), because that becomes the name of the process; the link is removed
// as soon as execve is done.
type patchedCopy struct {
	f     *os.File
	where string // what kind of file it is, for the user
	exec  string // path for execve
	dir   string // of the link
}

// newCopy has write fill in the copy.
func newCopy(path string, write func(*os.File) error) (c *patchedCopy, err error) {
	c = new(patchedCopy)
	defer func() {
		if err != nil {
			c.close()
			c = nil
		}
	}()
	if c.f, c.where, err = unnamedFile(path); err != nil {
		return c, err
	}
	if err := write(c.f); err != nil {
		return c, fmt.Errorf("%s: patched copy: %w", path, err)
	}
	if err := c.f.Chmod(0o700); err != nil {
		return c, fmt.Errorf("%s: patched copy: %w", path, err)
	}
	// A file that is open for writing cannot be executed.
	r, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", c.f.Fd()))
	if err != nil {
		return c, fmt.Errorf("%s: patched copy: %w", path, err)
	}
	c.f.Close()
	c.f = r
	return c, nil
}

// link makes a path for execve that ends in the program's name.
func (c *patchedCopy) link(name string) {
	target := fmt.Sprintf("/proc/self/fd/%d", c.f.Fd())
	c.exec = target
	if dir, err := os.MkdirTemp("", "fentry-"); err == nil {
		c.dir = dir
		link := filepath.Join(dir, name)
		if os.Symlink(target, link) == nil {
			c.exec = link
		}
	}
}

// named returns a copy of the copy that has a name: beside the program at path, so
// that $ORIGIN in library paths stays right, or where that cannot be written, in a
// directory of its own.
func (c *patchedCopy) named(path string) (*patchedCopy, error) {
	n := new(patchedCopy)
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".fentry-*")
	if err != nil {
		if n.dir, err = os.MkdirTemp("", "fentry-"); err == nil {
			f, err = os.Create(filepath.Join(n.dir, filepath.Base(path)))
		}
	}
	if f != nil {
		n.exec = f.Name()
		_, err = io.Copy(f, io.NewSectionReader(c.f, 0, math.MaxInt64))
		err = errors.Join(err, f.Chmod(0o700), f.Close())
	}
	if err != nil {
		n.remove()
		return nil, fmt.Errorf("%s: patched copy: %w", path, err)
	}
	return n, nil
}

// unnamedFile makes a file without a name that can be executed: beside path, so that $ORIGIN stays right; in memory;
// or among temporary files. The first two can be impossible, because a directory is read-only or its file system is
// mounted noexec, and because vm.memfd_noexec forbids memory that can be executed. where says which it is.
func unnamedFile(path string) (f *os.File, where string, err error) {
	if f, err = nameless(filepath.Dir(path)); err == nil {
		return f, "a file without a name in " + filepath.Dir(path), nil
	}
	f, errMemory := memfile.New(filepath.Base(path))
	if errMemory == nil {
		return f, "memory, because " + err.Error(), nil
	}
	f, errTemp := nameless(os.TempDir())
	if errTemp == nil {
		return f, fmt.Sprintf("a file without a name in %s, because %v; %v", os.TempDir(), err, errMemory), nil
	}
	return nil, "", fmt.Errorf("%s: patched copy: there is no place for one: %w; %w; %w", path, err, errMemory, errTemp)
}

// nameless makes a file without a name in a directory.
func nameless(dir string) (*os.File, error) {
	// Not every file system that can have such a file allows to execute it.
	var fs unix.Statfs_t
	if unix.Statfs(dir, &fs) == nil && fs.Flags&unix.ST_NOEXEC != 0 {
		return nil, fmt.Errorf("%s is mounted noexec", dir)
	}
	return os.OpenFile(dir, os.O_RDWR|unix.O_TMPFILE, 0o600)
}

// close removes the link. The copy itself lives as long as a process runs it.
func (c *patchedCopy) close() {
	if c.f != nil {
		c.f.Close()
	}
	if c.dir != "" {
		c.remove()
	}
}

// remove removes what has a name.
func (c *patchedCopy) remove() {
	if c.exec != "" {
		os.Remove(c.exec)
	}
	if c.dir != "" {
		os.Remove(c.dir)
	}
}
