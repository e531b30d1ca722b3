package trace

import (
	"math"
	"slices"
)

// WalkOptions say what [Trace.Walk] visits. The zero value visits everything.
type WalkOptions struct {
	// Tasks are the tasks to visit; nil: all, empty: none.
	Tasks []*Task
	// From and To bound the events' times in ns since the trace's start. Calls
	// that are open at From keep their depth and duration; those that are open
	// at To do not end. To 0: the end of the trace.
	From, To int64
	// Open begins with an Entry, flagged FlagOpen, for each call that is open at From on the stack that its task is on,
	// the tasks in order and of each the outermost call first. Its Time is that of the call's entry, before From.
	Open bool
	// Calls are those that the caller will show, with all that is no call's. With an index, a walk leaves out events
	// that cannot be among them, and says so with Skipped; others that are not among them still come. Calls shorter than
	// the Threshold that have nothing inside are left out in any case, and nothing is said of them. With Without or Nest,
	// which change what others mean, nothing is left out.
	Calls Calls
}

// Walk calls fn with every event, ordered by time; events of several tasks at the same time come in the order of
// Trace.Tasks. Events of one task come in the order in which they were written, which is that of their times with
// rare exceptions: an entry that a threshold held back while the task was on another stack, and an event whose
// writing a signal handler interrupted. The Event is valid only during the call. An error of fn ends the walk and is
// returned.
//
// Memory does not depend on the trace's length: it holds a window of each task that is running at the time, and its
// open calls; with an index, of which only the parts that are needed are read, also those of the tasks to visit.
func (t *Trace) Walk(o WalkOptions, fn func(*Event) error) error {
	if o.Calls.Without != nil || o.Calls.Nest {
		o.Calls = Calls{}
	}
	w, visit, emit, stop := t.newWalker(o, fn)
	if !w.planBlocks(o, visit, emit) {
		w.planAll(visit, emit)
	}
	if o.Calls.Threshold > 0 {
		w.shorts = shorts{least: t.Clock.atLeast(o.Calls.Threshold)}
		if o.From > 0 {
			w.shorts.from = t.Clock.Counter(o.From) + 4 // whose time is in the window for certain
		}
	}
	return w.run(stop)
}

// emptyWalker returns a walker of n tasks.
func (t *Trace) emptyWalker(n int) *walker {
	return &walker{t: t, byTask: make([]*cursor, len(t.Tasks)), paths: map[*Task][]openCall{}, window: windowFor(n)}
}

// lateTicks is how much later than the end of a window its events can have been written: as many ticks as the low half of
// a counter has, which is what an event has of its time, a second or two.
const lateTicks = 1 << 32

// newWalker returns a walker without a plan, which tasks it is to visit, what gets their
// events, and the counter at which it may stop, 0: at the end.
func (t *Trace) newWalker(o WalkOptions, fn func(*Event) error) (
	w *walker, visit []bool, emit func(*Event) error, stop uint64,
) {
	emit = fn
	if o.From > 0 || o.To > 0 {
		emit = func(ev *Event) error {
			if ev.Time < o.From || o.To > 0 && ev.Time > o.To {
				return nil
			}
			return fn(ev)
		}
	}
	visit = make([]bool, len(t.Tasks))
	chosen := o.Tasks
	if chosen == nil {
		chosen = t.Tasks
	}
	for _, k := range chosen {
		visit[k.Index] = true
	}
	w = t.emptyWalker(len(chosen))
	if o.Open && o.From > 0 {
		w.open, w.from = fn, o.From
	}
	if o.To > 0 {
		if stop = t.Clock.Counter(o.To) + lateTicks; stop < lateTicks {
			stop = math.MaxUint64 // the emit hook has the last word
		}
	}
	return w, visit, emit, stop
}

// planAll has tasks read from their beginning, and their parents too: what a forked
// task had open is in the parents' events.
func (w *walker) planAll(visit []bool, emit func(*Event) error) {
	t := w.t
	need := make([]bool, len(t.Tasks))
	for _, k := range t.Tasks {
		if visit[k.Index] {
			for p := k; p != nil && !need[p.Index]; p = p.Parent {
				need[p.Index] = true
			}
		}
	}
	for _, k := range t.Tasks {
		if !need[k.Index] || len(k.chunks) == 0 {
			continue
		}
		p := pending{task: k, due: k.begin}
		if visit[k.Index] {
			p.emit = emit
		}
		w.pending = append(w.pending, p)
	}
}

// minWindow is the smallest window in bytes: more than any chunk's header.
const minWindow = 512

// windowFor keeps the windows of n tasks in about 64 MiB, as long as they are not too
// small for that.
func windowFor(n int) int {
	return max(minWindow, min(windowSize, (64<<20/max(1, n))&^(minWindow-1)))
}

// window returns how large a window of at most limit bytes the task can use. Half a
// million tasks of one call each must not take a page each.
func (k *Task) window(limit int) int {
	n := minWindow
	for i := range k.chunks {
		if n = max(n, int(min(k.chunks[i].size, uint32(limit)))); n == limit {
			break
		}
	}
	return n
}

// A pending task has not begun.
type pending struct {
	task *Task
	due  uint64 // where its first word is in the order of time
	emit func(*Event) error
	part *part // of its blocks; nil: it is read from its beginning, without the index
}

// A walker merges the tasks' events by time.
type walker struct {
	t       *Trace
	window  int                // its size
	windows [][]byte           // of tasks that have ended
	pending []pending          // not yet begun, by time
	heap    []due              // running tasks; the least is first
	open    func(*Event) error // gets the calls that are open at time from; nil: it has, or is not to
	from    int64
	byTask  []*cursor
	paths   map[*Task][]openCall // what forked tasks that have not begun inherit
	shorts  shorts
}

