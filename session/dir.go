//go:build linux

package session

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/internal/atomicfile"
	"github.com/fentry-dev/fentry/internal/format"
	"github.com/fentry-dev/fentry/trace"
)

// DefaultDir is the trace directory when Options.Dir is "".
const DefaultDir = "fentry.data"

// traceDir is a trace directory that is being written. It is reached through its
// descriptor, so that somebody who renames it does not disturb.
//
// While it is written, its events file is locked (flock, exclusively); sessions
// leave a directory alone whose events file is locked. The lock goes with the
// process, however that ends.
type traceDir struct {
	name   string // as it was given
	path   string // absolute
	handle *os.File
	events *os.File

	moved   bool   // an older directory was renamed to path.old
	dropped string // what the older path.old is called until commit
}

// createDir makes the directory and an empty events file, keeping an older
// trace under another name.
func createDir(path string) (*traceDir, error) {
	if path == "" {
		path = DefaultDir
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	d := &traceDir{name: path, path: abs}
	unlock := d.lockParent()
	defer unlock()
	if err := d.rotate(); err != nil {
		return nil, err
	}
	if err := os.Mkdir(abs, 0o777); err != nil && !errors.Is(err, fs.ErrExist) {
		d.restore()
		return nil, pathError(err)
	}
	d.handle, err = os.Open(abs)
	if err == nil {
		d.events, err = os.OpenFile(filepath.Join(abs, trace.EventsFile), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o666)
	}
	if err != nil {
		d.undo()
		return nil, pathError(err)
	}
	if unix.Flock(int(d.events.Fd()), unix.LOCK_EX|unix.LOCK_NB) == unix.EWOULDBLOCK {
		d.undo()
		return nil, &errRecording{d.name}
	}
	return d, nil
}

// lockParent keeps other sessions from making or moving directories in the same
// place at the same time. Where that cannot be had (the parent cannot be read, or
// something else holds the lock), it goes without.
func (d *traceDir) lockParent() (unlock func()) {
	f, err := os.Open(filepath.Dir(d.path))
	if err != nil {
		return func() {}
	}
	for deadline := time.Now().Add(time.Second); time.Now().Before(deadline); time.Sleep(2 * time.Millisecond) {
		if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) != unix.EWOULDBLOCK {
			break
		}
	}
	return func() { f.Close() }
}

// ErrRecording: the trace directory is still being written, by another session or
// by a patched program alone.
var ErrRecording = errors.New("is being recorded")

type errRecording struct{ dir string }

func (e *errRecording) Error() string { return e.dir + " " + ErrRecording.Error() }
func (e *errRecording) Unwrap() error { return ErrRecording }

// beingWritten tells whether something writes the trace in dir.
func beingWritten(dir string) bool {
	f, err := os.Open(filepath.Join(dir, trace.EventsFile))
	if err != nil {
		return false
	}
	defer f.Close()
	if unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB) == unix.EWOULDBLOCK {
		return true
	}
	// Programs that write the file themselves map it and do not lock it.
	var head [format.HeaderSize]byte
	if _, err := f.ReadAt(head[:], 0); err != nil || string(head[:len(format.FileMagic)]) != format.FileMagic ||
		le.Uint32(head[format.HLayout:]) != uint32(trace.LayoutSlots) || le.Uint32(head[format.HClosed:]) != 0 {
		return false
	}
	var st unix.Stat_t
	if unix.Fstat(int(f.Fd()), &st) != nil {
		return false
	}
	path, err := filepath.EvalSymlinks(f.Name())
	if err != nil {
		return false
	}
	return len(sharedFile{st.Ino, path}.mappers(le.Uint64(head[format.HLeaderStart:]))) > 0
}

// where is the directory's name now: the one that was given if it is still right,
// "" if the trace has been removed.
func (d *traceDir) where() (name string, moved bool) {
	var ev, now, at unix.Stat_t
	if unix.Fstat(int(d.events.Fd()), &ev) != nil || ev.Nlink == 0 || unix.Fstat(int(d.handle.Fd()), &now) != nil || now.Nlink == 0 {
		return "", false
	}
	if unix.Stat(d.path, &at) == nil && at.Dev == now.Dev && at.Ino == now.Ino {
		return d.name, false
	}
	path, err := os.Readlink(d.fdPath())
	if err != nil {
		return "", false
	}
	if !filepath.IsAbs(d.name) {
		if wd, err := os.Getwd(); err == nil {
			if rel, err := filepath.Rel(wd, path); err == nil && filepath.IsLocal(rel) {
				path = rel
			}
		}
	}
	return path, true
}

// named puts the name that the user knows into an error.
func (d *traceDir) named(err error) error {
	if err == nil {
		return nil
	}
	name, _ := d.where()
	if name == "" {
		name = d.name
	}
	return &namedError{strings.ReplaceAll(err.Error(), d.fdPath(), name), err}
}

type namedError struct {
	text string
	err  error
}

func (e *namedError) Error() string { return e.text }
func (e *namedError) Unwrap() error { return e.err }

