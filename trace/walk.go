package trace

import (
	"slices"
)

// WalkOptions choose what [Trace.Walk] visits. The zero value is everything.
type WalkOptions struct {
	// Tasks are the tasks to visit, nil: all.
	Tasks []*Task
	// From and To bound the events' times in ns since the trace's start. Calls
	// that are open at From keep their depth and duration. To 0: the end.
	From, To int64
}

// Walk calls fn with every event, ordered by time; events of one task stay in
// the task's order, those of several tasks at one time come in the order of
// Trace.Tasks. The Event is only good during the call. An error of fn ends the
// walk and is returned.
//
// Memory does not depend on the trace's length: a window of each task that is
// running at the time, and its open calls.
func (t *Trace) Walk(o WalkOptions, fn func(*Event) error) error {
	w := walker{t: t, byTask: make([]*cursor, len(t.Tasks)), last: map[*Task][]FuncID{}}
	emit := fn
	if o.From > 0 || o.To > 0 {
		emit = func(ev *Event) error {
			if ev.Time < o.From || o.To > 0 && ev.Time > o.To {
				return nil
			}
			return fn(ev)
		}
	}
	visit := make([]bool, len(t.Tasks))
	need := make([]bool, len(t.Tasks))
	chosen := o.Tasks
	if chosen == nil {
		chosen = t.Tasks
	}
	for _, k := range chosen {
		visit[k.Index] = true
		// What a forked task had open is in its parents' events.
		for p := k; p != nil && !need[p.Index]; p = p.Parent {
			need[p.Index] = true
		}
	}
	w.window = windowFor(len(chosen))
	for _, k := range t.Tasks {
		if !need[k.Index] || len(k.chunks) == 0 {
			continue
		}
		p := pending{task: k}
		if visit[k.Index] {
			p.emit = emit
		}
		w.pending = append(w.pending, p)
	}
	var stop uint64
	if o.To > 0 {
		stop = t.Clock.Counter(o.To) + 1<<16 // the emit hook has the last word
	}
	return w.run(stop)
}

// windowFor keeps the windows of n tasks in about 64 MiB.
func windowFor(n int) int {
	return max(4<<10, min(windowSize, (64<<20/max(1, n))&^0xfff))
}

type pending struct {
	task *Task
	emit func(*Event) error
}

// A walker merges the tasks' events by time.
type walker struct {
	t       *Trace
	window  int
	pending []pending // not yet begun, by time
	heap    []*cursor // running; the least is first
	byTask  []*cursor
	last    map[*Task][]FuncID // calls that ended tasks died in, if they forked
}

func (w *walker) run(stop uint64) error {
	for {
		// Begin the tasks whose first chunk is due.
		for len(w.pending) > 0 && (len(w.heap) == 0 || w.pending[0].task.begin() <= w.heap[0].cur.t) {
			if err := w.begin(w.pending[0]); err != nil {
				return err
			}
			w.pending = w.pending[1:]
		}
		if len(w.heap) == 0 {
			return nil
		}
		c := w.heap[0]
		if stop != 0 && c.cur.t > stop {
			return nil
		}
		// This task goes on until another's event is due.
		limit := ^uint64(0)
		for _, i := range []int{1, 2} {
			if i < len(w.heap) {
				limit = min(limit, w.heap[i].cur.t)
			}
		}
		if len(w.pending) > 0 {
			limit = min(limit, w.pending[0].task.begin())
		}
		if stop != 0 {
			limit = min(limit, stop)
		}
		more := c.step()
		for more && c.cur.t < limit {
			more = c.step()
		}
		if c.err != nil {
			return c.err
		}
		if !more {
			w.pop()
			continue
		}
		w.down(0)
	}
}

func (w *walker) begin(p pending) error {
	c, err := newCursor(w.t, p.task, w.window, p.emit)
	if err != nil || c == nil {
		return err
	}
	w.byTask[p.task.Index] = c
	if p.task.Parent != nil {
		if pc := w.byTask[p.task.Parent.Index]; pc != nil {
			c.m.inherit(pc.m.path())
		} else {
			c.m.inherit(w.last[p.task.Parent])
		}
	}
	w.heap = append(w.heap, c)
	w.up(len(w.heap) - 1)
	return nil
}

// path returns the functions that are open on the current stack, outermost first.
func (m *machine) path() []FuncID {
	fns := make([]FuncID, len(m.cur.frames))
	for i := range m.cur.frames {
		fns[i] = m.cur.frames[i].fn
	}
	return fns
}

func less(a, b *cursor) bool {
	if a.cur.t != b.cur.t {
		return a.cur.t < b.cur.t
	}
	return a.task.Index < b.task.Index
}

func (w *walker) up(i int) {
	for i > 0 {
		p := (i - 1) / 2
		if !less(w.heap[i], w.heap[p]) {
			return
		}
		w.heap[i], w.heap[p] = w.heap[p], w.heap[i]
		i = p
	}
}

func (w *walker) down(i int) {
	h := w.heap
	for {
		c := 2*i + 1
		if c >= len(h) {
			return
		}
		if c+1 < len(h) && less(h[c+1], h[c]) {
			c++
		}
		if !less(h[c], h[i]) {
			return
		}
		h[i], h[c] = h[c], h[i]
		i = c
	}
}

func (w *walker) pop() {
	w.byTask[w.heap[0].task.Index] = nil
	if k := w.heap[0].task; len(k.children) > 0 {
		w.last[k] = w.heap[0].last
	}
	n := len(w.heap) - 1
	w.heap[0] = w.heap[n]
	w.heap[n] = nil
	w.heap = w.heap[:n]
	w.down(0)
}

// TaskByTID returns the tasks with the given thread id, in order.
func (t *Trace) TaskByTID(tid int) []*Task {
	var ks []*Task
	for _, k := range t.Tasks {
		if k.TID == tid {
			ks = append(ks, k)
		}
	}
	return slices.Clip(ks)
}
