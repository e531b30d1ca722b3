package trace

import (
	"maps"
	"slices"
)

// Who draws hours of a task on a screen's columns cannot go through its events, and need not: what is at least as long
// as a column is nearly always a call that crosses the border of a block, because a block is a fraction of a millisecond.
// The states of the index have those calls, with their beginnings, and its lists have their ends. Both together are the
// task's outline: every call that was open at the border of two blocks, exactly, and which calls were open there, as
// samples of what is too short to be drawn. It is a thousandth of the events, so it is made once and kept.
//
// The invariant: a call of the task is in the outline, to a depth, or begins and ends in one block. So a reader that
// decodes a block whole knows all calls there are in it, and when they end. A call that is put aside by a switch of
// stacks ends there; if it returns nevertheless, as those of coroutines do, that is not another call.

// An Outline is the calls of a task that cross the borders of the index's blocks.
type Outline struct {
	Task *Task
	// Calls are in no order, but each comes after the one around it.
	Calls []OutlineCall
	// Borders are where blocks begin, by time, and a last one where the task's events end.
	Borders []OutlineBorder
}

// An OutlineCall is a call that was open at the border of two blocks. Times are in ns since the trace's start.
type OutlineCall struct {
	Func       FuncID // zero: a forked task was thought to have inherited it; ignore it
	Start, End int64  // End is never before Start
	Stack      uint64
	Depth      int32 // number of calls around it
	Parent     int32 // the innermost of them in Outline.Calls; -1: there is none
	Kind       Kind  // Exit, Unwound or Unfinished
}

// An OutlineBorder is where a block begins: at Time. Its events lie between its First and Last. Entries that were written
// late, as those that a threshold has held back while the task was on another stack, can be older than where their block
// begins. So First can lie before Time, and before other blocks; Time and Last never decrease.
type OutlineBorder struct {
	Time, First, Last int64
	Stack             uint64 // the one that the task is on
	Top               int32  // the innermost call that is open on it, of those in Outline.Calls; -1: there is none
}

// Span returns the times of a task's first and last event. ok is false if that is not known without an index.
func (t *Trace) Span(k *Task) (first, last int64, ok bool) {
	if t.blocks == nil || len(t.blocks.tasks[k.Index]) == 0 {
		return k.Start, k.Start, false
	}
	lo, hi := t.blocks.span(k)
	return t.Clock.Time(lo), t.Clock.Time(max(lo, hi)), true
}

// Outline returns the outline of a task to a depth: calls with that many around them, or more, are not in it. It is nil
// if the trace has no index, or one that is damaged or does not fit.
func (t *Trace) Outline(k *Task, depth int) *Outline {
	if t.blocks == nil || len(k.chunks) == 0 {
		return nil
	}
	tb, err := t.blocks.states(k)
	if err != nil || len(tb.blocks) == 0 {
		return nil
	}
	b := outliner{t: t, depth: depth, o: &Outline{Task: k}, fl: newFollower(&orphans{}, tb.blocks[0].due, k.Stack)}
	if k.ParentPID != 0 {
		b.fl.inherit(tb.inherited, k.begin)
	}
	b.ends.begin(t.blocks, tb)
	if b.run(tb) != nil {
		return nil
	}
	return b.o
}

// An outliner makes an outline.
type outliner struct {
	t     *Trace
	depth int
	o     *Outline
	fl    *follower
	ends  blockSums   // of the block that has been gone over
	fresh freshFrames // put aside in it
	lo    uint64      // no event of it has a lesser counter
	err   error
}

