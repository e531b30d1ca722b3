package view

import (
	"container/list"
	"errors"
	"sync"

	"github.com/fentry-dev/fentry/internal/parallel"
	"github.com/fentry-dev/fentry/internal/safetext"
	"github.com/fentry-dev/fentry/trace"
)

// Close up, all tiles of a screen, and those of many zooms and pans, are of the same few blocks of the index. So a block
// is decoded once, to what tiles want of it: the calls that begin and end there, and the notes. The blocks used last are
// kept, up to a number of bytes. Who wants a block that is being decoded waits for it.

const (
	keptBlocks = 64 << 20 // bytes
	callBytes  = 40       // of a call
	// mostNotes is how many notes of a block are kept, with their texts. Where there are more, the block is gone through
	// for those of each tile.
	mostNotes = 2048
)

// A block is what was decoded of a block of the index.
type block struct {
	calls   []call // that begin and end in it, by their ends
	notes   []Note
	crowded bool // there are more notes
}

// A blockKey is a block of a task.
type blockKey struct{ task, block int }

// A blockEntry is a block that is kept, or is being decoded.
type blockEntry struct {
	key   blockKey
	once  sync.Once
	block *block
	err   error
	bytes int // 0 until it is decoded
}

// blocks keeps blocks.
type blocks struct {
	mu    sync.Mutex
	bytes int
	used  *list.List // of *blockEntry, the newest first
	byKey map[blockKey]*list.Element
}

func newBlocks() *blocks { return &blocks{used: list.New(), byKey: map[blockKey]*list.Element{}} }

// errUndecoded is what is known of a block whose decoding has not come to its end.
var errUndecoded = errors.New("a block could not be read")

// get returns a block, which decode makes if it is not there.
func (s *blocks) get(key blockKey, decode func() (*block, error)) (*block, error) {
	s.mu.Lock()
	at := s.byKey[key]
	if at == nil {
		at = s.used.PushFront(&blockEntry{key: key, err: errUndecoded})
		s.byKey[key] = at
	} else {
		s.used.MoveToFront(at)
	}
	s.mu.Unlock()
	e := at.Value.(*blockEntry)
	e.once.Do(func() {
		defer s.made(at, e) // also if the file that is mapped has become shorter, which is a panic
		e.block, e.err = decode()
	})
	return e.block, e.err
}

// made counts what a block takes, and lets go of those used least.
func (s *blocks) made(at *list.Element, e *blockEntry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byKey[e.key] != at {
		return // it was let go of meanwhile
	}
	if e.err != nil {
		s.remove(at)
		return
	}
	e.bytes = callBytes * cap(e.block.calls)
	for i := range e.block.notes {
		e.bytes += 64 + len(e.block.notes[i].Text)
	}
	s.bytes += e.bytes
	for s.bytes > keptBlocks && s.used.Back() != at {
		s.remove(s.used.Back())
	}
}

func (s *blocks) remove(at *list.Element) {
	e := s.used.Remove(at).(*blockEntry)
	delete(s.byKey, e.key)
	s.bytes -= e.bytes
}

// missing returns how many blocks of a task, of some runs, are not there.
func (s *blocks) missing(task int, runs [][2]int) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range runs {
		for i := r[0]; i < r[1]; i++ {
			if s.byKey[blockKey{task, i}] == nil {
				n++
			}
		}
	}
	return n
}

