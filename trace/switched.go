package trace

import (
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/fentry-dev/fentry/internal/format"
)

// A recorder that is to bound what tracing costs switches functions off while the program runs (session/internal/adapt).
// All calls of such a function before that moment are in the trace; of those after it some may be, from processes that
// learned of it later, and nobody counts the others. So whatever is said of it is a lower bound, and times in its
// callers have its own in them.

// A SwitchedOff is a function that the recorder has switched off.
type SwitchedOff struct {
	Func FuncID
	// From is when, in ns since the trace's start: calls that began later may be missing.
	From int64
	// Rate is how often a second the function was called before, by the threads that called too much, estimated.
	Rate uint32
}

// switchedOff is one as it stands in events.
type switchedOff struct {
	id, rate uint32
	counter  uint64
}

// maxSwitchedOff bounds how many are kept: more than a recorder can list.
const maxSwitchedOff = 1 << 20

// addSwitchedOff enters a chunk of functions that are switched off.
func (ix *index) addSwitchedOff(off int64, ch *chunkHead) error {
	le := binary.LittleEndian
	return ix.parts(off+ChunkHeaderSize, off+int64(ch.size), format.SwitchedOffEntry, func(b []byte) bool {
		ix.off = append(ix.off, switchedOff{
			le.Uint32(b[format.OID:]), le.Uint32(b[format.ORate:]), le.Uint64(b[format.OCounter:]),
		})
		return len(ix.off) < maxSwitchedOff
	})
}

// setSwitchedOff gives the functions that are switched off their names in the trace, and the times; of those that are
// there twice the first counts.
func (t *Trace) setSwitchedOff(all []switchedOff) {
	for _, o := range all {
		s := t.ranges.span(o.id, 0)
		if o.id-s.lo >= s.n || len(t.ranges) == 0 {
			continue // nobody's
		}
		t.SwitchedOff = append(t.SwitchedOff, SwitchedOff{FuncID{s.image, o.id - s.base}, t.Clock.Time(o.counter), o.rate})
	}
	slices.SortFunc(t.SwitchedOff, func(a, b SwitchedOff) int {
		return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.Func.Image, b.Func.Image), cmp.Compare(a.Func.ID, b.Func.ID))
	})
	t.off = make(map[FuncID]int64, len(t.SwitchedOff))
	t.SwitchedOff = slices.DeleteFunc(t.SwitchedOff, func(s SwitchedOff) bool {
		_, twice := t.off[s.Func]
		if !twice {
			t.off[s.Func] = s.From
		}
		return twice
	})
}

// OffFrom returns from when on calls of a function may be missing, in ns since the trace's start. ok is false if the
// recorder has not switched it off.
func (t *Trace) OffFrom(fn FuncID) (from int64, ok bool) {
	from, ok = t.off[fn]
	return from, ok
}

// WithSwitchedOff returns fn, for [Trace.Walk], with a SwitchOff event more for each function that the recorder
// switched off at the time from, or later, and that matches (nil: all do): in front of the first event that is not
// earlier, with the task and the depth of that one.
func (t *Trace) WithSwitchedOff(from int64, match func(FuncID) bool, fn func(*Event) error) func(*Event) error {
	var rest []SwitchedOff
	for _, s := range t.SwitchedOff {
		if s.From >= from && (match == nil || match(s.Func)) {
			rest = append(rest, s)
		}
	}
	if rest == nil {
		return fn
	}
	return func(ev *Event) error {
		for ; len(rest) > 0 && rest[0].From <= ev.Time; rest = rest[1:] {
			off := Event{
				Time: rest[0].From, Kind: SwitchOff, Func: rest[0].Func, Count: uint64(rest[0].Rate),
				Task: ev.Task, Comm: ev.Comm, Stack: ev.Stack, Depth: ev.Depth,
			}
			if err := fn(&off); err != nil {
				return err
			}
		}
		return fn(ev)
	}
}
