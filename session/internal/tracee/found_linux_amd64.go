package tracee

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"slices"
	"sort"

	"github.com/fentry-dev/fentry/arch"
	"github.com/fentry-dev/fentry/internal/format"
	"github.com/fentry-dev/fentry/patch"
)

// What the journals in a process name, as far as it agrees with what the kernel and the files say.

// A finder reads what they name. A process can say anything of itself, so there is a limit to what that makes the reader read, and
// keep: a few bytes can name much, and a process can map far more than there is memory.
type finder struct {
	ts    *threads
	ms    []mapping // by address
	files map[mapping]*os.File
	read  uint64 // bytes of code that were read
	named uint64 // bytes that edits are long, and at least leastNamed each
}

const (
	mostNamed  = 64 << 20 // 200,000 functions take 4 MiB
	leastNamed = 16       // what is kept of an edit is several times as much
	mostRead   = 8 << 30
	codeReach  = 2 << 30 // from an image's code to what it changes, as branches reach no further
)

func (f *finder) close() {
	for _, file := range f.files {
		_ = file.Close() // perhaps nil
	}
}

// at returns which mapping an address is in; nil: none.
func (f *finder) at(addr uint64) *mapping {
	if i := f.after(addr); i < len(f.ms) && f.ms[i].lo <= addr {
		return &f.ms[i]
	}
	return nil
}

// after returns which mapping is the first one that does not end in front of an address.
func (f *finder) after(addr uint64) int {
	return sort.Search(len(f.ms), func(i int) bool { return f.ms[i].hi > addr })
}

