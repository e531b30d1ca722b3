package tracee

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"hash/fnv"
	"iter"
	"os"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/arch"
	"github.com/fentry-dev/fentry/patch"
	"github.com/fentry-dev/fentry/session/internal/procfs"
)

// What a process keeps for whoever finds it when its recorder was killed.
//
// Behind the code that an image gets, in memory that can only be read, stands what it takes to take the image out again: its
// journal. The recorder writes it before it changes anything, and says in it what is there: memory that is given back is
// struck out first. So wherever the recorder is killed, the journal names nothing that is not the tracer's, and if it is
// not whole, no code of the image has been changed. It does not have the bytes that were changed: those are in the file that
// the process maps, and the journal has their sum. Children that are forked have it, too.
//
// The header is words, the rest lists of numbers. How it is read is in found_linux_amd64.go.

const (
	journalMagic   = "fentry:J"
	journalVersion = 2
	journalHeader  = 4096 // the lists begin behind it
)

// Words of the header, by number.
const (
	jMagic    = 0
	jVersion  = 1  // the journal's, and the runtime's
	jSelf     = 2  // where the journal is, and its size
	jState    = 4  // how far the recorder is
	jRW       = 5  // address and size of the image's memory
	jRX       = 7  // ... of its code
	jStack    = 9  // ... of a stack that routines run on
	jKind     = 11 // what the image is
	jBias     = 12
	jLibrary  = 13 // where the library is
	jRecorder = 15 // who records: four words
	jSum      = 19 // of what was there
	jEdits    = 20 // how many edits there are, and bytes of their list
	jWaits    = 22 // how many places where threads wait
	jKey      = 23 // bytes of the library's key
	jTraced   = 24 // how many functions are traced
	jRunning  = 25 // what is known of the image
	jFinder   = 48 // the word by which unwinders are led, what was in it and what is
)

// jHooks is where the home's header has the hooks: how many edits there are, the bytes of their list, their sum, two areas, and
// the list.
const jHooks, jHooksList = 512, 512 + 7*8

const (
	journalBegun = 1 // only the memory is named
	journalWhole = 2
)

// journalKind says what an image is.
const (
	kindLibrary = iota
	kindHome
	kindBeside // more functions of the program
	kindLibraryBeside
)

func (im *image) kind() uint64 {
	switch {
	case im.home():
		return kindHome
	case im.library == nil:
		return kindBeside
	case im.beside:
		return kindLibraryBeside
	}
	return kindLibrary
}

// A recorder is who records a process.
type recorder struct{ pid, start, pids, times uint64 }

// thisRecorder is this process.
var thisRecorder = sync.OnceValues(func() (r recorder, err error) {
	s, err := procfs.ReadStat("/proc/self/stat")
	var pids, times unix.Stat_t
	if err == nil {
		err = unix.Stat("/proc/self/ns/pid", &pids)
	}
	_ = unix.Stat("/proc/self/ns/time", &times) // a kernel before 5.6 has none
	return recorder{uint64(os.Getpid()), s.Start, pids.Ino, times.Ino}, err
})

// words are the recorder's in a header.
func (r recorder) words() []uint64 { return []uint64{r.pid, r.start, r.pids, r.times} }

