//go:build linux

package tracedir

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/internal/format"
	"github.com/fentry-dev/fentry/internal/safefile"
	"github.com/fentry-dev/fentry/session/internal/procfs"
	"github.com/fentry-dev/fentry/trace"
)

// A trace is often made by root, in a directory that others can write: their working directory, or /tmp. What lies
// there under the trace's name, or comes there while the trace is made, must not get anything overwritten, removed or
// read by others. So
//
//   - everything happens below descriptors: of the directory that the trace is in, and of the trace itself, so that
//     checks and what follows are about the same directory, whatever is renamed meanwhile;
//   - the directory is one that this user has made, or an empty one that belongs to it; others cannot write in it (0700
//     if it is new). A trace that is moved out of the way, or removed, belongs to this user, too;
//   - files are new ones (O_EXCL), for this user only (0600), and symbolic links are never followed.
//
// The runtime does the same for programs that write their traces alone (stub/src/directory.c).

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
	Events *os.File

	parent *safefile.Dir
	base   string        // name in parent
	dir    *safefile.Dir // the directory itself
	made   bool          // it is new

	moved   bool   // an older directory was renamed to base.old
	dropped string // what the older base.old is called until commit
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
	d := &Dir{Name: path, Path: abs, base: filepath.Base(abs)}
	parent := filepath.Dir(filepath.Clean(path))
	if b := filepath.Base(path); b == "." || b == ".." {
		parent = filepath.Dir(abs)
	}
	if d.parent, err = safefile.OpenDir(parent); err != nil {
		return nil, PathError(err)
	}
	if err := d.create(); err != nil {
		d.parent.Close()
		return nil, PathError(err)
	}
	return d, nil
}

// create is createNow, once what a killed recorder has left is whole, if it is that.
func (d *Dir) create() error {
	for deadline := time.Now().Add(keeperPatience); ; time.Sleep(keeperPatience / 1000) {
		err := d.createNow()
		var is *errRecording
		if !errors.As(err, &is) || !is.forsaken || time.Now().After(deadline) {
			return err
		}
	}
}

func (d *Dir) createNow() error {
	unlock, had := d.lockParent()
	defer unlock()
	if err := d.rotate(had); err != nil {
		return err
	}
	var err error
	if d.dir == nil {
		if d.dir, err = d.parent.Mkdir(d.base); err != nil {
			d.restore()
			return err
		}
		d.made = true
	}
	if d.Events, err = d.dir.Create(trace.EventsFile, os.O_RDWR); err != nil {
		d.undo()
		return err
	}
	if unix.Flock(int(d.Events.Fd()), unix.LOCK_EX|unix.LOCK_NB) == unix.EWOULDBLOCK {
		d.undo()
		return &errRecording{dir: d.Name}
	}
	return nil
}

// lockParent keeps others from making or moving directories in the same place at the same time. had tells whether it
// does: not, if somebody else does not let go of the lock. Where there can be none, because the directory cannot be
// read, nobody has it.
func (d *Dir) lockParent() (unlock func(), had bool) {
	f, err := d.parent.Reopen()
	if err != nil {
		return func() {}, true
	}
	for deadline := time.Now().Add(2 * time.Second); ; time.Sleep(2 * time.Millisecond) {
		if had = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) != unix.EWOULDBLOCK; had || time.Now().After(deadline) {
			return func() { f.Close() }, had
		}
	}
}

// ErrRecording: the trace directory is still being written, by another session or
// by a patched program alone.
var ErrRecording = errors.New("is being recorded")

type errRecording struct {
	dir      string
	forsaken bool // by its recorder, which has ended
}

func (e *errRecording) Error() string { return e.dir + " " + ErrRecording.Error() }
func (e *errRecording) Unwrap() error { return ErrRecording }

// beingWritten tells whether something writes the trace in dir.
func beingWritten(dir *safefile.Dir) bool {
	f, err := dir.Open(trace.EventsFile)
	if err != nil {
		return false
	}
	defer f.Close()
	if unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB) == unix.EWOULDBLOCK {
		return true
	}
	// Programs that write the file themselves map it and do not lock it.
	head, ok := readHeader(f)
	if !ok || le.Uint32(head[format.HLayout:]) != uint32(trace.LayoutSlots) || le.Uint32(head[format.HClosed:]) != 0 {
		return false
	}
	var st unix.Stat_t
	if unix.Fstat(int(f.Fd()), &st) != nil {
		return false
	}
	path, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
	if err != nil {
		return false
	}
	return len(procfs.SharedFile{Inode: st.Ino, Path: path}.Mappers(le.Uint64(head[format.HLeaderStart:]))) > 0
}

// readHeader reads the header of an events file.
func readHeader(f *os.File) (head [format.HeaderSize]byte, ok bool) {
	_, err := f.ReadAt(head[:], 0)
	return head, err == nil && string(head[:len(format.FileMagic)]) == format.FileMagic
}

// Where is the directory's name now: the one that was given if it is still right,
// "" if the trace has been removed.
func (d *Dir) Where() (name string, moved bool) {
	var ev, at unix.Stat_t
	now, err := d.dir.Stat()
	if unix.Fstat(int(d.Events.Fd()), &ev) != nil || ev.Nlink == 0 || err != nil || now.Nlink == 0 {
		return "", false
	}
	is := func(path string) bool { return unix.Lstat(path, &at) == nil && at.Dev == now.Dev && at.Ino == now.Ino }
	if is(d.Path) {
		return d.Name, false
	}
	path, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", d.dir.Fd()))
	if err != nil || !is(path) {
		return "", false // its file system is not mounted any more, or not where this process could see it
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

// Close closes the directory and its events file.
func (d *Dir) Close() error {
	d.dir.Close()
	d.parent.Close()
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
