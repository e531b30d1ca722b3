package tracee

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fentry-dev/fentry/arch"
	"github.com/fentry-dev/fentry/internal/format"
	"github.com/fentry-dev/fentry/patch"
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

const mostJournal = 1 << 26 // 200,000 functions take 3 MB

// journals are those in a process, the home's first. It is at the beginning of a mapping, as what is in front of it is code.
func (ts *threads) journals(ms []mapping) (all []*journal, err error) {
	for _, m := range ms {
		j := &journal{at: m.lo}
		if m.perms != "r--p" || m.path != "" || ts.memory().ReadAt(j.h[:], m.lo) != nil ||
			j.word(jMagic) != le.Uint64([]byte(journalMagic)) || j.word(jSelf) != m.lo {
			continue
		}
		if j.word(jVersion) != journalVersion|homeVersion<<32 {
			return nil, errors.New("a tracer of another fentry is in it, whose recorder has ended without taking it out: that fentry's record -p does")
		}
		size := j.word(jSelf + 1)
		if size < journalHeader || size%PageSize != 0 || size > min(m.hi-m.lo, mostJournal) {
			return nil, j.wrong("its size")
		}
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

// alive tells whether a recorder may be there.
func (r recorder) alive() (bool, error) {
	here, err := thisRecorder()
	if err != nil {
		return true, err
	}
	if r.pids != here.pids || r.times != here.times {
		return true, nil // nobody knows
	}
	return procfs.ProcessAlive(int(r.pid), r.start), nil
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
	ms, err := readMaps(procfs.Dir(pid))
	if err != nil {
		return procfs.SharedFile{}, false
	}
	mem, err := os.Open(procfs.Dir(pid) + "/mem")
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

// retire does so. It reports whether there was one.
func (ts *threads) retire() (bool, error) {
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
	for tries := 1; ; tries++ {
		if a.begun(ts.pid) {
			held, err := a.Detach(ts.pid)
			ts.longest = max(ts.longest, held)
			return left(err)
		}
		if done, err := a.unbegun(ts); err != nil || done {
			return left(err)
		}
		if tries == leaveTries {
			return left(ErrInside)
		}
		time.Sleep(leavePause)
	}
}

// left is an error of taking out a tracer.
func left(err error) error {
	if err == nil || errors.Is(err, ErrEnded) {
		return err
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
	for _, j := range js {
		if alive, err := j.recorder().alive(); err != nil || alive {
			return nil, errors.Join(err, recordedBy(int(j.word(jRecorder)), j.word(jRecorder+2)))
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
				return recordedBy(int(le.Uint64(is[:])), le.Uint64(is[16:]))
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

// found is what journals name, the home first, if it agrees with what is there.
func (ts *threads) found(ms []mapping, js []*journal) (*Attachment, error) {
	a := &Attachment{seen: make(map[int][]*Library)}
	for i, j := range js {
		im, err := ts.image(ms, j)
		if err != nil {
			return nil, err
		}
		if home := j.word(jKind) == kindHome; home && i > 0 {
			return nil, j.wrong("it has two")
		}
		a.images = append(a.images, im)
		if j.word(jKind) == kindHome {
			if err := ts.foundHooks(ms, a, j); err != nil {
				return nil, err
			}
		}
		if s := j.area(jStack); s.signed(ts.memory()) && covers(ms, s, "rw-p") {
			im.stack, im.mapped = s, append(im.mapped, s)
		}
	}
	if !a.images[0].home() {
		return nil, js[0].wrong("it has no beginning")
	}
	if err := a.settled(); err != nil {
		return nil, js[0].because(err)
	}
	for i, im := range a.images {
		for _, o := range a.images[:i] {
			if overlap(im.mapped, o.mapped) {
				return nil, js[i].wrong("memory")
			}
		}
	}
	return a, nil
}

// settled drops edits that are not there as they were made. Another image's can be in the same place, which was made since; and what
// has been added later leaves places alone that somebody else has changed.
func (a *Attachment) settled() error {
	there := make(map[uint64]int)
	for _, im := range a.images {
		for i := range im.edits {
			if e := &im.edits[i]; e.Reason != disputed {
				there[e.Addr] = len(e.Old)
			}
		}
	}
	for _, im := range a.images {
		for i := range im.edits {
			e := &im.edits[i]
			if e.Reason == disputed && there[e.Addr] != len(e.Old) && !im.beside {
				return fmt.Errorf("what is at %#x is neither its file's nor the tracer's", e.Addr)
			}
		}
	}
	taken := make(map[uint64]bool)
	for _, im := range a.images {
		im.edits = slices.DeleteFunc(im.edits, func(e arch.Edit) bool {
			drop := e.Reason == disputed || taken[e.Addr]
			taken[e.Addr] = taken[e.Addr] || !drop
			return drop
		})
	}
	return nil
}

// disputed is the reason of an edit in whose place something else is.
const disputed = "disputed"

func overlap(some, others []area) bool {
	return slices.ContainsFunc(some, func(a area) bool {
		return slices.ContainsFunc(others, func(b area) bool { return a.at < b.at+b.size && b.at < a.at+a.size })
	})
}

// covers tells whether all of an area is memory without a file, of a kind.
func covers(ms []mapping, a area, perms string) bool {
	if a.at%PageSize != 0 || a.size%PageSize != 0 || a.at+a.size < a.at {
		return false
	}
	at := a.at
	for _, m := range ms {
		if m.lo <= at && at < m.hi && m.perms == perms && (m.path == "" || m.path == "[heap]") {
			at = m.hi
		}
	}
	return at >= a.at+a.size
}

// in tells whether so many bytes are in an area.
func (a area) has(at, n uint64) bool { return at-a.at < a.size && n <= a.size-(at-a.at) }

// image is what a journal names.
func (ts *threads) image(ms []mapping, j *journal) (*image, error) {
	rw, rx, bias, kind := j.area(jRW), j.area(jRX), j.word(jBias), j.word(jKind)
	whole := rx.size != 0 && j.word(jState) == journalWhole
	if rw.size != 0 && !covers(ms, rw, "rw-p") || rx.size != 0 && (!covers(ms, rx, "r-xp") || rx.at+rx.size != j.at) || kind > kindLibraryBeside ||
		bias%PageSize != 0 {
		return nil, j.wrong("memory")
	}
	im := &image{
		m: &patch.Memory{RXAddr: rx.at - bias, RWAddr: rw.at - bias, RWSize: rw.size, Running: &patch.Running{}}, bias: bias,
		beside: kind == kindBeside || kind == kindLibraryBeside, journal: j.at, size: rx.size,
	}
	for _, m := range []area{rw, rx, {j.at, j.word(jSelf + 1)}} {
		if m.size != 0 {
			im.mapped = append(im.mapped, m)
		}
	}
	if kind == kindLibrary || kind == kindLibraryBeside {
		im.library = &Library{pid: ts.pid, lo: j.word(jLibrary), hi: j.word(jLibrary + 1)}
	}
	if !whole {
		im.m.Running.Unwind = im.m.RXAddr + rx.size
		return im, nil
	}
	run := im.m.Running
	for i, w := range runningWords(run) {
		*w = j.word(jRunning + i)
	}
	traced := j.word(jTraced)
	run.Traced = int(traced)
	for _, routine := range []uint64{run.Remote, run.Attach, run.Areas, run.Shed, run.Leave} {
		if !rx.has(bias+routine, 1) {
			return nil, j.wrong("routines")
		}
	}
	if traced > format.IDMax || run.Thunk == 0 || run.Thunk > arch.ThunkSize || traced*run.Thunk > rx.size || run.Return >= run.Thunk ||
		traced > 0 && !rw.has(bias+run.Switches, traced) || bias+run.Unwind-rx.at > rx.size || im.home() && !rw.has(bias+run.Armed, 4) {
		return nil, j.wrong("functions")
	}
	return im, ts.foundLists(ms, j, im)
}

// foundLists reads the lists of a journal.
func (ts *threads) foundLists(ms []mapping, j *journal, im *image) error {
	list, waits, key := j.word(jEdits+1), j.word(jWaits), j.word(jKey)
	room := uint64(len(j.rest))
	if list > room || waits > room/16 || key > room || list+16*waits+key > room {
		return j.wrong("lists")
	}
	b := j.rest[list:]
	for range waits {
		im.m.Running.Waits = append(im.m.Running.Waits, patch.Wait{At: le.Uint64(b), Back: le.Uint64(b[8:])})
		b = b[16:]
	}
	in := func(m *mapping) bool { return true }
	if l := im.library; l != nil {
		l.key = string(b[:key])
		if !l.in(ms) || l.hi < l.lo {
			return nil // it has been unloaded
		}
		in = func(m *mapping) bool { return l.lo <= m.lo && m.hi <= l.hi }
	}
	edits, err := ts.foundEdits(ms, j.rest[:list], j.word(jEdits), j.word(jSum), in)
	if err != nil {
		return fmt.Errorf("%w", j.because(err))
	}
	im.edits = edits
	for _, w := range im.m.Running.Waits {
		if !slices.ContainsFunc(ms, func(m mapping) bool {
			return m.isFileCode() && m.perms[2] == 'x' && m.lo <= im.bias+w.Back && im.bias+w.Back < m.hi && in(&m)
		}) {
			return j.wrong("system calls")
		}
	}
	return nil
}

func (j *journal) because(err error) error {
	return fmt.Errorf("the tracer in it, whose recorder has ended, cannot be taken out: %w", err)
}

// foundHooks reads what the home's journal says of hooks.
func (ts *threads) foundHooks(ms []mapping, a *Attachment, j *journal) error {
	word := func(i int) uint64 { return le.Uint64(j.h[jHooks+8*i:]) }
	if word(0) == 0 {
		return nil // none are noted yet
	}
	if word(1) > journalHeader-jHooksList {
		return j.wrong("hooks")
	}
	for i := 3; i < 7; i += 2 {
		m := area{word(i), word(i + 1)}
		if m.size == 0 {
			m = area{} // its place in the list stays
		} else if m.size != PageSize || !covers(ms, m, "r-xp") {
			return j.wrong("hooks")
		}
		a.hooks.mapped = append(a.hooks.mapped, m)
	}
	edits, err := ts.foundEdits(ms, j.h[jHooksList:][:word(1)], word(0), word(2), func(*mapping) bool { return true })
	if err != nil {
		return j.because(err)
	}
	for i := range edits {
		if edits[i].Reason == disputed {
			return j.because(fmt.Errorf("what is at %#x is neither its file's nor the tracer's", edits[i].Addr))
		}
	}
	a.hooks.edits = edits
	return nil
}

// foundEdits are the edits of a list that are there, with what the file has in their places. It is an error if the file is not
// the one that was changed, or if something else is there.
func (ts *threads) foundEdits(ms []mapping, list []byte, n, sum uint64, in func(*mapping) bool) (all []arch.Edit, err error) {
	files := make(map[mapping]*os.File)
	defer func() {
		for _, f := range files {
			_ = f.Close() // perhaps nil
		}
	}()
	h, end := fnv.New64a(), uint64(0)
	var src window
	for ; n > 0; n-- {
		skip, k := binary.Uvarint(list)
		size, l := binary.Uvarint(list[max(k, 0):])
		if k <= 0 || l <= 0 {
			return nil, errors.New("what it says of itself is not so (code)")
		}
		list = list[k+l:]
		e := arch.Edit{Addr: end + skip}
		kind, length := size%editKinds, size/editKinds
		if length == 0 || length > mostJournal || e.Addr < end || e.Addr+length < e.Addr || kind != editTable && length > uint64(len(list)) {
			return nil, errors.New("what it says of itself is not so (code)")
		}
		end = e.Addr + length
		if src.now == nil || !src.has(e.Addr, length) {
			if src, err = ts.window(ms, e.Addr, length, files, in); err != nil {
				return nil, err
			}
		}
		e.Old, e.New = src.was[e.Addr-src.at:][:length:length], src.now[e.Addr-src.at:][:length:length]
		h.Write(e.Old)
		switch kind {
		case editTable:
			e.Reason = patch.ReasonUnwind
		case editLanding:
			e.Reason = patch.ToLanding.String()
		}
		if kind != editTable {
			if !bytes.Equal(e.New, list[:length]) {
				e.Reason = disputed
			}
			list = list[length:]
		}
		if !bytes.Equal(e.New, e.Old) {
			all = append(all, arch.Edit{Addr: e.Addr, Old: bytes.Clone(e.Old), New: bytes.Clone(e.New), Reason: e.Reason})
		}
	}
	if h.Sum64() != sum {
		return nil, errors.New("a file that it maps is not what it was")
	}
	return all, nil
}

// A window is a part of a mapping: what is there, and what the file has.
type window struct {
	area
	now, was []byte
}

const windowSize = 1 << 20

// window reads one from an address on, of at least so many bytes.
func (ts *threads) window(ms []mapping, at, least uint64, files map[mapping]*os.File, in func(*mapping) bool) (w window, err error) {
	i := slices.IndexFunc(ms, func(m mapping) bool { return m.lo <= at && at < m.hi })
	if i < 0 || ms[i].hi-at < least || !ms[i].isFileCode() || !in(&ms[i]) {
		return w, fmt.Errorf("no code of a file is at %#x", at)
	}
	m := ms[i]
	f, known := files[m]
	if !known {
		f = ts.fileOf(&m)
		files[m] = f
	}
	offset, _, _ := strings.Cut(m.key, " ")
	begin, err := strconv.ParseInt(offset, 16, 64)
	if f == nil || err != nil {
		return w, fmt.Errorf("%s cannot be read, which has what was changed", m.path)
	}
	w.area = area{at, max(least, min(m.hi-at, windowSize))}
	w.now, w.was = make([]byte, w.size), make([]byte, w.size)
	n, err := f.ReadAt(w.was, begin+int64(at-m.lo))
	if err != nil && !errors.Is(err, io.EOF) {
		return w, err
	}
	w.size = uint64(n)
	if w.size < least {
		return w, fmt.Errorf("%s is shorter than what it maps", m.path)
	}
	w.was, w.now = w.was[:n], w.now[:n]
	return w, ts.memory().ReadAt(w.now, at)
}
