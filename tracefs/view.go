//go:build linux

package tracefs

import (
	"bytes"
	"errors"

	"github.com/fentry-dev/fentry/export/ftrace"
	"github.com/fentry-dev/fentry/trace"
)

// From a copy of the buffer to text: which of its events an instance shows, and how deep in its calls. Each event is judged
// by the epoch that it falls into. An exit is shown if its entry was: calls that were open when something was changed end
// as they began.

// view is one pass over a copy of the buffer.
type view struct {
	in      *instance
	t       *trace.Trace
	of      func(trace.FuncID) int
	cpu     int  // only this one; -1: all
	consume bool // what is shown is not shown again
	most    int  // events to be shown, about; 0: any number

	epoch   int
	from    int64 // time
	marks   []mark
	mark    int
	stacks  map[stackID]*stack
	readers readers
	shown   int
	last    int64
	emit    func(ev *trace.Event, text string) error // text: of an event that is no call; "": it is one
	changes []int64                                  // times at which epochs begin
	fitted  bool                                     // skip is not needed
	skip    map[*trace.Task]int                      // how many of a task's events do not fit any more (buffer_size_kb)
}

type stackID struct {
	task  *trace.Task
	stack uint64
}

// stack is what is known of the calls that are open on a stack.
type stack struct{ calls []call }

// call is an open call.
type call struct {
	fn     trace.FuncID
	known  bool // its entry is in the buffer
	shown  bool // and was to be shown
	inside bool // it is one of set_graph_function, or inside one
	noted  bool // it is one of set_graph_notrace, or inside one
}

var errEnough = errors.New("enough")

// walk passes what is to be shown to emit, in the order of time.
func (v *view) walk(emit func(ev *trace.Event, text string) error) error {
	v.emit, v.stacks, v.readers = emit, make(map[stackID]*stack), newReaders(v.in.seen)
	defer v.readers.end()
	v.of = v.in.fs.functions.lookup(v.t)
	v.from = v.t.Clock.Time(v.in.cleared)
	v.begin()
	if v.cpu <= 0 {
		v.marks = v.in.marks
	}
	if err := v.fit(); err != nil {
		return err
	}
	err := v.t.Walk(trace.WalkOptions{}, v.event)
	if err == nil {
		err = v.marksUntil(1<<63 - 1)
	}
	if err == errEnough {
		err = nil
	}
	return err
}

// eventSize is how many bytes an entry or exit has in the buffer.
const eventSize = 8

// fit counts the events of each task that would be shown, but are too old for its buffer_size_kb.
func (v *view) fit() error {
	if v.fitted || v.in.size == 0 && len(v.in.sizes) == 0 {
		return nil
	}
	v.skip = make(map[*trace.Task]int)
	all := view{in: v.in, t: v.t, cpu: v.cpu, fitted: true}
	err := all.walk(func(ev *trace.Event, _ string) error {
		if counts(ev) {
			v.skip[ev.Task]++
		}
		return nil
	})
	for k, n := range v.skip {
		v.skip[k] = n - int(v.in.sizeOf(v.in.fs.cpu(k))<<10/eventSize)
	}
	return err
}

// counts tells whether an event is one of those that can be shown.
func counts(ev *trace.Event) bool {
	switch ev.Kind {
	case trace.Entry, trace.Exit, trace.Unwound:
		return ev.Flags&trace.FlagOpen == 0 && ev.Task != nil
	}
	return false
}

// begin looks up when settings have changed.
func (v *view) begin() {
	for i := range v.in.epochs {
		v.changes = append(v.changes, v.t.Clock.Time(v.in.epochs[i].from))
	}
}

// settings are those at a time; times must not fall.
func (v *view) settings(at int64) *settings {
	for v.epoch+1 < len(v.changes) && v.changes[v.epoch+1] <= at {
		v.epoch++
	}
	return &v.in.epochs[v.epoch].settings
}

// marksUntil shows marks that were made before a time.
func (v *view) marksUntil(at int64) error {
	for ; v.mark < len(v.marks); v.mark++ {
		m := &v.marks[v.mark]
		time := v.t.Clock.Time(m.at)
		if time >= at {
			return nil
		}
		if m.consumed || time <= v.from {
			continue
		}
		ev := trace.Event{Kind: trace.Mark, Time: time, Task: m.task, Comm: m.task.Comm, Text: m.text, Stack: m.task.Stack}
		if err := v.show(&ev, ""); err != nil {
			return err
		}
		m.consumed = v.consume
	}
	return nil
}