// note makes the image's journal, which is so part of what is added. What it changes can be what others have made of a place.
func (im *image) note(others []*image) error {
	who, err := thisRecorder()
	if err != nil {
		return err
	}
	edits := im.planned()
	if im.beside {
		onFile(edits, others)
	}
	list, sum := listEdits(edits)
	run, key := im.m.Running, ""
	h := make([]uint64, journalHeader/8)
	if im.library != nil {
		key, h[jLibrary], h[jLibrary+1] = im.library.key, im.library.lo, im.library.hi
	}
	h[jMagic], h[jVersion] = le.Uint64([]byte(journalMagic)), journalVersion|homeVersion<<32
	h[jKind], h[jBias] = im.kind(), im.bias
	copy(h[jRecorder:], who.words())
	h[jSum], h[jEdits], h[jEdits+1] = sum, uint64(len(edits)), uint64(len(list))
	h[jTraced] = uint64(run.Traced)
	h[jWaits], h[jKey] = uint64(len(run.Waits)), uint64(len(key))
	for i, w := range runningWords(run) {
		h[jRunning+i] = *w
	}
	var b []byte
	for _, w := range h {
		b = le.AppendUint64(b, w)
	}
	b = append(b, list...)
	for _, w := range run.Waits {
		b = le.AppendUint64(le.AppendUint64(b, w.At), w.Back)
	}
	b = append(b, key...)
	im.notes = append(b, make([]byte, pageUp(uint64(len(b)))-uint64(len(b)))...)
	_, im.journal = im.code()
	setWord(im.notes, jSelf, im.journal)
	setWord(im.notes, jSelf+1, uint64(len(im.notes)))
	setWord(im.notes, jRX, im.bias+im.m.RXAddr)
	setWord(im.notes, jRX+1, pageUp(im.m.Size()))
	if size := pageUp(im.m.RWSize); size > 0 {
		setWord(im.notes, jRW, im.bias+im.m.RWAddr)
		setWord(im.notes, jRW+1, size)
	}
	return nil
}

// onFile has edits say what files have, where they change what others have made of a place.
func onFile(edits []arch.Edit, others []*image) {
	before := (&Attachment{images: others}).planned()
	for i := range edits {
		e := &edits[i]
		k, _ := slices.BinarySearchFunc(before, e.Addr, func(o arch.Edit, at uint64) int { return cmp.Compare(o.Addr, at) })
		for ; k < len(before) && before[k].Addr == e.Addr; k++ {
			if bytes.Equal(before[k].New, e.Old) {
				e.Old = before[k].Old
				break
			}
		}
	}
}

func setWord(b []byte, i int, v uint64) { le.PutUint64(b[8*i:], v) }

// runningWords are the numbers of what is known of an image, but for how many functions are traced.
func runningWords(r *patch.Running) []*uint64 {
	return []*uint64{&r.Image, &r.Remote, &r.Attach, &r.Areas, &r.Shed, &r.Leave, &r.Armed, &r.Switches, &r.Unwind, &r.Return, &r.Thunk, &r.Shadow}
}

// code is where the image's code is; its journal follows.
func (im *image) code() (lo, hi uint64) {
	lo = im.bias + im.m.RXAddr
	return lo, lo + max(im.size, pageUp(im.m.Size()))
}

// Kinds of edits, in their lists.
const (
	editSite = iota
	editLanding
	editTable
	editKinds
)

// listEdits lists edits, which are sorted: how far each is from the end of the one before, its size and kind, and what is there
// now, if it is not a table, which can be long. It returns the sum of what was there, too.
func listEdits(edits []arch.Edit) (list []byte, sum uint64) {
	h := fnv.New64a()
	end := uint64(0)
	for i := range edits {
		e := &edits[i]
		kind := uint64(editSite)
		switch {
		case isTable(e):
			kind = editTable
		case isLate(e):
			kind = editLanding
		}
		list = binary.AppendUvarint(list, e.Addr-end)
		list = binary.AppendUvarint(list, uint64(len(e.Old))*editKinds+kind)
		if kind != editTable {
			list = append(list, e.New...)
		}
		end = endOf(e)
		h.Write(e.Old)
	}
	return list, h.Sum64()
}

// begin writes the header, which names the image's memory, and a stack that routines run on.
func (im *image) begin(mem *Process, stack *remoteStack) error {
	setWord(im.notes, jState, journalBegun)
	if stack != nil {
		setWord(im.notes, jStack, stack.lo)
		setWord(im.notes, jStack+1, stack.hi-stack.lo)
		stack.noted = im.journal + 8*jStack
		if err := stack.sign(mem); err != nil {
			return err
		}
	}
	return mem.WriteAt(im.notes[:journalHeader], im.journal)
}