// rotate moves a trace that is there out of the way.
func (d *traceDir) rotate() error {
	names, err := traceFiles(d.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if len(names) == 0 {
		return nil // an empty directory is used as it is
	}
	if beingWritten(d.path) {
		return &errRecording{d.name}
	}
	old := d.path + ".old"
	if _, err := traceFiles(old); err == nil {
		if beingWritten(old) {
			return &errRecording{filepath.Clean(d.name) + ".old"}
		}
		d.dropped = fmt.Sprintf("%s.%d", old, os.Getpid())
		if err := os.Rename(old, d.dropped); err != nil {
			d.dropped = ""
			return pathError(err)
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Rename(d.path, old); err != nil {
		d.restore()
		return pathError(err)
	}
	d.moved = true
	return nil
}

// traceFiles lists a directory that holds a trace and nothing else; for any
// other it returns an error, because such a directory is never renamed or
// removed.
func traceFiles(dir string) ([]string, error) {
	fi, err := os.Lstat(dir)
	if err != nil {
		return nil, pathError(err)
	}
	if !fi.IsDir() {
		return nil, fmt.Errorf("%s: exists and is not a trace directory", dir)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, pathError(err)
	}
	var names []string
	for _, e := range entries {
		if !ourFile(e.Name()) || !e.Type().IsRegular() {
			return nil, fmt.Errorf("%s: exists and holds %s, which is not part of a trace", dir, e.Name())
		}
		names = append(names, e.Name())
	}
	return names, nil
}

// ourFile tells the names of the files in a trace directory.
func ourFile(name string) bool {
	if name == trace.EventsFile || name == trace.InfoFile {
		return true
	}
	id, ok := strings.CutSuffix(name, trace.SymExt)
	return ok && len(id) == 16 && strings.Trim(id, "0123456789abcdef") == ""
}

// removeTrace removes a trace directory, its known files only.
func removeTrace(dir string) {
	names, err := traceFiles(dir)
	if err != nil {
		return
	}
	for _, n := range names {
		os.Remove(filepath.Join(dir, n))
	}
	os.Remove(dir)
}

// commit makes the rotation final: the program has started.
func (d *traceDir) commit() {
	if d.dropped != "" {
		removeTrace(d.dropped)
		d.dropped = ""
	}
	d.moved = false
}

// rollback removes what was made and puts older traces back where they were.
func (d *traceDir) rollback() {
	unlock := d.lockParent()
	defer unlock()
	d.undo()
}

// undo is rollback for who has the parent's lock.
func (d *traceDir) undo() {
	if d.events != nil {
		// Not what somebody else has put there since.
		if name, moved := d.where(); name != "" && !moved {
			removeTrace(d.path)
		}
		d.events.Close()
	} else {
		os.Remove(d.path) // if it is empty
	}
	if d.handle != nil {
		d.handle.Close()
	}
	d.restore()
}

func (d *traceDir) restore() {
	old := d.path + ".old"
	if d.moved {
		os.Rename(old, d.path)
		d.moved = false
	}
	if d.dropped != "" {
		os.Rename(d.dropped, old)
		d.dropped = ""
	}
}

// fdPath is the directory's name that stays right when it is renamed.
func (d *traceDir) fdPath() string { return fmt.Sprintf("/proc/self/fd/%d", d.handle.Fd()) }

// writeInfo replaces info.json. When the disk is full, the old one's place is
// used again: how the program ended is worth more than doing it in one step.
func (d *traceDir) writeInfo(info *trace.Info) error { return d.named(d.putInfo(info)) }

func (d *traceDir) putInfo(info *trace.Info) error {
	err := trace.WriteInfo(d.fdPath(), info)
	if err == nil || !errors.Is(err, unix.ENOSPC) && !errors.Is(err, unix.EDQUOT) {
		return err
	}
	tmp, terr := os.MkdirTemp("", "fentry-")
	if terr != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	if trace.WriteInfo(tmp, info) != nil {
		return err
	}
	b, terr := os.ReadFile(filepath.Join(tmp, trace.InfoFile))
	if terr != nil {
		return err
	}
	f, terr := os.OpenFile(filepath.Join(d.fdPath(), trace.InfoFile), os.O_WRONLY, 0)
	if terr != nil {
		return err
	}
	defer f.Close()
	if fi, terr := f.Stat(); terr != nil || int64(len(b)) > int64(pageUp(uint64(fi.Size()))) {
		return err // it would need more room than it has
	}
	if _, terr := f.WriteAt(b, 0); terr != nil {
		return err
	}
	return f.Truncate(int64(len(b)))
}

// writeSymbols replaces the .sym file of an image.
func (d *traceDir) writeSymbols(id trace.ImageID, body func(io.Writer) error) error {
	name := filepath.Join(d.fdPath(), id.String()+trace.SymExt)
	return d.named(atomicfile.Write(name, atomicfile.Options{NoSync: true}, func(f *os.File) error { return body(f) }))
}

func (d *traceDir) close() error {
	d.handle.Close()
	return d.events.Close()
}

// pathError puts the path first in an error of package os.
func pathError(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return fmt.Errorf("%s: %w", pe.Path, pe.Err)
	}
	var le *os.LinkError
	if errors.As(err, &le) {
		return fmt.Errorf("%s: %w", le.New, le.Err)
	}
	return err
}
