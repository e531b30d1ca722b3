// Package show passes on those calls of a trace that a user wants to see.
//
//	s := show.New(show.Options{Match: match, Depth: 3}, print)
//	err := t.Walk(trace.WalkOptions{}, s.Event)
//	if err == nil {
//		err = s.Close()
//	}
//
// Calls that are left out leave no holes: depths are those among the calls that
// are shown, and a call is marked as a leaf when nothing inside it is shown. For
// that events are held back until enough is known about them; they come out in
// the order they went in.
package show

import "github.com/fentry-dev/fentry/trace"

// Options say what is shown. The zero value shows everything.
type Options struct {
	// Match says whether calls of a function are shown; nil: all.
	Match func(trace.FuncID) bool
	// When says whether a call is shown, by its Entry; nil: all.
	When func(*trace.Event) bool
	// Roots says in which functions the calls must be made; those functions
	// themselves are shown as well. nil: anywhere.
	Roots func(trace.FuncID) bool
	// Without says which functions are left out with everything inside them; nil: none.
	Without func(trace.FuncID) bool
	// Nest shows a function that was reached by a tail call inside the one that jumped to it.
	Nest bool
	// Depth is how many levels of shown calls are shown; 0: all.
	Depth int
	// Threshold is the shortest duration shown, in ns.
	Threshold int64
	// End is the time, in ns since the trace's start, at which what is to be shown ends; 0: that of the last event.
	// Calls that are open then are shown if they have reached the threshold.
	End int64
}

// lookahead bounds how many events are held back to learn that a call is a leaf.
const lookahead = 1 << 14

// A Filter holds what is known of events that were not passed on yet.
type Filter struct {
	o     Options
	emit  func(*trace.Event) error
	nest  *nester // nil: tail calls are side by side
	queue []*item // oldest first, from head on
	head  int
	gone  int // dropped items in the queue
	open  int // undecided ones: those that may yet be too short
	tasks map[*trace.Task]*task
	of    *trace.Task // whose the newest event is: most are of the same task as the one before
	is    *task       // what tasks has of it
	free  []*item
	now   int64
}

// An item is an event in the queue.
type item struct {
	ev      trace.Event
	task    *task
	next    *item // of the same task; nil for the newest
	before  *item // the one that this is next to; nil if it has left the queue
	entry   *item // of an ending: its call's entry if that is still in the queue
	dropped bool
	open    bool // an entry whose duration may yet be too short
	ended   bool // an entry whose call has ended
	left    bool // not in the queue any more
}

// A task is what is known of a thread.
type task struct {
	stacks map[uint64]*stack
	cur    *stack
	num    uint64
	last   *item // newest in the queue
	seen   bool  // a call of it is shown for certain
}

type stack struct{ frames []frame }

// A frame is an open call.
type frame struct {
	item   *item // nil when not shown
	depth  int   // among shown calls
	shown  bool
	inside bool // in a root
	out    bool // in a call that is left out with everything inside it
	// unknown: its entry was not seen. It is taken for one that is not shown.
	unknown bool
}

// New returns a filter that passes what is shown to emit.
func New(o Options, emit func(*trace.Event) error) *Filter {
	f := &Filter{o: o, emit: emit, tasks: map[*trace.Task]*task{}}
	if o.Nest {
		f.nest = &nester{emit: f.event, tasks: map[*trace.Task]map[uint64]*nestStack{}}
	}
	return f
}

// Event takes the next event of the trace. The event may be reused afterwards.
func (f *Filter) Event(ev *trace.Event) error {
	if f.nest != nil {
		return f.nest.event(ev)
	}
	return f.event(ev)
}

func (f *Filter) event(ev *trace.Event) error {
	f.now = max(f.now, ev.Time) // calls that are open at a window's start are older
	k := f.task(ev)
	switch ev.Kind {
	case trace.Entry:
		f.enter(k, ev)
	case trace.Exit, trace.Unwound, trace.Unfinished:
		f.leave(k, ev)
	case trace.Skipped:
		f.skip(k.cur, ev.Depth)
	default:
		if f.noted(k, ev) {
			f.push(k, ev)
		}
	}
	err := f.flush(false)
	f.forget(ev.Task, k)
	return err
}

