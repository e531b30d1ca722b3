package tracee

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/arch"
	"github.com/fentry-dev/fentry/internal/format"
	"github.com/fentry-dev/fentry/session/internal/procfs"
)

// A tracer whose recorder is gone.
//
// Who was killed while a process had its tracer leaves that in it, and the journals of its images (journal_linux_amd64.go). By
// these it is taken out as the recorder would have done it. All that is read is the process's word, so nothing is believed
// that does not agree with what the kernel says of its memory: what is unmapped is memory of its own without a file, and
// what is written into a file's pages is what the file has there. If anything does not agree, the process stays as it is.
//
// A recorder is gone if no process of its id, or one that began at another time, is in its PID namespace; of another
// namespace nobody knows. Who takes a tracer out says first, in the journals, that it is the recorder now, while all
// threads are stopped: so two who come at once do not get into each other's way.

// A journal is one that was read.
type journal struct {
	at   uint64
	h    [journalHeader]byte
	rest []byte // the lists, if it is whole
}

func (j *journal) word(i int) uint64 { return le.Uint64(j.h[8*i:]) }
func (j *journal) area(i int) area   { return area{j.word(i), j.word(i + 1)} }
func (j *journal) recorder() recorder {
	return recorder{j.word(jRecorder), j.word(jRecorder + 1), j.word(jRecorder + 2), j.word(jRecorder + 3)}
}

const mostJournal = 64 << 20 // all of a process's: 200,000 functions take 3 MB

// journals are those in a process, the home's first. It is at the beginning of a mapping, as what is in front of it is code.
func (ts *threads) journals(ms []mapping) (all []*journal, err error) {
	room := uint64(mostJournal)
	for _, m := range ms {
		j := &journal{at: m.lo}
		if m.perms != "r--p" || m.path != "" || ts.memory().ReadAt(j.h[:], m.lo) != nil ||
			j.word(jMagic) != le.Uint64([]byte(journalMagic)) || j.word(jSelf) != m.lo {
			continue
		}
		if j.word(jVersion) != journalVersion|homeVersion<<32 {
			return nil, errors.New("a tracer of another fentry is in it, whose recorder has ended without taking it out: that fentry's record -p does")
		}
		if j.word(jKind) > kindLibraryBeside {
			return nil, j.wrong("its kind")
		}
		size := j.word(jSelf + 1)
		if size < journalHeader || size%PageSize != 0 || size > min(m.hi-m.lo, room) {
			return nil, j.wrong("its size")
		}
		room -= size
		if j.word(jState) == journalWhole {
			j.rest = make([]byte, size-journalHeader)
			if err := ts.memory().ReadAt(j.rest, m.lo+journalHeader); err != nil {
				return nil, err
			}
		}
		all = append(all, j)
	}
	slices.SortStableFunc(all, func(a, b *journal) int { return a.rank() - b.rank() })
	return all, nil
}

func (j *journal) rank() int {
	if j.word(jKind) == kindHome {
		return 0
	}
	return 1
}

// wrong is the error for a journal that does not agree with what is there.
func (j *journal) wrong(what string) error {
	return fmt.Errorf("the tracer in it, whose recorder has ended, cannot be taken out: what it says of itself is not so (%s)", what)
}

// alive tells whether a recorder may be there. One that is about to end is waited for, until a deadline.
func (r recorder) alive(deadline time.Time) (bool, error) {
	here, err := thisRecorder()
	if err != nil {
		return true, err
	}
	if r.pids != here.pids || r.times != here.times {
		return true, nil // nobody knows
	}
	return !procfs.AwaitEnd(int(r.pid), r.start, deadline), nil
}

// Release takes a tracer out of a process whose recorder has ended without doing so, and returns how long that was stopped at
// most. The error is ErrNoRuntime if there is none.
func Release(pid int) (time.Duration, error) {
	if err := CheckAttach(pid); err != nil {
		return 0, err
	}
	ts, err := openThreads(pid)
	if err != nil {
		return 0, err
	}
	defer ts.close()
	there, err := ts.retire()
	if err != nil {
		return ts.longest, err
	}
	if !there {
		ms, err := ts.maps()
		if err == nil {
			err = ts.unrecorded(ms)
		}
		if err == nil {
			err = ErrNoRuntime
		}
		return 0, err
	}
	return ts.longest, nil
}

// BufferOf is the buffer of the tracer in a process.
func BufferOf(pid int) (procfs.SharedFile, bool) {
	ms, err := mapsOf(pid)
	if err != nil {
		return procfs.SharedFile{}, false
	}
	_, mem, err := openMemory(pid)
	if err != nil {
		return procfs.SharedFile{}, false
	}
	defer mem.Close()
	for _, m := range ms {
		magic := make([]byte, len(format.FileMagic))
		if m.perms != "rw-s" || (&Process{pid: pid, mem: mem}).ReadAt(magic, m.lo) != nil || string(magic) != format.FileMagic {
			continue
		}
		f := procfs.SharedFile{Path: m.path}
		fields := strings.Fields(m.key)
		if f.Inode, err = strconv.ParseUint(fields[len(fields)-1], 10, 64); err == nil {
			return f, true
		}
	}
	return procfs.SharedFile{}, false
}

