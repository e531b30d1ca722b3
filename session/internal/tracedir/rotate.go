//go:build linux

package tracedir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/internal/format"
	"github.com/fentry-dev/fentry/internal/safefile"
	"github.com/fentry-dev/fentry/session/internal/procfs"
	"github.com/fentry-dev/fentry/trace"
)

// mostFiles is how many files a trace has at most: more images than have ids, and the others.
const mostFiles = 1 << 16

// keeperPatience is for how long what a killed recorder has left is waited for, which its keeper writes.
const keeperPatience = 5 * time.Second

// forsaken tells whether the recorder of a trace has ended: whoever writes it then is its keeper.
func forsaken(dir *safefile.Dir) bool {
	f, err := dir.Open(trace.EventsFile)
	if err != nil {
		return false
	}
	defer f.Close()
	head, ok := readHeader(f)
	recorder := int(le.Uint32(head[format.HRecorder:]))
	if !ok || recorder == 0 {
		return false
	}
	s, err := procfs.ReadStat(fmt.Sprintf("/proc/%d/stat", recorder))
	return err != nil || s.Dead() || procfs.Ending(recorder, recorder)
}

// rotate moves a trace that is there out of the way. An empty directory is taken as it is. Without the parent's lock
// (had) nothing is moved: who has it may be doing the same, and one would move what the other has just made.
func (d *Dir) rotate(had bool) error {
	cur, files, err := d.existing(d.base)
	if err != nil || cur == nil {
		return err
	}
	if len(files) == 0 {
		return d.take(cur)
	}
	defer cur.Close()
	if beingWritten(cur) {
		return &errRecording{d.Name, forsaken(cur)}
	}
	if !had {
		return fmt.Errorf("%s: an older trace, and another process keeps its directory locked", d.Name)
	}
	old, _, err := d.existing(d.base + ".old")
	if err != nil {
		return err
	}
	if old != nil {
		defer old.Close()
		if beingWritten(old) {
			return &errRecording{dir: old.Name()}
		}
		if err := d.drop(); err != nil {
			return err
		}
	}
	if err := d.parent.Rename(d.base, d.base+".old"); err != nil {
		d.restore()
		return err
	}
	d.moved = true
	return nil
}

// drop gives the older trace the name by which it is removed when all goes well. It is always the same one, which nobody gives a
// trace, so what a recorder has left there that was killed goes, too; if something else is there, it is another one.
func (d *Dir) drop() (err error) {
	for _, to := range []string{"." + d.base + ".dropped", fmt.Sprintf("%s.old.%d", d.base, os.Getpid())} {
		d.removeTrace(to)
		if err = d.parent.Rename(d.base+".old", to); err == nil {
			d.dropped = to
			return nil
		}
	}
	return err
}

// take uses an empty directory that belongs to this user. Others who can write in it (a group, with the umask of
// many distributions) cannot any more.
func (d *Dir) take(dir *safefile.Dir) error {
	st, err := dir.Stat()
	if err == nil && st.Mode&0o022 != 0 {
		if err = dir.Chmod(st.Mode & 0o7777 &^ 0o022); err == nil {
			var files []string
			if files, err = traceFiles(dir); err == nil && len(files) > 0 {
				err = fmt.Errorf("%s: somebody else has put files there", dir.Name())
			}
		}
	}
	if err != nil {
		dir.Close()
		return err
	}
	d.dir = dir
	return nil
}

// existing opens a directory that can be moved or used: one that holds a trace of this user and nothing else, or
// nothing at all. nil: there is none. Any other is an error, because such a directory is never renamed or removed.
func (d *Dir) existing(name string) (*safefile.Dir, []string, error) {
	dir, err := d.parent.OpenDir(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil, nil
	case errors.Is(err, unix.ENOTDIR):
		var pe *fs.PathError
		errors.As(err, &pe)
		return nil, nil, fmt.Errorf("%s: exists and is not a trace directory", pe.Path)
	case err != nil:
		return nil, nil, err
	}
	st, err := dir.Stat()
	if err == nil && int(st.Uid) != os.Geteuid() {
		err = fmt.Errorf("%s: exists and belongs to another user (%d)", dir.Name(), st.Uid)
	}
	var files []string
	if err == nil {
		files, err = traceFiles(dir)
	}
	if err != nil {
		dir.Close()
		return nil, nil, err
	}
	return dir, files, nil
}

// traceFiles lists a directory that holds a trace and nothing else.
func traceFiles(dir *safefile.Dir) ([]string, error) {
	entries, err := dir.ReadDir(mostFiles)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		socket := e.Name() == format.FileSocket && e.Type() == fs.ModeSocket // of a recorder that was killed
		if !format.IsTraceFile(e.Name()) || !e.Type().IsRegular() && !socket {
			return nil, fmt.Errorf("%s: exists and holds %s, which is not part of a trace", dir.Name(), e.Name())
		}
		names = append(names, e.Name())
	}
	return names, nil
}

// removeTrace removes a trace directory of this user, its known files only.
func (d *Dir) removeTrace(name string) {
	dir, files, err := d.existing(name)
	if err != nil || dir == nil {
		return
	}
	defer dir.Close()
	for _, f := range files {
		dir.Remove(f)
	}
	d.parent.Rmdir(name)
}

// Commit makes the rotation final: the program has started.
func (d *Dir) Commit() {
	if d.dropped != "" {
		d.removeTrace(d.dropped)
		d.dropped = ""
	}
	d.moved = false
}

// Rollback removes what was made and puts older traces back where they were.
func (d *Dir) Rollback() {
	unlock, _ := d.lockParent()
	defer unlock()
	d.undo()
	d.parent.Close()
}

// undo is rollback for who has the parent's lock.
func (d *Dir) undo() {
	if d.Events != nil {
		// The directory, and not what somebody else has put there since.
		name, moved := d.Where()
		if files, err := traceFiles(d.dir); err == nil {
			for _, f := range files {
				d.dir.Remove(f)
			}
		}
		d.Events.Close()
		d.made = d.made && name != "" && !moved
	}
	if d.made {
		d.parent.Rmdir(d.base) // if it is empty
	}
	d.dir.Close()
	d.restore()
}

func (d *Dir) restore() {
	if d.moved {
		d.parent.Rename(d.base+".old", d.base)
		d.moved = false
	}
	if d.dropped != "" {
		d.parent.Rename(d.dropped, d.base+".old")
		d.dropped = ""
	}
}