// complete writes the rest, before anything is changed.
func (im *image) complete(mem *Process) error {
	err := mem.WriteAt(im.notes[journalHeader:], im.journal+journalHeader)
	if err == nil {
		err = mem.WriteAt(le.AppendUint64(nil, journalWhole), im.journal+8*jState)
	}
	im.notes = nil
	return err
}

// noteHooks adds the hooks to the home's journal, before they are there.
func (im *image) noteHooks(mem *Process, pages []area, edits []arch.Edit) error {
	list, sum := listEdits(edits)
	if len(list) > journalHeader-jHooksList || len(pages) > 2 {
		return errors.New("it has more places where it executes programs than are noted")
	}
	b := make([]byte, jHooksList-jHooks)
	setWord(b, 0, uint64(len(edits)))
	setWord(b, 1, uint64(len(list)))
	setWord(b, 2, sum)
	for i, p := range pages {
		setWord(b, 3+2*i, p.at)
		setWord(b, 4+2*i, p.size)
	}
	if err := mem.WriteAt(list, im.journal+jHooksList); err != nil {
		return err
	}
	return mem.WriteAt(b, im.journal+jHooks)
}

// noteStack names a stack in a journal.
func noteStack(mem *Process, journal uint64, s *remoteStack) error {
	s.noted = journal + 8*jStack
	if err := s.sign(mem); err != nil {
		return err
	}
	return mem.WriteAt(le.AppendUint64(le.AppendUint64(nil, s.lo), s.hi-s.lo), s.noted)
}

// A stack ends with words that say so: children do not have it, but a journal that names it, and something else can be there.
func (s *remoteStack) signature() []byte {
	return le.AppendUint64([]byte("fentry:S"), s.lo)
}

func (s *remoteStack) sign(mem *Process) error { return mem.WriteAt(s.signature(), s.hi-16) }

// signed tells whether an area is a stack.
func (a area) signed(mem *Process) bool {
	s := remoteStack{lo: a.at, hi: a.at + a.size}
	b := make([]byte, 16)
	return a.size == remoteStackSize && mem.ReadAt(b, s.hi-16) == nil && bytes.Equal(b, s.signature())
}

// slots are where journals name what was mapped, by address. What is given back is struck out there first.
func (a *Attachment) slots() map[uint64]uint64 {
	at := make(map[uint64]uint64)
	for im := range a.noted() {
		if im.m.RWSize > 0 {
			at[im.bias+im.m.RWAddr] = im.journal + 8*jRW
		}
		at[im.bias+im.m.RXAddr] = im.journal + 8*jRX
		if im.stack.size > 0 {
			at[im.stack.at] = im.journal + 8*jStack
		}
		if im.home() {
			for i, h := range a.hooks.mapped {
				at[h.at] = im.journal + jHooks + 8*uint64(3+2*i)
			}
		}
	}
	return at
}

// closeJournals has them name memory alone: nothing leads there any more, and it is about to be given back.
func (a *Attachment) closeJournals(mem *Process) error {
	for im := range a.noted() {
		if err := mem.WriteAt(le.AppendUint64(nil, journalBegun), im.journal+8*jState); err != nil {
			return err
		}
	}
	return nil
}

// noted are the images whose journals are mapped.
func (a *Attachment) noted() iter.Seq[*image] {
	return func(yield func(*image) bool) {
		for _, images := range [][]*image{a.images, a.apart} {
			for _, im := range images {
				there := func(m area) bool { return m.at == im.journal }
				if im.journal != 0 && slices.ContainsFunc(a.mapped, there) && !yield(im) {
					return
				}
			}
		}
	}
}

// isFileCode tells mappings of files that a process cannot write to: code and tables of images are there.
func (m *mapping) isFileCode() bool {
	return strings.HasPrefix(m.path, "/") && len(m.perms) == 4 && m.perms[1] != 'w' && m.perms[3] == 'p'
}