// show passes an event on, or ends the walk before it.
func (v *view) show(ev *trace.Event, text string) error {
	if v.most > 0 && v.shown >= v.most && ev.Time != v.last {
		return errEnough
	}
	v.shown++
	v.last = ev.Time
	return v.emit(ev, text)
}

// event judges an event.
func (v *view) event(ev *trace.Event) error {
	if !counts(ev) {
		return nil
	}
	if err := v.marksUntil(ev.Time); err != nil {
		return err
	}
	r := v.readers.task(ev.Task)
	before := r.at
	isNew := r.next(ev) && ev.Time > v.from
	show := v.judge(ev)
	if !isNew || v.cpu >= 0 && v.in.fs.cpu(ev.Task) != v.cpu {
		return nil
	}
	if ev.Func.Image == trace.SyscallImage {
		if err := v.happening(ev); err != nil {
			return err
		}
	} else if show && v.skip[ev.Task] > 0 {
		v.skip[ev.Task]--
	} else if show {
		// A leaf call that had not ended when its entry was read ends like any other.
		if ev.Kind != trace.Entry && r.read(before) && !r.begin.leaf {
			ev.Flags &^= trace.FlagLeaf
		}
		if err := v.show(ev, ""); err != nil {
			return err
		}
	}
	begins := ev.Kind == trace.Entry || ev.Func.Image == trace.SyscallImage
	if begins && len(v.in.stackAt) > 0 && v.in.stackAt[keyOf(ev, v.of(ev.Func))] {
		if err := v.backtrace(ev); err != nil {
			return err
		}
	}
	if v.consume {
		r.take()
	}
	return nil
}

// backtrace shows which calls are open around one.
func (v *view) backtrace(ev *trace.Event) error {
	st := v.stacks[stackID{ev.Task, ev.Stack}]
	stack := &trace.Backtrace{End: "outermost"}
	around := len(st.calls)
	if ev.Kind == trace.Entry {
		around--
	}
	for i := around - 1; i >= 0; i-- {
		if c := &st.calls[i]; c.known && c.fn.Image != trace.SyscallImage {
			stack.Frames = append(stack.Frames, trace.StackFrame{Func: st.calls[i].fn})
		}
	}
	back := trace.Event{
		Kind: trace.Stacktrace, Time: ev.Time, Task: ev.Task, Comm: ev.Comm, Func: ev.Func, Stack: ev.Stack, Backtrace: stack,
	}
	return v.show(&back, "")
}

// judge tells whether an event is one to be shown, and sets its depth to the number of calls around it that are.
func (v *view) judge(ev *trace.Event) bool {
	set := v.settings(ev.Time)
	fn := v.of(ev.Func)
	st := v.stacks[stackID{ev.Task, ev.Stack}]
	if st == nil {
		st = &stack{}
		v.stacks[stackID{ev.Task, ev.Stack}] = st
	}
	for len(st.calls) < ev.Depth {
		st.calls = append(st.calls, call{})
	}
	if ev.Kind == trace.Entry {
		st.calls = append(st.calls[:ev.Depth], call{fn: ev.Func, known: true})
		return v.entry(ev, set, fn, st)
	}
	var c call
	if ev.Depth < len(st.calls) {
		c = st.calls[ev.Depth]
		st.calls = st.calls[:ev.Depth]
	}
	if ev.Func.Image == trace.SyscallImage {
		return false
	}
	if !c.known {
		c.shown = set.records(fn) && v.tasks(set, ev.Task) && set.graph.empty() && ev.Flags&trace.FlagLeaf == 0
	}
	if !c.shown || !set.on || set.tracer != tracerGraph {
		return false
	}
	if set.threshold > 0 {
		if ev.Dur < set.threshold {
			return false
		}
		ev.Flags &^= trace.FlagLeaf
	}
	ev.Depth = st.depth()
	return true
}

// depth is the number of open calls that are shown.
func (st *stack) depth() (n int) {
	for i := range st.calls {
		if st.calls[i].shown {
			n++
		}
	}
	return n
}

// caller is the innermost function of the calls around one. A system call is none: and the end of one that was open when
// these were switched off is not in the buffer, so it seems to be open for ever.
func (st *stack) caller(depth int) trace.FuncID {
	for i := depth - 1; i >= 0; i-- {
		if c := &st.calls[i]; c.known && c.fn.Image != trace.SyscallImage {
			return c.fn
		}
	}
	return trace.FuncID{}
}

