// Package buildstep applies package objects to files: objects are replaced in one step, archives member by member,
// and two runs on one file at once do not harm each other.
//
//	out, err := buildstep.File("foo.o", buildstep.Options{})
package buildstep

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/internal/atomicfile"
	"github.com/fentry-dev/fentry/record/objects"
)

// Options of File. The zero value adds tables.
type Options struct {
	Objects objects.Options
	Strip   bool // remove tables instead

	KeepLinks bool // write a file with several hard links in place, so that all its names change
	KeepTime  bool // keep the modification time
	Sync      bool // flush to disk before the file is replaced
}

// Outcome is what happened to a file.
type Outcome struct {
	Changed  bool
	Objects  []Object // objects in it, in order; one for a file that is an object
	Prereqs  []string // files that were read beside it: the members of a thin archive
	Recorded int
	Nopped   int
}

// Object is what was found in one object.
type Object struct {
	Member string   // name in the archive, "" for a file that is an object
	Tabled bool     // it had a table
	Unused []string // names of sections with calls that are not recorded, where Options ask for it
}

// File works on one file. Errors name it.
func File(path string, o Options) (Outcome, error) {
	for try := 0; ; try++ {
		out, err := once(path, o)
		if errors.Is(err, errChanged) && try < 100 {
			continue // another process has replaced the file meanwhile
		}
		if err != nil {
			err = withPath(path, err)
		}
		return out, err
	}
}

var errChanged = errors.New("the file keeps changing")

func once(path string, o Options) (Outcome, error) {
	in, err := Open(path)
	if err != nil {
		return Outcome{}, err
	}
	defer in.Close()
	locked := false
	if o.KeepLinks && in.stat.Nlink > 1 {
		// A file that is written in place must not be read while that happens.
		if err := in.lock(); err != nil {
			return Outcome{}, err
		}
		locked = true
	}
	b, err := in.Bytes()
	if err != nil {
		return Outcome{}, err
	}
	var out Outcome
	w, err := transform(b, o, &out)
	if err != nil || w == nil {
		return out, err
	}
	if !locked {
		if err := in.lock(); err != nil {
			return out, err
		}
	}
	if same, err := in.unchanged(path); err != nil {
		return out, err
	} else if !same {
		return out, errChanged
	}
	out.Changed = true
	return out, atomicfile.Write(path, atomicfile.Options{KeepLinks: o.KeepLinks, KeepTime: o.KeepTime, NoSync: !o.Sync}, func(f *os.File) error {
		_, err := w.WriteTo(f)
		return err
	})
}

// transform returns what to write instead of b, nil when nothing changes.
func transform(b []byte, o Options, out *Outcome) (io.WriterTo, error) {
	res, err := object(b, "", o, out)
	if err != nil || res == nil {
		return nil, err
	}
	return res, nil
}

// object returns the new form of one object, nil when nothing changes.
func object(b []byte, member string, o Options, out *Outcome) (*elfio.Output, error) {
	ob, err := objects.Parse(b, o.Objects)
	if err != nil {
		return nil, err
	}
	res, err := ob.Output()
	if err != nil {
		return nil, err
	}
	out.Objects = append(out.Objects, Object{Member: member, Tabled: res.Tabled})
	out.Recorded += res.Recorded
	out.Nopped += res.Nopped
	return res.Output, nil
}

// withPath puts the path first, once.
func withPath(path string, err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) && pe.Path == path {
		return fmt.Errorf("%s: %w", path, pe.Err)
	}
	if s := err.Error(); len(s) > len(path) && s[:len(path)] == path && s[len(path)] == ':' {
		return err
	}
	return fmt.Errorf("%s: %w", path, err)
}

// Input is an open file.
type Input struct {
	f     *os.File
	stat  unix.Stat_t
	b     []byte
	unmap bool
}

// mapFrom is the size from which files are mapped instead of read: mapping costs page faults and a shoot-down of the
// other processors' address caches, reading costs a copy.
const mapFrom = 4 << 20

// Open opens a regular file.
func Open(path string) (*Input, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	in := &Input{f: f}
	if err := unix.Fstat(int(f.Fd()), &in.stat); err != nil {
		f.Close()
		return nil, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	if in.stat.Mode&unix.S_IFMT != unix.S_IFREG {
		f.Close()
		return nil, &fs.PathError{Op: "open", Path: path, Err: errors.New("not a regular file")}
	}
	return in, nil
}

// Bytes returns the contents, which are valid until Close.
func (in *Input) Bytes() ([]byte, error) {
	if in.b != nil || in.stat.Size == 0 {
		return in.b, nil
	}
	if in.stat.Size >= mapFrom {
		b, err := unix.Mmap(int(in.f.Fd()), 0, int(in.stat.Size), unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_POPULATE)
		if err == nil {
			in.b, in.unmap = b, true
			return b, nil
		}
	}
	b := make([]byte, in.stat.Size)
	if _, err := io.ReadFull(in.f, b); err != nil {
		return nil, errChanged
	}
	in.b = b
	return b, nil
}

// Close releases the file.
func (in *Input) Close() error {
	if in.unmap {
		unix.Munmap(in.b)
		in.b, in.unmap = nil, false
	}
	return in.f.Close()
}

// lock waits until no other process is about to replace this file.
func (in *Input) lock() error {
	for {
		err := unix.Flock(int(in.f.Fd()), unix.LOCK_EX)
		switch {
		case err == nil, errors.Is(err, unix.ENOLCK), errors.Is(err, unix.ENOTSUP):
			return nil // a file system without locks: the last one wins
		case !errors.Is(err, unix.EINTR):
			return &fs.PathError{Op: "lock", Path: in.f.Name(), Err: err}
		}
	}
}

// unchanged reports whether the path still is the file that was opened, as it was then.
func (in *Input) unchanged(path string) (bool, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return false, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	return st.Dev == in.stat.Dev && st.Ino == in.stat.Ino && st.Size == in.stat.Size && st.Mtim == in.stat.Mtim, nil
}