// found is what journals name, the home first, if it agrees with what is there.
func (ts *threads) found(ms []mapping, js []*journal) (*Attachment, error) {
	f := &finder{ts: ts, ms: ms, files: make(map[mapping]*os.File)}
	defer f.close()
	a := &Attachment{seen: make(map[int][]*Library)}
	for i, j := range js {
		im, err := f.image(j)
		if err != nil {
			return nil, err
		}
		if home := j.word(jKind) == kindHome; home && i > 0 {
			return nil, j.wrong("it has two")
		}
		a.images = append(a.images, im)
		if j.word(jKind) == kindHome {
			if err := f.hooks(a, j); err != nil {
				return nil, err
			}
		}
		if s := j.area(jStack); s.signed(ts.memory()) && f.covers(s, "rw-p") {
			im.stack, im.mapped = s, append(im.mapped, s)
		}
	}
	if !a.images[0].home() {
		return nil, js[0].wrong("it has no beginning")
	}
	if err := a.settled(); err != nil {
		return nil, js[0].because(err)
	}
	if overlap(a.whole().mapped) {
		return nil, js[0].wrong("memory")
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

// overlap tells whether some areas do.
func overlap(areas []area) bool {
	areas = slices.DeleteFunc(slices.Clone(areas), func(a area) bool { return a.size == 0 })
	slices.SortFunc(areas, func(a, b area) int { return cmp.Compare(a.at, b.at) })
	for i := 1; i < len(areas); i++ {
		if areas[i-1].at+areas[i-1].size > areas[i].at {
			return true
		}
	}
	return false
}

// covers tells whether all of an area is memory without a file, of a kind.
func (f *finder) covers(a area, perms string) bool {
	if a.at%PageSize != 0 || a.size%PageSize != 0 || a.at+a.size < a.at {
		return false
	}
	at := a.at
	for _, m := range f.ms[f.after(at):] {
		if at >= a.at+a.size || m.lo > at || m.perms != perms || m.path != "" && m.path != "[heap]" {
			break
		}
		at = m.hi
	}
	return at >= a.at+a.size
}

// has tells whether so many bytes are in an area.
func (a area) has(at, n uint64) bool { return at-a.at < a.size && n <= a.size-(at-a.at) }

// image is what a journal names.
func (f *finder) image(j *journal) (*image, error) {
	rw, rx, bias, kind := j.area(jRW), j.area(jRX), j.word(jBias), j.word(jKind)
	whole := rx.size != 0 && j.word(jState) == journalWhole
	if rw.size != 0 && !f.covers(rw, "rw-p") || rx.size != 0 && (!f.covers(rx, "r-xp") || rx.at+rx.size != j.at) ||
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
		im.library = &Library{pid: f.ts.pid, lo: j.word(jLibrary), hi: j.word(jLibrary + 1)}
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
	return im, f.lists(j, im)
}

// lists reads the lists of a journal.
func (f *finder) lists(j *journal, im *image) error {
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
	lo, _ := im.code()
	within := area{lo - min(lo, codeReach), 2 * codeReach}
	if l := im.library; l != nil {
		l.key = string(b[:key])
		if !l.in(f.ms) || l.hi < l.lo {
			return nil // it has been unloaded
		}
		within = area{l.lo, l.hi - l.lo}
	}
	edits, err := f.edits(j.rest[:list], j.word(jEdits), j.word(jSum), within)
	if err != nil {
		return j.because(err)
	}
	im.edits = edits
	for _, w := range im.m.Running.Waits {
		if m := f.at(im.bias + w.Back); m == nil || !m.isFileCode() || m.perms[2] != 'x' || !within.has(im.bias+w.Back, 1) {
			return j.wrong("system calls")
		}
	}
	return nil
}

func (j *journal) because(err error) error {
	if errors.Is(err, ErrEnded) {
		return ErrEnded
	}
	return fmt.Errorf("the tracer in it, whose recorder has ended, cannot be taken out: %w", err)
}

// hooks reads what the home's journal says of hooks.
func (f *finder) hooks(a *Attachment, j *journal) error {
	word := func(i int) uint64 { return le.Uint64(j.h[jHooks+8*i:]) }
	if err := f.findHook(a, j); err != nil {
		return err
	}
	if word(2) == 0 {
		return nil // none are noted yet: sums are not 0
	}
	if word(1) > journalHeader-jHooksList {
		return j.wrong("hooks")
	}
	for i := 3; i < 7; i += 2 {
		m := area{word(i), word(i + 1)}
		if m.size == 0 {
			m = area{} // its place in the list stays
		} else if m.size != PageSize || !f.covers(m, "r-xp") {
			return j.wrong("hooks")
		}
		a.hooks.mapped = append(a.hooks.mapped, m)
	}
	edits, err := f.edits(j.h[jHooksList:][:word(1)], word(0), word(2), area{0, ^uint64(0)})
	if err != nil {
		return j.because(err)
	}
	for i := range edits {
		if edits[i].Reason == disputed {
			return j.because(fmt.Errorf("what is at %#x is neither its file's nor the tracer's", edits[i].Addr))
		}
	}
	a.hooks.edits = append(a.hooks.edits, edits...)
	slices.SortFunc(a.hooks.edits, byAddress)
	return nil
}

// findHook reads what it says of the word that unwinders are led by: what was there is in no file.
func (f *finder) findHook(a *Attachment, j *journal) error {
	var h findHook
	for i, w := range h.words() {
		*w = j.word(jFinder + i)
	}
	if h.at == 0 {
		return nil
	}
	rx := j.area(jRX)
	a.hooks.finder = h
	if err := h.check(f.ms); err != nil || rx.size != 0 && !rx.has(h.to, 1) {
		return j.wrong("unwinders")
	}
	switch now, err := f.ts.word(h.at); {
	case err != nil:
		return err
	case now == h.to:
		a.hooks.edits = append(a.hooks.edits, h.edit())
	case now != h.was:
		return j.because(fmt.Errorf("what is at %#x is neither what was there nor the tracer's", h.at))
	}
	return nil
}

// edits are those of a list that are there, with what the file has in their places. It is an error if the file is not the one that
// was changed, or if something else is there.
func (f *finder) edits(list []byte, n, sum uint64, within area) (all []arch.Edit, err error) {
	h, end := fnv.New64a(), uint64(0)
	var src window
	for ; n > 0; n-- {
		skip, k := binary.Uvarint(list)
		size, l := binary.Uvarint(list[max(k, 0):])
		if k <= 0 || l <= 0 {
			return nil, errCode
		}
		list = list[k+l:]
		e := arch.Edit{Addr: end + skip}
		kind, length := size%editKinds, size/editKinds
		if length == 0 || length > mostNamed-min(f.named, mostNamed) || e.Addr < end || !within.has(e.Addr, length) ||
			kind != editTable && length > uint64(len(list)) {
			return nil, errCode
		}
		f.named += max(length, leastNamed)
		end = e.Addr + length
		if src.now == nil || !src.has(e.Addr, length) {
			if src, err = f.window(e.Addr, length); err != nil {
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

// errCode is for edits that are nowhere, or endless.
var errCode = errors.New("what it says of itself is not so (code)")

// A window is a part of a mapping: what is there, and what the file has.
type window struct {
	area
	now, was []byte
}

const windowSize = 1 << 20

// window reads one from an address on, of at least so many bytes.
func (f *finder) window(at, least uint64) (w window, err error) {
	m := f.at(at)
	if m == nil || m.hi-at < least || !m.isFileCode() {
		return w, fmt.Errorf("no code of a file is at %#x", at)
	}
	file, known := f.files[*m]
	if !known {
		file = f.ts.fileOf(m)
		f.files[*m] = file
	}
	begin, err := m.offset()
	if file == nil || err != nil {
		return w, fmt.Errorf("%s cannot be read, which has what was changed", m.path)
	}
	w.area = area{at, max(least, min(m.hi-at, windowSize))}
	if f.read += w.size; f.read > mostRead {
		return w, errCode
	}
	w.now, w.was = make([]byte, w.size), make([]byte, w.size)
	n, err := file.ReadAt(w.was, begin+int64(at-m.lo))
	if err != nil && !errors.Is(err, io.EOF) {
		return w, err
	}
	w.size = uint64(n)
	if w.size < least {
		return w, fmt.Errorf("%s is shorter than what it maps", m.path)
	}
	w.was, w.now = w.was[:n], w.now[:n]
	return w, f.ts.memory().ReadAt(w.now, at)
}
