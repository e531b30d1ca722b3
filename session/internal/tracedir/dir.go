//go:build linux

package tracedir

import (
	"encoding/binary"
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
	"github.com/fentry-dev/fentry/session/internal/procfs"
	"github.com/fentry-dev/fentry/trace"
)

var le = binary.LittleEndian

// Default is the trace directory when none is named.
const Default = format.DirDefault

// Dir is a trace directory that is being written. It is reached through its
// descriptor, so that somebody who renames it does not disturb.
//
// While it is written, its events file is locked (flock, exclusively); sessions
// leave a directory alone whose events file is locked. The lock goes with the
// process, however that ends.
type Dir struct {
	Name   string // as it was given
	Path   string // absolute
	handle *os.File
	Events *os.File

	moved   bool   // an older directory was renamed to path.old
	dropped string // what the older path.old is called until commit
}

// Create makes the directory and an empty events file, keeping an older
// trace under another name.
func Create(path string) (*Dir, error) {
	if path == "" {
		path = Default
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	d := &Dir{Name: path, Path: abs}
	unlock := d.lockParent()
	defer unlock()
	if err := d.rotate(); err != nil {
		return nil, err
	}
	if err := os.Mkdir(abs, 0o777); err != nil && !errors.Is(err, fs.ErrExist) {
		d.restore()
		return nil, PathError(err)
	}
	d.handle, err = os.Open(abs)
	if err == nil {
		d.Events, err = os.OpenFile(filepath.Join(abs, trace.EventsFile), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o666)
	}
	if err != nil {
		d.undo()
		return nil, PathError(err)
	}
	if unix.Flock(int(d.Events.Fd()), unix.LOCK_EX|unix.LOCK_NB) == unix.EWOULDBLOCK {
		d.undo()
		return nil, &errRecording{d.Name}
	}
	return d, nil
}

// lockParent keeps other sessions from making or moving directories in the same
// place at the same time. Where that cannot be had (the parent cannot be read, or
// something else holds the lock), it goes without.
func (d *Dir) lockParent() (unlock func()) {
	f, err := os.Open(filepath.Dir(d.Path))
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
	return len(procfs.SharedFile{Inode: st.Ino, Path: path}.Mappers(le.Uint64(head[format.HLeaderStart:]))) > 0
}

// Where is the directory's name now: the one that was given if it is still right,
// "" if the trace has been removed.
func (d *Dir) Where() (name string, moved bool) {
	var ev, now, at unix.Stat_t
	if unix.Fstat(int(d.Events.Fd()), &ev) != nil || ev.Nlink == 0 ||
		unix.Fstat(int(d.handle.Fd()), &now) != nil || now.Nlink == 0 {
		return "", false
	}
	if unix.Stat(d.Path, &at) == nil && at.Dev == now.Dev && at.Ino == now.Ino {
		return d.Name, false
	}
	path, err := os.Readlink(d.fdPath())
	if err != nil {
		return "", false
	}
	if !filepath.IsAbs(d.Name) {
		if wd, err := os.Getwd(); err == nil {
			if rel, err := filepath.Rel(wd, path); err == nil && filepath.IsLocal(rel) {
				path = rel
			}
		}
	}
	return path, true
}

// named puts the name that the user knows into an error.
func (d *Dir) named(err error) error {
	if err == nil {
		return nil
	}
	name, _ := d.Where()
	if name == "" {
		name = d.Name
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
func (d *Dir) rotate() error {
	names, err := TraceFiles(d.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if len(names) == 0 {
		return nil // an empty directory is used as it is
	}
	if beingWritten(d.Path) {
		return &errRecording{d.Name}
	}
	old := d.Path + ".old"
	if _, err := TraceFiles(old); err == nil {
		if beingWritten(old) {
			return &errRecording{filepath.Clean(d.Name) + ".old"}
		}
		d.dropped = fmt.Sprintf("%s.%d", old, os.Getpid())
		if err := os.Rename(old, d.dropped); err != nil {
			d.dropped = ""
			return PathError(err)
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Rename(d.Path, old); err != nil {
		d.restore()
		return PathError(err)
	}
	d.moved = true
	return nil
}

// TraceFiles lists a directory that holds a trace and nothing else; for any
// other it returns an error, because such a directory is never renamed or
// removed.
func TraceFiles(dir string) ([]string, error) {
	fi, err := os.Lstat(dir)
	if err != nil {
		return nil, PathError(err)
	}
	if !fi.IsDir() {
		return nil, fmt.Errorf("%s: exists and is not a trace directory", dir)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, PathError(err)
	}
	var names []string
	for _, e := range entries {
		if !format.IsTraceFile(e.Name()) || !e.Type().IsRegular() {
			return nil, fmt.Errorf("%s: exists and holds %s, which is not part of a trace", dir, e.Name())
		}
		names = append(names, e.Name())
	}
	return names, nil
}

// removeTrace removes a trace directory, its known files only.
func removeTrace(dir string) {
	names, err := TraceFiles(dir)
	if err != nil {
		return
	}
	for _, n := range names {
		os.Remove(filepath.Join(dir, n))
	}
	os.Remove(dir)
}

// Commit makes the rotation final: the program has started.
func (d *Dir) Commit() {
	if d.dropped != "" {
		removeTrace(d.dropped)
		d.dropped = ""
	}
	d.moved = false
}

// Rollback removes what was made and puts older traces back where they were.
func (d *Dir) Rollback() {
	unlock := d.lockParent()
	defer unlock()
	d.undo()
}

// undo is rollback for who has the parent's lock.
func (d *Dir) undo() {
	if d.Events != nil {
		// Not what somebody else has put there since.
		if name, moved := d.Where(); name != "" && !moved {
			removeTrace(d.Path)
		}
		d.Events.Close()
	} else {
		os.Remove(d.Path) // if it is empty
	}
	if d.handle != nil {
		d.handle.Close()
	}
	d.restore()
}

func (d *Dir) restore() {
	old := d.Path + ".old"
	if d.moved {
		os.Rename(old, d.Path)
		d.moved = false
	}
	if d.dropped != "" {
		os.Rename(d.dropped, old)
		d.dropped = ""
	}
}

// fdPath is the directory's name that stays right when it is renamed.
func (d *Dir) fdPath() string { return fmt.Sprintf("/proc/self/fd/%d", d.handle.Fd()) }

// WriteInfo replaces info.json. When the disk is full, the old one's place is
// used again: how the program ended is worth more than doing it in one step.
func (d *Dir) WriteInfo(info *trace.Info) error { return d.named(d.putInfo(info)) }

func (d *Dir) putInfo(info *trace.Info) error {
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
	if fi, terr := f.Stat(); terr != nil || int64(len(b)) > roundUp(fi.Size()) {
		return err // it would need more room than it has
	}
	if _, terr := f.WriteAt(b, 0); terr != nil {
		return err
	}
	return f.Truncate(int64(len(b)))
}

// CreateChunks makes the empty file that the headers of chunks are copied to.
func (d *Dir) CreateChunks() (*os.File, error) {
	const flags = os.O_WRONLY | os.O_CREATE | os.O_EXCL | os.O_APPEND
	f, err := os.OpenFile(filepath.Join(d.fdPath(), trace.ChunksFile), flags, 0o666)
	return f, d.named(err)
}

// roundUp is how much room a file of n bytes has.
func roundUp(n int64) int64 {
	page := int64(os.Getpagesize())
	return (n + page - 1) &^ (page - 1)
}

// WriteSymbols replaces the .sym file of an image.
func (d *Dir) WriteSymbols(id trace.ImageID, body func(io.Writer) error) error {
	name := filepath.Join(d.fdPath(), id.String()+trace.SymExt)
	return d.named(atomicfile.Write(name, atomicfile.Options{NoSync: true}, func(f *os.File) error { return body(f) }))
}

func (d *Dir) Close() error {
	d.handle.Close()
	return d.Events.Close()
}

// PathError puts the path first in an error of package os.
func PathError(err error) error {
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
