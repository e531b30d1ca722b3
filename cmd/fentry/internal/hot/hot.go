// Package hot counts what functions do in an interval of time, from events as they happen: how often they are called, and
// how much of the interval calls of them took, of calls that go on for longer, too. Where events are missing, counts are
// of the time that is known of, and extrapolated to all of it.
package hot

import (
	"slices"

	"github.com/fentry-dev/fentry/trace"
)

// A Row is what is known of a function in an interval.
type Row struct {
	Func  trace.FuncID
	Calls float64 // a second
	// Total and Self are parts of the interval in which a call was open, and in which the function itself ran, of all
	// threads together: with two threads they can be 2.
	Total, Self float64
	// Avg is how long calls took that ended, in ns; -1: none did.
	Avg float64
}

// Counter counts. The zero value has seen no event.
type Counter struct {
	from  int64 // where the interval begins
	tasks map[task]*thread
	// Gaps is how much of the interval is not known of, of all threads, in ns.
	Gaps int64
}

// task tells threads of all looks at a buffer apart.
type task struct {
	pid, tid int
	key      uint64
}

// thread is a thread.
type thread struct {
	stacks map[uint64][]call
	cur    uint64
	last   int64 // time up to which it is accounted for
	gap    int64 // time in the interval of which nothing is known
	began  int64 // when it was seen first
	funcs  map[trace.FuncID]*sums
	ended  bool
}

// call is an open call.
type call struct {
	sums  *sums
	start int64
}

// sums are those of a function and a thread.
type sums struct {
	calls       uint64
	total, self int64
	ended       uint64
	took        int64
	open        int   // calls
	since       int64 // when the outermost of them began, or the interval
}

// Begin begins an interval.
func (c *Counter) Begin(at int64) {
	c.from, c.Gaps = at, 0
	for id, th := range c.tasks {
		if th.ended {
			delete(c.tasks, id)
			continue
		}
		th.gap, th.last = 0, max(th.last, at)
		for fn, s := range th.funcs {
			if s.open == 0 {
				delete(th.funcs, fn)
				continue
			}
			*s = sums{open: s.open, since: at}
		}
	}
}

// Event counts an event.
func (c *Counter) Event(ev *trace.Event) {
	if ev.Task == nil {
		return
	}
	th := c.thread(ev)
	switch ev.Kind {
	case trace.Lost:
		th.lose(max(ev.Time, c.from))
		return
	case trace.ThreadEnd:
		th.ended = true
	}
	th.spend(ev.Time)
	th.cur = ev.Stack
	switch ev.Kind {
	case trace.Entry:
		th.enter(ev)
	case trace.Exit, trace.Unwound, trace.Unfinished:
		th.leave(ev)
	}
}

func (c *Counter) thread(ev *trace.Event) *thread {
	id := task{ev.Task.PID, ev.Task.TID, ev.Task.Key}
	th := c.tasks[id]
	if th == nil {
		if c.tasks == nil {
			c.tasks = make(map[task]*thread)
		}
		at := max(ev.Time, c.from)
		th = &thread{stacks: make(map[uint64][]call), funcs: make(map[trace.FuncID]*sums), last: at, began: at, cur: ev.Stack}
		c.tasks[id] = th
	}
	return th
}

// spend gives the time until now to the innermost call.
func (th *thread) spend(now int64) {
	if now <= th.last {
		return
	}
	if calls := th.stacks[th.cur]; len(calls) > 0 {
		calls[len(calls)-1].sums.self += now - th.last
	}
	th.last = now
}

// lose takes note that nothing is known until now, nor which calls are open.
func (th *thread) lose(now int64) {
	if now > th.last {
		th.gap += now - th.last
	}
	for _, s := range th.funcs {
		if s.open > 0 {
			s.total += max(0, th.last-s.since)
			s.open = 0
		}
	}
	clear(th.stacks)
	th.last = max(th.last, now)
}

func (th *thread) enter(ev *trace.Event) {
	s := th.funcs[ev.Func]
	if s == nil {
		s = &sums{}
		th.funcs[ev.Func] = s
	}
	s.calls++
	if ev.Flags&trace.FlagEntryOnly != 0 {
		return
	}
	calls := th.cut(ev.Depth)
	if s.open++; s.open == 1 {
		s.since = th.last // which an event of before the interval does not set back
	}
	th.stacks[th.cur] = append(calls, call{s, ev.Time})
}

func (th *thread) leave(ev *trace.Event) {
	calls := th.cut(ev.Depth + 1)
	if len(calls) != ev.Depth+1 || ev.Flags&trace.FlagNoEntry != 0 {
		return
	}
	s := calls[ev.Depth].sums
	th.pop(&calls[ev.Depth])
	s.ended++
	s.took += ev.Dur
	th.stacks[th.cur] = calls[:ev.Depth]
}

// cut ends calls of the current stack until so many are left.
func (th *thread) cut(depth int) []call {
	calls := th.stacks[th.cur]
	for len(calls) > depth {
		th.pop(&calls[len(calls)-1])
		calls = calls[:len(calls)-1]
	}
	return calls
}

// pop takes a call off.
func (th *thread) pop(c *call) {
	if c.sums.open--; c.sums.open == 0 {
		c.sums.total += max(0, th.last-c.sums.since)
	}
}

// Rows returns what there was in the interval, which ends now.
func (c *Counter) Rows(now int64) (rows []Row) {
	span := float64(max(1, now-c.from))
	type all struct {
		Row
		took, ended float64
	}
	sum := make(map[trace.FuncID]*all)
	for _, th := range c.tasks {
		if !th.ended {
			th.spend(now)
		}
		c.Gaps += th.gap
		known := max(1, th.last-max(th.began, c.from)-th.gap)
		more := float64(known+th.gap) / float64(known) // of what is not known, as much
		for fn, s := range th.funcs {
			r := sum[fn]
			if r == nil {
				r = &all{Row: Row{Func: fn}}
				sum[fn] = r
			}
			total := s.total
			if s.open > 0 {
				total += max(0, th.last-s.since)
			}
			r.Calls += float64(s.calls) * more / span * 1e9
			r.Total += float64(total) * more / span
			r.Self += float64(s.self) * more / span
			r.took, r.ended = r.took+float64(s.took), r.ended+float64(s.ended)
		}
	}
	for _, r := range sum {
		if r.Avg = -1; r.ended > 0 {
			r.Avg = r.took / r.ended
		}
		rows = append(rows, r.Row)
	}
	slices.SortFunc(rows, func(a, b Row) int { return compareFuncs(a.Func, b.Func) })
	return rows
}

// Threads is how many threads did something in the interval.
func (c *Counter) Threads() int { return len(c.tasks) }

func compareFuncs(a, b trace.FuncID) int {
	if a.Image != b.Image {
		return int(int64(a.Image) - int64(b.Image))
	}
	return int(int64(a.ID) - int64(b.ID))
}
