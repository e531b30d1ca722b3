//go:build linux

package launch

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"

	"github.com/fentry-dev/fentry/internal/places"
)

// patchedCopy is a patched copy of a program, ready for execve.
//
// It is a file without a name, which could be left behind, where there is a place for one (package places). execve gets
// a link of the program's name to it (link), because that becomes the name of the process; the link is removed as soon
// as execve is done.
type patchedCopy struct {
	f     *os.File
	where string // what kind of file it is, for the user
	exec  string // path for execve
	dir   string // of the link
}

// newCopy has write fill in the copy of the file at path.
func newCopy(path string, at *places.Probe, write func(*os.File) error) (c *patchedCopy, err error) {
	c = new(patchedCopy)
	defer func() {
		if err != nil {
			c.close()
			c = nil
		}
	}()
	if c.f, c.where, err = at.File(filepath.Base(path), places.Beside, places.Memory, places.Temporary); err != nil {
		return c, fmt.Errorf("%s: %w", path, err)
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