// shorts are the calls that a walk leaves out one by one: those shorter than least ticks that have nothing inside, and
// that begin from a counter on. Most calls of a trace are such ones, and who gets an event of each has to find that out.
type shorts struct{ least, from uint64 }

// has tells whether a call is among them that has nothing inside.
func (s *shorts) has(start, end uint64) bool {
	return end-min(end, start) < s.least && start >= s.from
}

// due is a running task in the heap, with the time of its next event beside it:
// the heap is gone through for every event when tasks take turns.
type due struct {
	t     uint64
	index int // of the task
	c     *cursor
}

func (w *walker) run(stop uint64) error {
	from := w.t.Clock.Counter(w.from)
	for {
		// Begin the tasks whose first chunk is due.
		for len(w.pending) > 0 && (len(w.heap) == 0 || w.pending[0].due <= w.heap[0].t) {
			p := w.pending[0]
			w.pending = w.pending[1:]
			if err := w.begin(p); err != nil {
				return err
			}
		}
		if len(w.heap) == 0 {
			return nil
		}
		top := &w.heap[0]
		if w.open != nil && w.t.Clock.Time(top.t) >= w.from {
			if err := w.openCalls(); err != nil {
				return err
			}
		}
		if stop != 0 && top.t > stop {
			return nil
		}
		// This task goes on until another's event is due.
		limit := ^uint64(0)
		if len(w.heap) > 1 {
			limit = w.heap[1].t
		}
		if len(w.heap) > 2 {
			limit = min(limit, w.heap[2].t)
		}
		if len(w.pending) > 0 {
			limit = min(limit, w.pending[0].due)
		}
		if w.open != nil {
			limit = min(limit, from-min(from, 4)) // Counter is the inverse of Time to within two ticks
		}
		if stop != 0 {
			limit = min(limit, stop)
		}
		c := top.c
		more := c.step()
		for more && c.cur.t < limit {
			more = c.step()
		}
		if c.err != nil {
			return c.err
		}
		if !more && !c.jumped {
			w.pop()
			continue
		}
		top.t = max(top.t, c.cur.t)
		if c.jumped {
			top.t, c.jumped = max(top.t, c.part.due), false
		}
		w.down()
	}
}

func (w *walker) begin(p pending) error {
	var window []byte
	if n := len(w.windows); n > 0 && len(w.windows[n-1]) >= p.task.window(w.window) {
		window, w.windows = w.windows[n-1], w.windows[:n-1]
	} else {
		window = make([]byte, p.task.window(w.window))
	}
	if p.part != nil {
		c, err := newPartCursor(w.t, p.task, window, p.emit, p.part)
		if err != nil {
			return err
		}
		w.add(c, p.part.due)
		return nil
	}
	c, err := newCursor(w.t, p.task, window, p.emit)
	if err != nil || c == nil {
		return err
	}
	if len(p.task.children) > 0 {
		c.forks, c.paths = newForker(w.t, p.task), w.paths
	}
	var inherited []openCall
	if p.task.Parent != nil {
		if pc := w.byTask[p.task.Parent.Index]; pc != nil {
			pc.give(p.task.begin)
		}
		inherited = w.paths[p.task]
		delete(w.paths, p.task)
	}
	if p.task.ParentPID != 0 {
		c.fl.inherit(inherited, p.task.begin)
	}
	w.add(c, c.cur.t)
	return nil
}

// add enters a task that has begun.
func (w *walker) add(c *cursor, t uint64) {
	c.shorts = w.shorts
	w.byTask[c.task.Index] = c
	w.heap = append(w.heap, due{t, c.task.Index, c})
	w.up(len(w.heap) - 1)
}

// openCalls emits the calls that are open now.
func (w *walker) openCalls() error {
	emit := w.open
	w.open = nil
	for _, c := range w.byTask {
		if c == nil || c.emit == nil || w.t.Clock.Time(c.task.begin) >= w.from {
			continue // a forked task can begin inside calls, but not before it begins
		}
		if err := c.openCalls(emit); err != nil {
			return err
		}
	}
	return nil
}

func (a *due) less(b *due) bool { return a.t < b.t || a.t == b.t && a.index < b.index }

func (w *walker) up(i int) {
	h := w.heap
	for i > 0 {
		p := (i - 1) / 2
		if !h[i].less(&h[p]) {
			return
		}
		h[i], h[p] = h[p], h[i]
		i = p
	}
}

// down moves the first entry to its place.
func (w *walker) down() {
	h := w.heap
	if len(h) < 2 {
		return
	}
	moved := h[0]
	i := 0
	for {
		c := 2*i + 1
		if c >= len(h) {
			break
		}
		if c+1 < len(h) && h[c+1].less(&h[c]) {
			c++
		}
		if !h[c].less(&moved) {
			break
		}
		h[i] = h[c]
		i = c
	}
	h[i] = moved
}

func (w *walker) pop() {
	c := w.heap[0].c
	w.byTask[c.task.Index] = nil
	if len(c.dec.buf) == w.window {
		w.windows = append(w.windows, c.dec.buf)
	}
	n := len(w.heap) - 1
	w.heap[0] = w.heap[n]
	w.heap[n] = due{}
	w.heap = w.heap[:n]
	w.down()
}

// TaskByTID returns the tasks with the given thread id, in order. If there is none, the result is empty but not nil:
// as WalkOptions.Tasks it means no task.
func (t *Trace) TaskByTID(tid int) []*Task {
	ks := []*Task{}
	for _, k := range t.Tasks {
		if k.TID == tid && k.Goroutine == 0 {
			ks = append(ks, k)
		}
	}
	return slices.Clip(ks)
}