func (b *outliner) run(tb *taskBlocks) error {
	b.changed(b.fl.cur, 0)
	watch := &stateWatch{
		cut: b.cut, changed: b.changed, aside: func(fs []suspendedFrame) { b.fresh = freshFrames{list: fs} },
	}
	var bs blockState
	for i := range tb.blocks {
		if i > 0 {
			if err := b.over(tb, i, &bs, watch); err != nil {
				return err
			}
		}
		b.border(b.t.Clock.Time(tb.blocks[i].lo), b.t.Clock.Time(tb.blocks[i].hi))
	}
	n := len(tb.blocks)
	last := b.t.Clock.Time(tb.blocks[n-1].hi)
	if len(tb.next) > 0 { // there is a state behind the last block
		if err := b.over(tb, n, &bs, watch); err != nil {
			return err
		}
		b.unfinished(last)
	} else {
		if err := b.begin(tb, n-1); err != nil {
			return err
		}
		b.cut(b.fl.cur, 0)
		for _, num := range slices.Sorted(maps.Keys(b.fl.stacks)) {
			b.cut(b.fl.stacks[num], 0)
		}
	}
	b.o.Borders = append(b.o.Borders, OutlineBorder{Time: last, First: last, Last: last, Stack: b.fl.cur.num, Top: -1})
	return b.err
}

// begin makes block i the one that is gone over.
func (b *outliner) begin(tb *taskBlocks, i int) error {
	b.fresh, b.lo = freshFrames{}, tb.blocks[i].lo
	return b.ends.list(i)
}

// over goes over the block before block i.
func (b *outliner) over(tb *taskBlocks, i int, bs *blockState, watch *stateWatch) error {
	if err := b.begin(tb, i-1); err != nil {
		return err
	}
	if tb.apply(b.fl, i, bs, watch) != nil {
		return errBlocks
	}
	return b.err
}

// border notes where a block begins.
func (b *outliner) border(first, last int64) {
	at := first
	if n := len(b.o.Borders); n > 0 {
		at = max(at, b.o.Borders[n-1].Last) // what is earlier was written late
	}
	st := b.fl.cur
	top := int32(-1)
	if n := min(len(st.frames), b.depth); n > 0 {
		top = st.frames[n-1].ref
	}
	b.o.Borders = append(b.o.Borders, OutlineBorder{Time: at, First: first, Last: max(at, last), Stack: st.num, Top: top})
}

// changed takes calls that have begun in the block that was gone over and are open behind it.
func (b *outliner) changed(st *callStack, keep int) {
	for i := keep; i < min(len(st.frames), b.depth); i++ {
		f := &st.frames[i]
		parent := int32(-1)
		if i > 0 {
			parent = st.frames[i-1].ref
		}
		f.ref = int32(len(b.o.Calls))
		b.o.Calls = append(b.o.Calls, OutlineCall{
			Func: f.fn, Start: b.t.Clock.Time(f.start), Stack: st.num, Depth: int32(i), Parent: parent,
		})
	}
}

// cut takes the ends of calls, or that they were put aside.
func (b *outliner) cut(st *callStack, keep int) {
	for i := len(st.frames) - 1; i >= keep; i-- {
		f := &st.frames[i]
		var deeper OutlineCall
		c := &deeper
		if i < b.depth {
			c = &b.o.Calls[f.ref]
		}
		if g := b.fresh.take(f); g != nil {
			c.End, c.Kind = max(c.Start, b.t.Clock.Time(g.end)), Unwound
			continue
		}
		e := b.end(f)
		switch {
		case e == nil:
			b.err = errBlocks
			return
		case e.how == endForgotten:
			c.Func = FuncID{}
			continue
		case e.how == endUnwound:
			c.Kind = Unwound
		case e.how == endUnfinished:
			c.Kind = Unfinished
		default:
			c.Kind = Exit
		}
		c.End = max(c.Start, b.t.Clock.Time(e.end))
	}
}

// end takes the end of a call that was open where the block begins. One like it that was put aside before, and is given
// up in this block, ended before it: those that a forked task has inherited from a recursion all begin with the task.
func (b *outliner) end(f *frame) *endedCall {
	e := b.ends.take(openCall{f.fn, f.start})
	for e != nil && e.how == endUnwound && e.end < b.lo {
		e = b.ends.take(openCall{f.fn, f.start})
	}
	return e
}

// unfinished ends the calls that are open where the task ends.
func (b *outliner) unfinished(at int64) {
	end := func(st *callStack) {
		for i := range min(len(st.frames), b.depth) {
			c := &b.o.Calls[st.frames[i].ref]
			c.End, c.Kind = max(c.Start, at), Unfinished
		}
	}
	end(b.fl.cur)
	for _, st := range b.fl.stacks {
		end(st)
	}
}
