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
	"path/filepath"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/elfio/ar"
	"github.com/fentry-dev/fentry/internal/atomicfile"
	"github.com/fentry-dev/fentry/record/objects"
)

// Options of File. The zero value adds tables.
type Options struct {
	Objects objects.Options
	Strip   bool // remove tables instead

	// Inspect is called for every object that is looked at. ReadOnly leaves the files alone.
	Inspect  func(member string, ob *objects.Object, res objects.Result) error
	ReadOnly bool

	// Nop and Sort are for linked images: calls become nops, tables are sorted. With Nop, Calls finds the calls.
	Nop, Sort bool
	Calls     func(*elfio.File) ([]objects.Call, error)

	// Map maps a file that is too large to be read, and Guard turns a fault in it, when the file is truncated
	// meanwhile, into an error. nil: all files are read.
	Map   func(fd int, path string) (b []byte, unmap func() error, err error)
	Guard func(func() error) error

	KeepLinks bool // write a file with several hard links in place, so that all its names change
	KeepTime  bool // keep the modification time
	Sync      bool // flush to disk before the file is replaced; without, a power failure soon after may cost the contents

	retired *retired
	depth   int             // thin archives around the file
	seen    map[string]bool // members of the outermost that have been worked on
}

// Outcome is what happened to a file.
type Outcome struct {
	Changed  bool
	Tabled   bool     // a table was there
	Prereqs  []string // files that were read beside it: the members of a thin archive
	Recorded int      // entries added
	Nopped   int      // calls turned into nops
	Note     string   // what is odd about a file in which there was nothing to change, "" if nothing
	// Unrecorded names the sections with calls that are not recorded, in order, once an object.
	Unrecorded []string
}

// File works on one file. Errors name it.
func File(path string, o Options) (Outcome, error) {
	guard := o.Guard
	if guard == nil {
		guard = func(do func() error) error { return do() }
	}
	for try := 0; ; try++ {
		var out Outcome
		err := guard(func() (err error) {
			out, err = once(path, o)
			return err
		})
		if errors.Is(err, errChanged) && try < 100 {
			continue // another process has replaced the file meanwhile
		}
		if exhausted(err) && o.retired.release() {
			continue // what the files that were replaced before take up may be enough
		}
		if err != nil {
			err = withPath(path, err)
		}
		return out, err
	}
}