// entry judges the entry of the innermost call of a stack.
func (v *view) entry(ev *trace.Event, set *settings, fn int, st *stack) bool {
	c := &st.calls[ev.Depth]
	if ev.Depth > 0 {
		c.inside, c.noted = st.calls[ev.Depth-1].inside, st.calls[ev.Depth-1].noted
	}
	if ev.Caller.Image == trace.SyscallImage {
		ev.Caller = st.caller(ev.Depth)
	}
	depth := st.depth()
	ok := set.records(fn) && v.tasks(set, ev.Task) && ev.Func.Image != trace.SyscallImage
	if set.tracer == tracerGraph && ok {
		c.inside = c.inside || set.graph.has(fn)
		c.noted = c.noted || set.noGraph.has(fn)
		ok = (c.inside || set.graph.empty()) && !c.noted && (set.maxDepth == 0 || int64(depth) < set.maxDepth)
	}
	c.shown = ok
	ev.Depth = depth
	return ok && !(set.tracer == tracerGraph && set.threshold > 0)
}

// tasks tells whether a task is one to be recorded.
func (v *view) tasks(set *settings, k *trace.Task) bool {
	return set.tasks(k) && (set.cpus == nil || set.cpus.Bit(v.in.fs.cpu(k)) != 0)
}

// tasks tells it of a task's ids.
func (s *settings) tasks(k *trace.Task) bool {
	return chosenTask(k, s.tids, s.noTids, s.flags["function-fork"])
}

// eventTasks tells whether events of a task are to be recorded.
func (v *view) eventTasks(set *settings, k *trace.Task) bool {
	return chosenTask(k, set.eventTids, set.noEventTids, set.flags["event-fork"]) &&
		(set.cpus == nil || set.cpus.Bit(v.in.fs.cpu(k)) != 0)
}

// chosenTask tells whether a task is in a list, if there is one, and not in another; fork: or its parents are.
func chosenTask(task *trace.Task, tids, noTids map[int]bool, fork bool) bool {
	in := func(tids map[int]bool) bool {
		k := task
		for depth := 0; k != nil && depth < 100; depth++ {
			if tids[k.TID] {
				return true
			}
			if !fork {
				return false
			}
			k = k.Parent
		}
		return false
	}
	return (tids == nil || in(tids)) && (noTids == nil || !in(noTids))
}

// happening shows the events that the beginning or the end of a system call is.
func (v *view) happening(ev *trace.Event) error {
	set := v.settings(ev.Time)
	if !set.on || !set.events.any() || !v.eventTasks(set, ev.Task) {
		return nil
	}
	for _, i := range v.in.fs.events.of(ev) {
		if !set.events.has(i) {
			continue
		}
		e := &v.in.fs.events.all[i]
		h := v.in.fs.happens(v.t, i, ev)
		if !set.events.keeps(i, h) {
			continue
		}
		if v.skip[ev.Task] > 0 {
			v.skip[ev.Task]--
			continue
		}
		if err := v.show(ev, e.line(h)); err != nil {
			return err
		}
	}
	return nil
}

// textWriter is a format of trace.
type textWriter interface {
	Event(*trace.Event) error
	Text(ev *trace.Event, text string) error
	Close() error
}

// text writes what is in the buffer; most: of that many events, about, 0: all. n is how many events there were.
func (in *instance) text(t *trace.Trace, cpu, most int, consume bool) (b []byte, n int, err error) {
	v := view{in: in, t: t, cpu: cpu, consume: consume, most: most}
	var out bytes.Buffer
	set := in.epochs.now()
	number := func(k *trace.Task) int { return in.fs.cpu(k) }
	var writer textWriter
	if set.tracer == tracerGraph {
		writer = ftrace.NewGraph(&out, t, ftrace.GraphOptions{
			NoHeader: consume, NoCPU: !set.flags["funcgraph-cpu"], NoOverhead: !set.flags["funcgraph-overhead"],
			NoDuration: !set.flags["funcgraph-duration"], Proc: set.flags["funcgraph-proc"],
			AbsTime: set.flags["funcgraph-abstime"], Tail: set.flags["funcgraph-tail"],
			SinceStart: in.clock == clockLocal, CPU: number,
		})
	} else {
		writer = ftrace.NewFunction(&out, t, ftrace.FunctionOptions{
			NoHeader: consume, Tracer: set.tracer, NoIRQInfo: !set.flags["irq-info"], TGID: set.flags["record-tgid"],
			NoParent: !set.flags["print-parent"], SymOffset: set.flags["sym-offset"], SymAddr: set.flags["sym-addr"],
			Annotate: set.flags["annotate"], SinceStart: in.clock == clockLocal, CPU: number,
		})
	}
	err = v.walk(func(ev *trace.Event, text string) error {
		if text != "" {
			return writer.Text(ev, text)
		}
		return writer.Event(ev)
	})
	if err == nil {
		err = writer.Close()
	}
	return out.Bytes(), v.shown, err
}