// retire does so. It reports whether there was one. What a thread was made to unmap when the recorder was killed can go while this is
// looked at: then it is looked at again.
func (ts *threads) retire() (there bool, err error) {
	for tries := 1; ; tries++ {
		if there, err = ts.retireNow(); !errors.Is(err, unix.EIO) || tries == retireTries {
			return there, err
		}
		time.Sleep(leavePause)
	}
}

// retireTries is how often it is tried where what is read goes away.
const retireTries = 3

func (ts *threads) retireNow() (bool, error) {
	ms, err := ts.maps()
	if err != nil {
		return false, err
	}
	js, err := ts.journals(ms)
	if err != nil || len(js) == 0 || js[0].word(jKind) != kindHome {
		return false, err // without one it was started with a tracer
	}
	a, err := ts.claim(js)
	if err == nil {
		if err = a.retire(ts); err != nil {
			ts.unclaim(js)
		}
	}
	return true, err
}

// retire takes what journals name out of a process.
func (a *Attachment) retire(ts *threads) error {
	began := time.Now()
	for tries := 1; ; tries++ {
		if a.begun(ts.pid) {
			held, err := a.Detach(ts.pid)
			ts.longest = max(ts.longest, held)
			return left(err)
		}
		if done, err := a.unbegun(ts); err != nil || done {
			return left(err)
		}
		if tries >= leaveTries && time.Since(began) > insidePatience {
			return left(ErrInside)
		}
		time.Sleep(leavePause)
	}
}

// left is an error of taking out a tracer.
func left(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrEnded):
		return ErrEnded
	}
	return fmt.Errorf("the tracer of a recorder that has ended is in it, and cannot be taken out: %w", err)
}

// unclaim has the recorder be the one that is gone: this one has given up.
func (ts *threads) unclaim(js []*journal) {
	for _, j := range js {
		var now [journalHeader]byte
		if ts.memory().ReadAt(now[:], j.at) == nil && bytes.Equal(now[:8*jSelf+8], j.h[:8*jSelf+8]) {
			_ = ts.memory().WriteAt(j.h[8*jRecorder:][:4*8], j.at+8*jRecorder)
		}
	}
}

// claim makes this the recorder, if that of all journals is gone, and returns what they name.
func (ts *threads) claim(js []*journal) (a *Attachment, err error) {
	deadline := time.Now().Add(endPatience)
	for _, j := range js {
		if alive, err := j.recorder().alive(deadline); err != nil || alive {
			return nil, errors.Join(err, recordedBy(int(j.word(jRecorder)), j.word(jRecorder+2), 0))
		}
	}
	here, err := thisRecorder()
	if err != nil {
		return nil, err
	}
	// Files are read while the process runs: nobody else changes its code.
	ms, err := ts.maps()
	if err != nil {
		return nil, err
	}
	if a, err = ts.found(ms, js); err != nil {
		return nil, err
	}
	err = ts.within(false, func() error {
		var is [4 * 8]byte
		for _, j := range js { // somebody else can have been faster
			if err := ts.memory().ReadAt(is[:], j.at+8*jRecorder); err != nil {
				return err
			}
			if !bytes.Equal(is[:], j.h[8*jRecorder:][:len(is)]) {
				return recordedBy(int(le.Uint64(is[:])), le.Uint64(is[16:]), 0)
			}
		}
		var b []byte
		for _, w := range here.words() {
			b = le.AppendUint64(b, w)
		}
		for _, j := range js {
			if err := ts.memory().WriteAt(b, j.at+8*jRecorder); err != nil {
				return err
			}
		}
		return nil
	})
	return a, err
}

// begun tells whether the runtime of an attachment has begun, and not ended.
func (a *Attachment) begun(pid int) bool {
	r, err := OpenRuntime(pid)
	if err != nil {
		return false
	}
	defer r.Close()
	return a.images[0].home() && r.Has(a.images[0].m.Running.Image)
}

// unbegun takes out what nothing leads to: the recorder had not begun to change anything, or had changed all back. A thread can
// be in it that has been made to start the runtime, which goes on by itself: then it is not done.
func (a *Attachment) unbegun(ts *threads) (done bool, err error) {
	d := &detaching{a: a.whole(), ts: ts}
	err = ts.within(false, func() (err error) {
		if d.ms, err = ts.maps(); err != nil {
			return err
		}
		back := chosen(d.a.edits, true, func(*arch.Edit) bool { return true })
		if there, err := pending(ts.memory(), back); err != nil || len(there) > 0 {
			return errors.Join(err, errors.New("its code leads there, and its runtime is gone"))
		}
		for _, t := range ts.all {
			if err := ts.patient(); err != nil {
				return err
			}
			inside := d.occupied(t)
			if err := t.liveStack(d.ms, mostStack, func(at, v uint64) {
				inside = inside || at >= t.regs.sp() && d.a.inside(v) && interrupted(ts.memory(), at)
			}); err != nil || inside {
				return err
			}
		}
		done = true
		ts.forgetBlocks()
		return nil
	})
	if err != nil || !done || a.begun(ts.pid) {
		return false, err
	}
	return true, d.unmap()
}

// whole is all that journals name.
func (a *Attachment) whole() *Attachment {
	v := &Attachment{images: a.images, hooks: a.hooks, mapped: a.hooks.pages(), edits: slices.Clone(a.hooks.edits)}
	for _, im := range a.images {
		v.mapped = append(v.mapped, im.mapped...)
		v.edits = append(v.edits, im.edits...)
	}
	slices.SortStableFunc(v.edits, byAddress)
	return v
}
