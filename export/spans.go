package export

import (
	"fmt"

	"github.com/fentry-dev/fentry/trace"
)

// Formats that show what happened over time want spans: on each track, calls begin and end in order of time, and nest.
// A trace's events are nearly that. What is not: a thread that runs on several stacks, as with coroutines and signal
// handlers on stacks of their own, has calls that do not nest, so each stack is a track; ends of calls whose beginnings
// nobody has seen; coroutines' calls that are unwound and return nevertheless; calls that a forked child shares with its
// parent; events out of order by a few ticks. Spans sorts that out once, for all formats.

// A Track is one stack of a task. Calls on it nest.
type Track struct {
	Task  *trace.Task
	Stack uint64 // number of the stack in the process
	Index int    // from 0, in the order tracks appear
	// Event is the event of the call that Begin or End is called for; nil if the end follows from another one.
	Event *trace.Event
	open  []span
	last  int64 // time of the newest span's begin or end
}

type span struct {
	fn    trace.FuncID
	depth int
}

// Main tells whether the track is the stack that the task began on.
func (k *Track) Main() bool { return k.Stack == k.Task.Stack }

// Name is the track's name for people.
func (k *Track) Name() string {
	if k.Main() {
		return TaskName(k.Task)
	}
	return fmt.Sprintf("%s, stack %d", TaskName(k.Task), k.Stack)
}

// TaskName is a task's name for people, who see its number beside it: the number of a thread, or of a goroutine, all of
// which would have the name of the program.
func TaskName(k *trace.Task) string {
	if k.Goroutine != 0 {
		return "goroutine"
	}
	return k.Comm
}

// A SpanWriter is what Spans writes to. Times of a track never decrease, and each End is that of the newest Begin that
// has none.
type SpanWriter interface {
	// Begin and End are those of a call of fn.
	Begin(k *Track, at int64, fn trace.FuncID) error
	End(k *Track, at int64, fn trace.FuncID) error
	// Note is an event that is no call's, or an Entry of the function tracer, which has no end.
	Note(k *Track, at int64, ev *trace.Event) error
}

// Spans turns events, as they come from Source.Walk, into spans.
type Spans struct {
	W   SpanWriter
	Sum *Summary // what is left out is counted here, as are calls
	// Values says that W writes arguments and results, which it finds in Track.Event.
	Values bool

	tracks []*Track
	tasks  map[*trace.Task]map[uint64]*Track
	newest *Track
}

// Resumed names, in a Summary, the returns of coroutines' calls whose first end was that they were unwound.
const Resumed = "returns of calls that had been unwound"

// Event takes the next event.
func (s *Spans) Event(ev *trace.Event) error {
	k := s.track(ev)
	at := max(ev.Time, k.last)
	k.last = at
	if !s.Values {
		s.Sum.LeaveValues(ev)
	}
	switch ev.Kind {
	case trace.Entry:
		if ev.Flags&trace.FlagEntryOnly != 0 {
			s.Sum.Calls++
			return s.W.Note(k, at, ev)
		}
		if err := s.cut(k, at, ev.Depth); err != nil {
			return err
		}
		k.open = append(k.open, span{ev.Func, ev.Depth})
		s.Sum.Calls++
		k.Event = ev
		err := s.W.Begin(k, at, ev.Func)
		k.Event = nil
		return err
	case trace.Exit, trace.Unwound, trace.Unfinished:
		return s.end(k, at, ev)
	case trace.Skipped:
		return s.cut(k, at, ev.Depth)
	}
	return s.W.Note(k, at, ev)
}

// end is the end of a call.
func (s *Spans) end(k *Track, at int64, ev *trace.Event) error {
	switch {
	case ev.Flags&trace.FlagResumed != 0:
		s.Sum.Leave(Resumed, 1)
		return nil
	case ev.Flags&trace.FlagInherited != 0:
		s.Sum.Leave("ends, in forked children, of calls that the parent began", 1)
		return nil
	}
	if err := s.cut(k, at, ev.Depth+1); err != nil {
		return err
	}
	if n := len(k.open); n == 0 || k.open[n-1].depth != ev.Depth {
		s.Sum.Leave("returns of calls whose beginning is not in the trace", 1)
		return nil
	}
	k.Event = ev
	err := s.cut(k, at, ev.Depth)
	k.Event = nil
	return err
}

// cut ends the open calls of a track from a depth on.
func (s *Spans) cut(k *Track, at int64, depth int) error {
	for n := len(k.open); n > 0 && k.open[n-1].depth >= depth; n-- {
		fn := k.open[n-1].fn
		k.open = k.open[:n-1]
		if err := s.W.End(k, at, fn); err != nil {
			return err
		}
	}
	return nil
}

// Close ends the calls that are still open.
func (s *Spans) Close() error {
	for _, k := range s.tracks {
		if err := s.cut(k, k.last, 0); err != nil {
			return err
		}
	}
	return nil
}

// Open calls f with the functions of the calls that are open on a track, the outermost first.
func (k *Track) Open(f func(trace.FuncID)) {
	for i := range k.open {
		f(k.open[i].fn)
	}
}

func (s *Spans) track(ev *trace.Event) *Track {
	if k := s.newest; k != nil && k.Task == ev.Task && k.Stack == ev.Stack {
		return k
	}
	if s.tasks == nil {
		s.tasks = map[*trace.Task]map[uint64]*Track{}
	}
	of := s.tasks[ev.Task]
	if of == nil {
		of = map[uint64]*Track{}
		s.tasks[ev.Task] = of
	}
	k := of[ev.Stack]
	if k == nil {
		k = &Track{Task: ev.Task, Stack: ev.Stack, Index: len(s.tracks)}
		s.tracks, of[ev.Stack] = append(s.tracks, k), k
	}
	s.newest = k
	return k
}