// noted tells whether an event that is no call's is shown: outside of the roots
// only that something is missing, and what is said of a task as a whole only if
// one of its calls has been shown.
func (f *Filter) noted(k *task, ev *trace.Event) bool {
	if ev.Kind == trace.Lost {
		return true
	}
	switch ev.Kind {
	case trace.Start, trace.Fork, trace.Comm, trace.ThreadEnd:
		if (f.o.Match != nil || f.o.When != nil || f.o.Without != nil || f.o.Threshold > 0) && !f.shows(k) {
			return false
		}
	}
	n := len(k.cur.frames)
	if n > 0 && k.cur.frames[n-1].out {
		return false
	}
	if f.o.Roots == nil {
		return true
	}
	return n > 0 && k.cur.frames[n-1].inside
}

// shows tells whether it is certain by now that a call of the task is shown: what is
// not certain yet depends on calls that a walk with an index leaves out.
func (f *Filter) shows(k *task) bool {
	if k.seen {
		return true
	}
	for _, s := range k.stacks {
		for i := range s.frames {
			if it := s.frames[i].item; it != nil && (!it.open || f.now-it.ev.Time >= f.o.Threshold) {
				k.seen = true
			}
		}
	}
	return k.seen
}

// Close passes on what was held back.
func (f *Filter) Close() error {
	f.now = max(f.now, f.o.End)
	for _, it := range f.queue[f.head:] {
		if it.open && !it.dropped && f.now-it.ev.Time < f.o.Threshold {
			f.decided(it)
			it.dropped = true
			f.gone++
		}
	}
	return f.flush(true)
}

func (f *Filter) task(ev *trace.Event) *task {
	k := f.is
	if ev.Task != f.of || k == nil {
		if k = f.tasks[ev.Task]; k == nil {
			k = &task{stacks: map[uint64]*stack{}}
			f.tasks[ev.Task] = k
		}
		f.of, f.is = ev.Task, k
	}
	if k.cur == nil || k.num != ev.Stack {
		if k.cur != nil && len(k.cur.frames) == 0 {
			delete(k.stacks, k.num) // a coroutine that may have ended
		}
		k.num = ev.Stack
		k.cur = k.stacks[ev.Stack]
		if k.cur == nil {
			k.cur = &stack{}
			k.stacks[ev.Stack] = k.cur
		}
	}
	return k
}

// to makes the stack hold exactly depth frames.
func (s *stack) to(depth int) {
	for len(s.frames) < depth {
		fr := frame{unknown: true}
		if n := len(s.frames); n > 0 {
			fr.depth, fr.inside = s.frames[n-1].inner(), s.frames[n-1].inside
		}
		s.frames = append(s.frames, fr)
	}
	s.frames = s.frames[:depth]
}

// inner is the depth of calls in the frame, among shown ones.
func (fr *frame) inner() int {
	if fr.shown {
		return fr.depth + 1
	}
	return fr.depth
}

// skip takes the calls off a stack that have ended unseen: none of them was to be shown.
func (f *Filter) skip(s *stack, depth int) {
	for n := len(s.frames); n > depth; n-- {
		if it := s.frames[n-1].item; it != nil && it.open && !it.left {
			f.drop(it)
		}
		s.frames = s.frames[:n-1]
	}
}