func exhausted(err error) bool {
	for _, e := range []error{unix.ENOSPC, unix.EDQUOT, unix.EMFILE, unix.ENFILE} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

var errChanged = errors.New("the file keeps changing")

func once(path string, o Options) (Outcome, error) {
	in, err := Open(path)
	if err != nil {
		return Outcome{}, err
	}
	defer in.Close()
	early := o.KeepLinks && in.stat.Nlink > 1
	if early {
		// A file that is written in place must not be read while that happens.
		if err := in.lock(); err != nil {
			return Outcome{}, err
		}
	}
	b, err := in.bytes(o)
	if err != nil {
		return Outcome{}, err
	}
	var out Outcome
	w, err := transform(path, b, o, &out)
	if err != nil || w == nil {
		return out, err
	}
	if !early {
		if err := in.lock(); err != nil {
			return out, err
		}
	}
	dest, err := in.destination(path)
	if err != nil {
		return out, err
	}
	out.Changed = true
	if p, ok := w.(parted); ok && !o.KeepLinks && !o.KeepTime && !o.Sync {
		err := atomicfile.WriteBytes(dest, in.fd, &in.stat, p.Parts(), in.locked)
		in.keep, in.replaced = o.retired, err == nil
		return out, err
	}
	how := atomicfile.Options{KeepLinks: o.KeepLinks, KeepTime: o.KeepTime, NoSync: !o.Sync, Alone: in.locked}
	return out, atomicfile.Write(path, how, func(f *os.File) error {
		_, err := w.WriteTo(f)
		return err
	})
}

// parted is contents that are in memory.
type parted interface{ Parts() [][]byte }

// transform returns what to write instead of b, nil when nothing changes.
func transform(path string, b []byte, o Options, out *Outcome) (io.WriterTo, error) {
	ar := ar.Is(b)
	switch {
	case o.Sort && ar:
		return nil, errors.New("an archive; tables are sorted after linking")
	case ar:
		return archive(path, b, o, out)
	case (o.Nop || o.Sort) && !isObject(b):
		return image(b, o, out)
	case o.Sort:
		return nil, errors.New("a relocatable object; tables are sorted after linking")
	}
	c, err := object(b, "", o, out)
	if c == nil || err != nil {
		return nil, err
	}
	return c, nil
}

// isObject reports whether b says it is a relocatable object.
func isObject(b []byte) bool {
	return len(b) > 17 && (b[5] == 1 && b[16] == 1 && b[17] == 0 || b[5] == 2 && b[16] == 0 && b[17] == 1)
}

// image returns the new form of a linked image.
func image(b []byte, o Options, out *Outcome) (io.WriterTo, error) {
	f, err := elfio.Parse(b)
	if err != nil {
		return nil, err
	}
	var res objects.ImageResult
	if o.Sort {
		if res, err = objects.SortImage(f); res.Sites == 0 {
			out.Note = "it has no table " + objects.TableName
		}
	} else {
		if res, err = objects.NopImage(f, o.Calls); res.Sites == 0 {
			out.Note = "no profiling calls are found in it"
		}
		out.Nopped = res.Changed
	}
	if err != nil || res.Output == nil {
		return nil, err
	}
	return res.Output, nil
}

// object returns the new form of one object, nil when nothing changes.
func object(b []byte, member string, o Options, out *Outcome) (ar.Contents, error) {
	if o.Strip {
		orig, err := objects.Strip(b)
		if errors.Is(err, objects.ErrNoTable) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		return whole(orig), nil
	}
	ob, err := objects.Parse(b, o.Objects)
	if err != nil {
		return nil, err
	}
	res, err := ob.Output()
	if err != nil {
		return nil, err
	}
	if o.Inspect != nil {
		if err := o.Inspect(member, ob, res); err != nil {
			return nil, err
		}
	}
	out.Tabled = out.Tabled || res.Tabled
	out.Unrecorded = append(out.Unrecorded, ob.Unrecorded()...)
	out.Recorded += res.Recorded
	out.Nopped += res.Nopped
	if res.Output == nil || o.ReadOnly {
		return nil, nil
	}
	return res.Output, nil
}

// whole is a complete file.
type whole []byte

func (w whole) Size() int64 { return int64(len(w)) }

func (w whole) WriteTo(to io.Writer) (int64, error) {
	n, err := to.Write(w)
	return int64(n), err
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
	fd    int
	stat  unix.Stat_t
	b     []byte
	unmap func() error // nil: b is not mapped

	locked bool // no other process that asks for a lock works on the file

	path   string
	pooled *[]byte

	keep     *retired // takes the file over when it has been replaced; nil: it is closed
	replaced bool
}

// buffers are reused for the contents of files.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

// mapFrom is the size from which files are mapped instead of read: mapping costs page faults and a shoot-down of the
// other processors' address caches, reading costs a copy.
const mapFrom = 4 << 20

// Open opens a regular file.
func Open(path string) (*Input, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	for errors.Is(err, unix.EINTR) {
		fd, err = unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	}
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	in := &Input{fd: fd, path: path}
	if err := unix.Fstat(fd, &in.stat); err != nil {
		unix.Close(fd)
		return nil, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	if in.stat.Mode&unix.S_IFMT != unix.S_IFREG {
		unix.Close(fd)
		return nil, &fs.PathError{Op: "open", Path: path, Err: errors.New("not a regular file")}
	}
	return in, nil
}

// Bytes returns the contents, which are valid until Close.
func (in *Input) Bytes() ([]byte, error) { return in.bytes(Options{}) }

func (in *Input) bytes(o Options) ([]byte, error) {
	if in.b != nil || in.stat.Size == 0 {
		return in.b, nil
	}
	if in.stat.Size >= mapFrom && o.Map != nil {
		if b, unmap, err := o.Map(in.fd, in.path); err == nil {
			in.b, in.unmap = b, unmap
			return b, nil
		}
	}
	in.pooled = buffers.Get().(*[]byte)
	b := slices.Grow((*in.pooled)[:0], int(in.stat.Size))[:in.stat.Size]
	*in.pooled = b
	for at := 0; at < len(b); {
		n, err := unix.Pread(in.fd, b[at:], int64(at))
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return nil, &fs.PathError{Op: "read", Path: in.path, Err: err}
		case n == 0:
			return nil, errChanged
		}
		at += max(n, 0)
	}
	in.b = b
	return b, nil
}

// Close releases the file.
func (in *Input) Close() error {
	if in.unmap != nil {
		in.unmap()
		in.b, in.unmap = nil, nil
	}
	if in.pooled != nil {
		buffers.Put(in.pooled)
	}
	if in.keep != nil && in.replaced {
		in.keep.keep(in.fd, in.stat.Size)
		return nil
	}
	return unix.Close(in.fd)
}

// lock waits until no other process is about to replace this file.
func (in *Input) lock() error {
	for {
		err := unix.Flock(in.fd, unix.LOCK_EX)
		switch {
		case err == nil:
			in.locked = true
			return nil
		case errors.Is(err, unix.ENOLCK), errors.Is(err, unix.ENOTSUP):
			return nil // a file system without locks: the last one wins
		case !errors.Is(err, unix.EINTR):
			return &fs.PathError{Op: "lock", Path: in.path, Err: err}
		}
	}
}

// destination returns what the path is the name of, symbolic links followed. When that no longer is the file that was
// opened, as it was then, the error is errChanged.
func (in *Input) destination(path string) (string, error) {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return "", &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	if st.Mode&unix.S_IFMT == unix.S_IFLNK {
		dest, err := filepath.EvalSymlinks(path)
		if err != nil {
			return "", err
		}
		path = dest
		if err := unix.Lstat(path, &st); err != nil {
			return "", &fs.PathError{Op: "stat", Path: path, Err: err}
		}
	}
	if st.Dev != in.stat.Dev || st.Ino != in.stat.Ino || st.Size != in.stat.Size || st.Mtim != in.stat.Mtim {
		return "", errChanged
	}
	return path, nil
}
