package trace

import (
	"cmp"
	"errors"
	"slices"
)

// The longest calls are found by the bounds that the index has of each function in each
// block: blocks are visited by the longest call that can be in them, until none is left
// that can have one longer than those found. Going to a block means going over the
// states of those before it, so blocks are visited in waves, each twice as large as the
// one before and in the order of the file, and not one by one.

// A Call is a call that has ended, or was open at the end of its thread or the trace.
type Call struct {
	Func  FuncID
	Task  *Task
	Start int64 // ns since the trace's start
	Dur   int64
	Self  int64
	Depth int    // number of calls around it
	Stack uint64 // number of the stack it is on
	Kind  Kind   // Exit, Unwound or Unfinished
}

// compare orders calls, the longest first. No two calls are the same.
func (c *Call) compare(o *Call) int {
	return cmp.Or(
		cmp.Compare(o.Dur, c.Dur), cmp.Compare(c.Start, o.Start), cmp.Compare(c.Task.Index, o.Task.Index),
		cmp.Compare(c.Stack, o.Stack), cmp.Compare(c.Depth, o.Depth),
		cmp.Compare(c.Func.Image, o.Func.Image), cmp.Compare(c.Func.ID, o.Func.ID), cmp.Compare(c.Kind, o.Kind),
	)
}

// A slowList is the longest calls so far.
type slowList struct {
	n     int
	calls *Calls
	list  []Call
}

func (l *slowList) full() bool { return len(l.list) == l.n }

// event takes the end of a call. Those that a task has inherited are its parent's.
func (l *slowList) event(ev *Event) error {
	switch ev.Kind {
	case Exit, Unwound, Unfinished:
	default:
		return nil
	}
	if ev.Flags&(FlagNoEntry|FlagInherited) != 0 || ev.Dur < l.calls.Threshold ||
		l.full() && ev.Dur < l.list[l.n-1].Dur || l.calls.Match != nil && !l.calls.Match(ev.Func) {
		return nil
	}
	c := Call{ev.Func, ev.Task, ev.Time - ev.Dur, ev.Dur, ev.Self, ev.Depth, ev.Stack, ev.Kind}
	i, found := slices.BinarySearchFunc(l.list, &c, func(a Call, b *Call) int { return a.compare(b) })
	if found {
		return nil
	}
	if l.full() {
		if i == l.n {
			return nil
		}
		l.list = l.list[:l.n-1]
	}
	l.list = slices.Insert(l.list, i, c)
	return nil
}

// Slowest returns the n longest calls that end in the walk's window, the longest first: of functions that o.Calls.Match
// says, from o.Calls.Threshold on. A call that was unwound, and returned nevertheless, as those of coroutines do, is two
// calls. There must be no o.Calls.Roots, Without or Nest. With an index, only those parts of the trace are read that
// can have one.
func (t *Trace) Slowest(n int, o WalkOptions) ([]Call, error) {
	if o.Calls.Roots != nil || o.Calls.Without != nil || o.Calls.Nest {
		return nil, errors.New("the slowest calls inside of functions are not known")
	}
	if n <= 0 {
		return nil, nil
	}
	l := &slowList{n: n, calls: &o.Calls}
	if t.blocks != nil {
		err := t.slowestByBlocks(l, o)
		if err == nil {
			return l.list, nil
		}
		if !errors.Is(err, errBlocks) {
			return nil, err
		}
		l.list = nil
	}
	all := o
	all.Calls, all.Open = Calls{}, false
	if err := t.walkAll(all, l.event); err != nil {
		return nil, err
	}
	return l.list, nil
}

// walkAll is Walk without the index.
func (t *Trace) walkAll(o WalkOptions, fn func(*Event) error) error {
	w, visit, emit, stop := t.newWalker(o, fn)
	w.planAll(visit, emit)
	return w.run(stop)
}

// A slowBlock is a block with the longest call that may be in it.
type slowBlock struct {
	ticks uint64
	task  int // position in Trace.Tasks
	block int
}

// firstWave is how many blocks are visited at first.
const firstWave = 32

func (t *Trace) slowestByBlocks(l *slowList, o WalkOptions) error {
	from, to := t.counterBounds(o.From, o.To)
	_, visit, emit, _ := t.newWalker(o, l.event)
	parts := map[int]*taskBlocks{}
	var todo []slowBlock
	for _, k := range t.Tasks {
		if first, last := t.blocks.span(k); !visit[k.Index] || len(k.chunks) == 0 || last < from || first > to {
			continue
		}
		tb, err := t.blocks.states(k)
		if err != nil {
			return errBlocks
		}
		parts[k.Index] = tb
		most := make([]uint64, len(tb.blocks))
		has := make([]bool, len(tb.blocks)) // calls of one of the functions
		if err := t.blocks.eachBounds(tb, func(i int, fn FuncID, ticks, _ uint64) {
			if o.Calls.Match == nil || o.Calls.Match(fn) {
				most[i], has[i] = max(most[i], ticks), true
			}
		}); err != nil {
			return errBlocks
		}
		for i, ticks := range most {
			if blk := &tb.blocks[i]; has[i] && blk.hi >= from && blk.lo <= to && t.Clock.Span(ticks) >= o.Calls.Threshold {
				todo = append(todo, slowBlock{ticks, k.Index, i})
			}
		}
	}
	slices.SortFunc(todo, func(a, b slowBlock) int {
		return cmp.Or(cmp.Compare(b.ticks, a.ticks), cmp.Compare(a.task, b.task), cmp.Compare(a.block, b.block))
	})
	for wave := firstWave; len(todo) > 0; wave *= 2 {
		if l.full() && t.Clock.Span(todo[0].ticks) < l.list[l.n-1].Dur {
			break
		}
		now := todo[:min(wave, len(todo))]
		todo = todo[len(now):]
		if err := t.walkBlocks(now, parts, emit); err != nil {
			return err
		}
	}
	return nil
}

// walkBlocks visits blocks.
func (t *Trace) walkBlocks(blocks []slowBlock, parts map[int]*taskBlocks, emit func(*Event) error) error {
	blocks = slices.Clone(blocks)
	slices.SortFunc(blocks, func(a, b slowBlock) int {
		return cmp.Or(cmp.Compare(a.task, b.task), cmp.Compare(a.block, b.block))
	})
	w := t.emptyWalker(len(parts))
	for i, b := range blocks {
		if i == 0 || blocks[i-1].task != b.task {
			pt := &part{taskBlocks: parts[b.task]}
			w.pending = append(w.pending, pending{t.Tasks[b.task], pt.blocks[b.block].due, emit, pt})
		}
		pt := w.pending[len(w.pending)-1].part
		if n := len(pt.runs); n > 0 && pt.runs[n-1][1] == b.block {
			pt.runs[n-1][1]++
		} else {
			pt.runs = append(pt.runs, [2]int{b.block, b.block + 1})
		}
	}
	slices.SortStableFunc(w.pending, func(a, b pending) int { return cmp.Compare(a.due, b.due) })
	return w.run(0)
}