func (f *Filter) enter(k *task, ev *trace.Event) {
	s := k.cur
	s.to(ev.Depth)
	fr := frame{inside: f.o.Roots == nil}
	if n := len(s.frames); n > 0 {
		fr.inside = s.frames[n-1].inside || fr.inside
		fr.out = s.frames[n-1].out
		fr.depth = s.frames[n-1].inner()
	}
	if !fr.inside {
		fr.inside = f.o.Roots(ev.Func)
	}
	fr.out = fr.out || f.o.Without != nil && f.o.Without(ev.Func)
	fr.shown = fr.inside && !fr.out && (f.o.Depth == 0 || fr.depth < f.o.Depth) && (f.o.Match == nil || f.o.Match(ev.Func)) &&
		(f.o.When == nil || f.o.When(ev))
	if fr.shown && ev.Flags&trace.FlagLeaf != 0 && ev.Dur < f.o.Threshold {
		fr.shown = false
	}
	if fr.shown {
		it := f.push(k, ev)
		it.ev.Depth = fr.depth
		if f.o.Threshold > 0 && ev.Flags&(trace.FlagLeaf|trace.FlagEntryOnly) == 0 {
			it.open = true
			f.open++
		}
		k.seen = k.seen || !it.open
		fr.item = it
	}
	s.frames = append(s.frames, fr)
}

func (f *Filter) leave(k *task, ev *trace.Event) {
	s := k.cur
	var fr frame
	known := ev.Flags&(trace.FlagNoEntry|trace.FlagResumed) == 0 && ev.Depth < len(s.frames)
	if known {
		fr = s.frames[ev.Depth]
		known = !fr.unknown
	}
	s.to(ev.Depth)
	if !known {
		f.orphan(k, ev)
		return
	}
	if !fr.shown {
		return
	}
	entry := fr.item
	if ev.Dur < f.o.Threshold && !entry.left {
		if entry.open {
			f.drop(entry)
			return
		}
	}
	f.decided(entry)
	entry.ended, k.seen = true, true
	it := f.push(k, ev)
	it.ev.Depth = fr.depth
	if entry.left {
		f.reuse(entry)
	} else {
		it.entry = entry
	}
}

// orphan takes the end of a call whose entry was not seen, or which ended
// before by being unwound.
func (f *Filter) orphan(k *task, ev *trace.Event) {
	depth, inside := 0, f.o.Roots == nil
	if n := len(k.cur.frames); n > 0 {
		top := k.cur.frames[n-1]
		depth, inside = top.inner(), inside || top.inside
		if top.out {
			return
		}
	}
	timed := ev.Flags&trace.FlagNoEntry == 0
	if !inside && !f.o.Roots(ev.Func) ||
		f.o.Without != nil && f.o.Without(ev.Func) ||
		f.o.Depth != 0 && depth >= f.o.Depth ||
		f.o.Match != nil && !f.o.Match(ev.Func) ||
		timed && ev.Dur < f.o.Threshold {
		return
	}
	k.seen = true
	it := f.push(k, ev)
	it.ev.Depth = depth
	it.ev.Flags &^= trace.FlagLeaf
}

// push puts a copy of the event into the queue.
func (f *Filter) push(k *task, ev *trace.Event) *item {
	var it *item
	if n := len(f.free); n > 0 {
		it = f.free[n-1]
		f.free = f.free[:n-1]
		*it = item{}
	} else {
		it = new(item)
	}
	it.ev, it.task = *ev, k
	it.follow(k)
	f.queue = append(f.queue, it)
	return it
}

// follow puts an item behind the newest one of its task.
func (it *item) follow(k *task) {
	it.next, it.before = nil, k.last
	if k.last != nil {
		k.last.next = it
	}
	k.last = it
}

// drop takes an entry out. What was inside it has been dropped before, so most often it is the last in the queue.
func (f *Filter) drop(it *item) {
	f.decided(it)
	it.dropped, it.ended = true, true
	f.gone++
	for n := len(f.queue) - 1; n >= f.head && f.queue[n].dropped; n-- {
		last := f.queue[n]
		if last.before != nil && last.before.dropped {
			break // others may have gone past that one
		}
		k := last.task
		k.last = last.before
		if k.last != nil {
			k.last.next = nil
		}
		f.queue[n], f.queue = nil, f.queue[:n]
		f.gone--
		t := last.ev.Task
		f.reuse(last)
		if t != f.of {
			f.forget(t, k)
		}
	}
	if f.gone > 64 && f.gone > (len(f.queue)-f.head)/2 {
		f.compact()
	}
}

// decided says that it is known whether an item is shown.
func (f *Filter) decided(it *item) {
	if it.open {
		it.open = false
		f.open--
	}
}