// eachBlock calls fn with blocks of a task, of some runs, in order. Some are decoded at a time.
func (v *Viewer) eachBlock(task int, runs [][2]int, fn func(i int, b *block) error) error {
	const sideBySide = 16
	var list []int
	for _, r := range runs {
		for i := r[0]; i < r[1]; i++ {
			list = append(list, i)
		}
	}
	for len(list) > 0 {
		part := list[:min(sideBySide, len(list))]
		list = list[len(part):]
		got, errs := make([]*block, len(part)), make([]error, len(part))
		parallel.Do(len(part), func(n int) {
			got[n], errs[n] = v.blocks.get(blockKey{task, part[n]}, func() (*block, error) { return v.decode(task, part[n]) })
		})
		for n, i := range part {
			err := errs[n]
			if err == nil {
				err = fn(i, got[n])
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// decode decodes a block of a task that has an outline. Calls of the outline are not in it: those that cross a border,
// and those that are open when the task begins or ends.
func (v *Viewer) decode(task, i int) (*block, error) {
	k := v.t.Tasks[task]
	o := v.outline(k)
	outer := map[callKey]bool{}
	if from, to := o.Borders[i].First, max(o.Borders[i].Last, o.Borders[i+1].Time); i == 0 || i == len(o.Borders)-2 {
		for n := range o.Calls {
			if c := &o.Calls[n]; c.End >= from && c.Start <= to {
				outer[callKey{c.Func, c.Start, c.Stack, c.Depth}] = true
			}
		}
	}
	b := &block{}
	f := callFinder{inherited: i == 0}
	err := v.t.WalkBlock(k, i, func(ev *trace.Event) error {
		c, ok := f.take(ev)
		switch {
		case ok:
			if len(outer) == 0 || !outer[c.key()] {
				b.calls = append(b.calls, c)
			}
		case !isNote(ev):
		case len(b.notes) == mostNotes:
			b.crowded = true
		default:
			b.notes = append(b.notes, v.noteOf(ev))
		}
		return nil
	})
	return b, err
}

// A callFinder finds calls in the events of a task from some place on.
type callFinder struct {
	all       bool // those that began before are wanted, too,
	inherited bool // or those of them that were inherited

	open  map[uint64]*[]int64 // by stack, when the calls began; -1: before
	now   *[]int64            // that of a stack
	stack uint64
}

// take takes the next event. It returns the call that the event is the end of, if it is, and the call is wanted.
func (f *callFinder) take(ev *trace.Event) (c call, ok bool) {
	if f.now == nil || ev.Stack != f.stack {
		if f.stack, f.now = ev.Stack, f.open[ev.Stack]; f.now == nil {
			if f.open == nil {
				f.open = map[uint64]*[]int64{}
			}
			f.now = new([]int64)
			f.open[ev.Stack] = f.now
		}
	}
	st := *f.now
	switch ev.Kind {
	case trace.Entry:
		if ev.Flags&trace.FlagEntryOnly != 0 {
			return call{ev.Func, ev.Time, ev.Time, ev.Stack, 0, ev.Kind}, true
		}
		for len(st) < ev.Depth && len(st) < maxRows {
			st = append(st, -1)
		}
		if ev.Depth < maxRows {
			st = append(st[:ev.Depth], ev.Time)
		}
		*f.now = st
	case trace.Exit, trace.Unwound, trace.Unfinished:
		if ev.Flags&(trace.FlagNoEntry|trace.FlagResumed) != 0 {
			return call{}, false
		}
		start := int64(-1)
		if ev.Depth < len(st) {
			start = st[ev.Depth]
			*f.now = st[:ev.Depth]
		}
		if start < 0 {
			if !f.all && (!f.inherited || ev.Flags&trace.FlagInherited == 0) {
				return call{}, false // it crosses a border
			}
			start = ev.Time - ev.Dur
		}
		return call{ev.Func, start, ev.Time, ev.Stack, int32(ev.Depth), ev.Kind}, true
	}
	return call{}, false
}

// isNote tells whether an event is shown as a note.
func isNote(ev *trace.Event) bool {
	switch ev.Kind {
	case trace.Entry, trace.Exit, trace.Unwound, trace.Unfinished, trace.Stack, trace.Skipped:
		return false
	}
	return true
}

// noteOf returns an event as a note.
func (v *Viewer) noteOf(ev *trace.Event) Note {
	text := v.noteText(ev)
	if len(text) > noteBytes {
		text = text[:noteBytes] + "..."
	}
	return Note{ev.Time, ev.Kind.String(), safetext.Line(text)}
}
