package show

import "github.com/fentry-dev/fentry/trace"

// Tail calls, nested.
//
// A function that ends by a jump to another has ended: its frame is gone, and so the trace has its exit and the other's
// entry at the same time, side by side. In the source one calls the other. A nester passes events on as if it had: it
// keeps back the exit, and gives it when the call that was jumped to has ended; so the first call lasts as long as the
// second. What was jumped from is at the same depth of the trace as what runs there now, and moves it inwards.

// A nester is the state of all tasks.
type nester struct {
	emit  func(*trace.Event) error
	tasks map[*trace.Task]map[uint64]*nestStack
}

// A nestStack has the calls that were left by jumps, by their depth in the trace.
type nestStack struct{ levels [][]jumped }

// jumped is such a call.
type jumped struct {
	fn, caller trace.FuncID
	start      int64
	self       int64
	flags      trace.Flags
}

// maxJumps is how many jumps in a row are nested: a loop by tail calls of a function to itself has no end.
const maxJumps = 256

func (n *nester) stack(ev *trace.Event) *nestStack {
	stacks := n.tasks[ev.Task]
	if stacks == nil {
		stacks = map[uint64]*nestStack{}
		n.tasks[ev.Task] = stacks
	}
	s := stacks[ev.Stack]
	if s == nil {
		s = &nestStack{}
		stacks[ev.Stack] = s
	}
	if ev.Kind == trace.ThreadEnd {
		delete(n.tasks, ev.Task)
	}
	return s
}

// moved is how far calls at a depth are moved inwards by jumps at lesser depths.
func (s *nestStack) moved(depth int) int {
	by := 0
	for _, l := range s.levels[:min(depth, len(s.levels))] {
		by += len(l)
	}
	return by
}

// at returns the jumps at a depth; those at greater depths are over.
func (s *nestStack) at(depth int) []jumped {
	if depth+1 < len(s.levels) {
		s.levels = s.levels[:depth+1]
	}
	if depth < len(s.levels) {
		return s.levels[depth]
	}
	return nil
}

func (s *nestStack) set(depth int, l []jumped) {
	for depth >= len(s.levels) {
		if len(l) == 0 {
			return
		}
		s.levels = append(s.levels, nil)
	}
	s.levels[depth] = l
}

// event takes the next event.
func (n *nester) event(in *trace.Event) error {
	ev, s := *in, n.stack(in)
	d := ev.Depth
	switch ev.Kind {
	case trace.Entry:
		l := s.at(d)
		if ev.Flags&trace.FlagTail == 0 && len(l) > 0 { // events are missing
			if err := n.end(&ev, s, trace.Unwound); err != nil {
				return err
			}
			l = nil
		}
		ev.Depth += s.moved(d) + len(l)
		if len(l) > 0 {
			ev.Caller = l[len(l)-1].fn
		}
		if ev.Flags&trace.FlagLeaf != 0 { // who shows it finds out
			ev.Flags &^= trace.FlagLeaf
			ev.Dur, ev.Self = 0, 0
		}
		return n.emit(&ev)
	case trace.Exit, trace.Unwound, trace.Unfinished:
		l := s.at(d)
		known := ev.Flags&(trace.FlagNoEntry|trace.FlagResumed) == 0
		if ev.Kind == trace.Exit && ev.Flags&trace.FlagTail != 0 && known && len(l) < maxJumps {
			ev.Flags &^= trace.FlagTail | trace.FlagLeaf
			s.set(d, append(l, jumped{ev.Func, ev.Caller, ev.Time - ev.Dur, ev.Self, ev.Flags}))
			return nil
		}
		ev.Flags &^= trace.FlagLeaf
		ev.Depth += s.moved(d) + len(l)
		if len(l) > 0 {
			ev.Caller = l[len(l)-1].fn
		}
		if err := n.emit(&ev); err != nil || !known || ev.Flags&trace.FlagTail != 0 {
			return err
		}
		ev.Depth = d
		return n.end(&ev, s, ev.Kind)
	}
	ev.Depth += s.moved(d)
	return n.emit(&ev)
}

// end ends the calls that were left by jumps at the event's depth.
func (n *nester) end(in *trace.Event, s *nestStack, kind trace.Kind) error {
	l := s.at(in.Depth)
	ev := *in
	for i := len(l) - 1; i >= 0; i-- {
		j := &l[i]
		ev.Kind, ev.Func, ev.Caller, ev.Flags = kind, j.fn, j.caller, j.flags
		if i > 0 {
			ev.Caller = l[i-1].fn
		}
		ev.Dur, ev.Self, ev.Depth = in.Time-j.start, j.self, in.Depth+s.moved(in.Depth)+i
		if err := n.emit(&ev); err != nil {
			return err
		}
	}
	s.set(in.Depth, nil)
	return nil
}