// compact removes dropped items from the queue and from the tasks' chains.
func (f *Filter) compact() {
	for _, it := range f.queue[f.head:] {
		it.task.last = nil
	}
	var idle []*trace.Task
	kept := f.queue[:0]
	for _, it := range f.queue[f.head:] {
		if it.dropped {
			idle = append(idle, it.ev.Task)
			f.reuse(it)
			continue
		}
		it.follow(it.task)
		kept = append(kept, it)
	}
	for _, t := range idle {
		if k := f.tasks[t]; k != nil {
			f.forget(t, k)
		}
	}
	clear(f.queue[len(kept):])
	f.queue, f.head, f.gone = kept, 0, 0
}

// manyTasks is how many tasks are kept although nothing needs to be known of them: most go on.
const manyTasks = 1024

// forget drops a task that is in no call and has nothing in the queue, if there are many.
func (f *Filter) forget(t *trace.Task, k *task) {
	if len(f.tasks) > manyTasks && k.last == nil && len(k.stacks) == 1 && len(k.cur.frames) == 0 {
		delete(f.tasks, t)
		if f.of == t {
			f.of, f.is = nil, nil
		}
	}
}

// flush passes on the events at the head of the queue about which everything is
// known; all of them when the trace has ended.
func (f *Filter) flush(end bool) error {
	for f.head < len(f.queue) {
		it := f.queue[f.head]
		if it.dropped {
			f.gone--
		} else {
			if it.ev.Kind == trace.Entry && !f.decide(it, end || len(f.queue)-f.head-f.gone-f.open > lookahead, end) {
				break
			}
			if err := f.emit(&it.ev); err != nil {
				return err
			}
		}
		f.queue[f.head] = nil
		f.head++
		it.left = true
		if it.next != nil && it.next.before == it {
			it.next.before = nil
		}
		if k := it.task; k.last == it {
			k.last = nil
			f.forget(it.ev.Task, k)
		}
		if it.ev.Kind != trace.Entry || it.ended {
			f.reuse(it)
		}
	}
	// Moving the rest up when it is the smaller half costs a step an event.
	if f.head == len(f.queue) {
		f.queue, f.head = f.queue[:0], 0
	} else if f.head > 64 && f.head > len(f.queue)/2 {
		n := copy(f.queue, f.queue[f.head:])
		clear(f.queue[n:])
		f.queue, f.head = f.queue[:n], 0
	}
	return nil
}

// reuse keeps an item that nothing refers to any more.
func (f *Filter) reuse(it *item) {
	if len(f.free) < lookahead {
		f.free = append(f.free, it)
	}
}

// after returns the next item of the same task that was not dropped; nil: there is none yet. Who asks at each event does
// not go past the same dropped ones again; the newest stays, because the task's next one comes behind it.
func (it *item) after() *item {
	n := it.next
	for n != nil && n.dropped && n.next != nil {
		n = n.next
	}
	it.next = n
	if n != nil && n.dropped {
		return nil
	}
	return n
}

// decide completes an entry. It returns false when the entry has to wait.
func (f *Filter) decide(it *item, hurry, end bool) bool {
	if it.open {
		if !end && f.now-it.ev.Time < f.o.Threshold {
			return false
		}
		f.decided(it)
	}
	n := it.after()
	switch {
	case n == nil:
		if !hurry {
			return false
		}
	case n.entry == it:
		if n.ev.Kind == trace.Exit {
			it.ev.Flags |= trace.FlagLeaf
			n.ev.Flags |= trace.FlagLeaf
			it.ev.Dur, it.ev.Self = n.ev.Dur, n.ev.Self
			if it.ev.Sys != nil && it.ev.Sys.End == nil {
				whole := *it.ev.Sys
				whole.End = n.ev.Sys
				it.ev.Sys = &whole
			}
			it.ev.Result = n.ev.Result
			return true
		}
	case n.open && !hurry && f.now-n.ev.Time < f.o.Threshold:
		return false
	}
	it.ev.Flags &^= trace.FlagLeaf
	return true
}
