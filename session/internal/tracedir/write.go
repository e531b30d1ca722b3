//go:build linux

package tracedir

import (
	"errors"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/internal/atomicfile"
	"github.com/fentry-dev/fentry/internal/safefile"
	"github.com/fentry-dev/fentry/trace"
)

// own are new files in a trace: this user's alone. They are no one's only copy of anything: not worth an fsync that can
// take longer than the traced program.
var own = atomicfile.Options{NoSync: true, Own: true, Private: true}

// WriteInfo replaces info.json. When the disk is full, the old one's place is
// used again: how the program ended is worth more than doing it in one step.
func (d *Dir) WriteInfo(info *trace.Info) error {
	b, err := trace.EncodeInfo(info)
	if err != nil {
		return err
	}
	err = atomicfile.WriteIn(d.dir, trace.InfoFile, own, func(w *os.File) error {
		_, err := w.Write(b)
		return err
	})
	if (errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT)) && d.overwrite(trace.InfoFile, b) == nil {
		return nil
	}
	return d.named(err)
}

// errNoRoom: a file has less room than what is to be written there.
var errNoRoom = errors.New("no room")

// File is the directory itself, to be handed to another process. The caller must close it.
func (d *Dir) File() (*os.File, error) {
	fd, err := unix.FcntlInt(uintptr(d.dir.Fd()), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), d.Path), nil
}

// RewriteInfo replaces info.json of a trace whose recorder does so no more.
func RewriteInfo(path string, info *trace.Info) error {
	dir, err := safefile.OpenDir(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	b, err := trace.EncodeInfo(info)
	if err != nil {
		return err
	}
	return atomicfile.WriteIn(dir, trace.InfoFile, own, func(w *os.File) error {
		_, err := w.Write(b)
		return err
	})
}

// overwrite writes to a file that exists, as far as it has room.
func (d *Dir) overwrite(name string, b []byte) error {
	f, err := d.dir.OpenFile(name, os.O_WRONLY)
	if err != nil {
		return err
	}
	defer f.Close()
	if fi, err := f.Stat(); err != nil || int64(len(b)) > roundUp(fi.Size()) {
		return errNoRoom
	}
	if _, err := f.WriteAt(b, 0); err != nil {
		return err
	}
	return f.Truncate(int64(len(b)))
}

// roundUp is how much room a file of n bytes has.
func roundUp(n int64) int64 {
	page := int64(os.Getpagesize())
	return (n + page - 1) &^ (page - 1)
}

// CreateChunks makes the empty file that the headers of chunks are copied to.
func (d *Dir) CreateChunks() (*os.File, error) {
	f, err := d.dir.Create(trace.ChunksFile, os.O_WRONLY|os.O_APPEND)
	return f, d.named(err)
}

// CreateIndex makes the empty file index, and opens those that it is made of.
func (d *Dir) CreateIndex() (events, chunks, index *os.File, err error) {
	if events, err = d.dir.Open(trace.EventsFile); err != nil {
		return nil, nil, nil, d.named(err)
	}
	if chunks, err = d.dir.Open(trace.ChunksFile); err == nil {
		if index, err = d.dir.Create(trace.IndexFile, os.O_RDWR); err == nil {
			return events, chunks, index, nil
		}
		chunks.Close()
	}
	events.Close()
	return nil, nil, nil, d.named(err)
}

// WriteSymbols replaces the .sym file of an image.
func (d *Dir) WriteSymbols(id trace.ImageID, body func(io.Writer) error) error {
	return d.named(atomicfile.WriteIn(d.dir, id.String()+trace.SymExt, own,
		func(f *os.File) error { return body(f) }))
}

// CopyFile copies a file of another trace.
func (d *Dir) CopyFile(from *Dir, name string) error {
	in, err := from.dir.Open(name)
	if err != nil {
		return from.named(err)
	}
	defer in.Close()
	return d.named(atomicfile.WriteIn(d.dir, name, own, func(f *os.File) error {
		_, err := io.Copy(f, in)
		return err
	}))
}

// named puts the name that the directory has now into an error, in front.
func (d *Dir) named(err error) error {
	if err == nil {
		return nil
	}
	text := PathError(err).Error()
	if rest, ok := strings.CutPrefix(text, d.dir.Name()+"/"); ok {
		if name, moved := d.Where(); moved {
			text = name + "/" + rest
		}
	}
	return &namedError{text, err}
}

type namedError struct {
	text string
	err  error
}

func (e *namedError) Error() string { return e.text }
func (e *namedError) Unwrap() error { return e.err }
