package trace

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/fentry-dev/fentry/internal/format"
)

// A part is the blocks of a task that a walk visits, in runs of blocks that follow
// each other.
type part struct {
	*taskBlocks
	runs [][2]int // the first block and the one behind the last, in order
	due  uint64   // where the current run's first word is in the order of time
	stop int      // the block behind the last one in the window
	all  bool     // all events are asked for: those left out are none of the window

	gist  []bool // blocks of which the gist is enough; nil: none
	gists gistWalk
}

// takes tells whether the gist of block i is enough.
func (p *part) takes(i int) bool { return p.gist != nil && p.gist[i] }

// planBlocks has those blocks of tasks read in which the events are that are asked for.
// It returns false if there is no index, or none that helps.
func (w *walker) planBlocks(o WalkOptions, visit []bool, emit func(*Event) error) bool {
	t := w.t
	// Of a forked task the index has what is otherwise in its parents' events.
	forked := func(k *Task) bool { return visit[k.Index] && k.Parent != nil && !visit[k.Parent.Index] }
	if t.blocks == nil || o.From <= 0 && o.To <= 0 && o.Calls.all() && !slices.ContainsFunc(t.Tasks, forked) {
		return false
	}
	from, to := t.counterBounds(o.From, o.To)
	for _, k := range t.Tasks {
		if !visit[k.Index] || len(k.chunks) == 0 {
			continue
		}
		if first, last := t.blocks.span(k); last < from || first > to {
			continue
		}
		tb, err := t.blocks.states(k)
		if err != nil || len(tb.blocks) == 0 {
			w.pending = nil
			return false
		}
		i := tb.from(from)
		if i == len(tb.blocks) {
			continue
		}
		runs, gist, err := w.runs(k, tb, i, to, o)
		if err != nil {
			w.pending = nil
			return false
		}
		if len(runs) == 0 {
			continue
		}
		i = runs[0][0]
		pt := &part{taskBlocks: tb, runs: runs, stop: len(tb.blocks), all: o.Calls.all(), gist: gist}
		pt.gists.gistReader = gistReader{index: t.blocks, tb: tb}
		for pt.stop > runs[len(runs)-1][1] && tb.blocks[pt.stop-1].lo > to {
			pt.stop--
		}
		due := tb.blocks[i].due
		if i > 0 && o.From > 0 {
			due = min(due, from) // it has begun by then, whenever it goes on
		}
		w.pending = append(w.pending, pending{k, due, emit, pt})
	}
	slices.SortStableFunc(w.pending, func(a, b pending) int { return cmp.Compare(a.due, b.due) })
	return true
}

// runs returns the runs of a task's blocks, from block i on, in which there may be
// events up to counter to that are asked for, and of which the gist is enough. A run has only such blocks, or none.
func (w *walker) runs(k *Task, tb *taskBlocks, i int, to uint64, o WalkOptions) (runs [][2]int, gist []bool, err error) {
	if o.Calls.all() {
		return tb.runsTo(i, to, nil, func(int) bool { return true }), nil, nil
	}
	wanted := make([]bool, len(tb.blocks))
	shown := make([]bool, len(tb.blocks))  // inside of roots, if there are any
	inside := make([]bool, len(tb.blocks)) // a call that matches begins and ends there
	c := &o.Calls
	for j := range tb.blocks {
		f := tb.blocks[j].flags
		wanted[j], shown[j] = f&format.BlockLost != 0, f&format.BlockNotes != 0
	}
	isLong := func(ticks uint64) bool { return ticks == math.MaxUint64 || w.t.Clock.Span(ticks) >= c.Threshold }
	err = w.t.blocks.eachBounds(tb, func(j int, fn FuncID, ticks, in uint64) {
		long := isLong(ticks)
		if long && (!shown[j] || !inside[j]) && (c.Match == nil || c.Match(fn)) {
			shown[j] = true
			inside[j] = inside[j] || in > 0 && isLong(in)
		}
		// Inside of a short call there is no long one, but there can be other events.
		if c.Roots != nil && !wanted[j] && (long || tb.blocks[j].flags&format.BlockNotes != 0) {
			wanted[j] = c.Roots(fn)
		}
	})
	if err == nil && c.Roots != nil {
		err = w.insideRoots(k, tb, c.Roots, shown)
	}
	for j := range wanted {
		wanted[j] = wanted[j] || shown[j]
	}
	if !w.t.captures {
		gist = tb.gistsFor(c, &w.t.Clock, inside)
	}
	if o.From > 0 { // the calls that are open when the window begins
		wanted[i] = true
		if gist != nil {
			gist[i] = false
		}
	}
	return tb.runsTo(i, to, gist, func(j int) bool { return wanted[j] }), gist, err
}

// runsTo returns the runs of blocks that are wanted, from block i on, in which there may be events up to a counter.
// Behind one that has none there can be others: an event may be written late. Those that gist names are in runs of
// their own.
func (tb *taskBlocks) runsTo(i int, to uint64, gist []bool, wanted func(int) bool) (runs [][2]int) {
	for j := i; j < len(tb.blocks); j++ {
		switch n := len(runs); {
		case !wanted(j) || tb.blocks[j].lo > to:
		case n > 0 && runs[n-1][1] == j && (gist == nil || gist[j] == gist[j-1]):
			runs[n-1][1]++
		default:
			runs = append(runs, [2]int{j, j + 1})
		}
	}
	return runs
}

// insideRoots takes back what is shown of blocks that do not begin inside of certain functions.
func (w *walker) insideRoots(k *Task, tb *taskBlocks, roots func(FuncID) bool, shown []bool) error {
	var s orphans
	fl := newFollower(&s, tb.blocks[0].due, k.Stack)
	if k.ParentPID != 0 {
		fl.inherit(tb.inherited, k.begin)
	}
	at := map[uint64]int{} // by stack, the depth of the outermost root
	look := func(st *callStack, kept int) {
		if d, ok := at[st.num]; ok && d < kept {
			return
		}
		delete(at, st.num)
		for i := kept; i < len(st.frames); i++ {
			if roots(st.frames[i].fn) {
				at[st.num] = i
				return
			}
		}
	}
	look(fl.cur, 0)
	var bs blockState
	for j := range tb.blocks {
		if j > 0 {
			if err := tb.apply(fl, j, &bs, &stateWatch{changed: look}); err != nil {
				return err
			}
		}
		shown[j] = shown[j] && len(at) > 0
	}
	return nil
}

// counterBounds returns counters outside of which no event has a time in the window.
func (t *Trace) counterBounds(from, to int64) (first, last uint64) {
	last = math.MaxUint64
	if from > 0 {
		first = t.Clock.Counter(from)
		first -= min(first, 4)
	}
	if to > 0 {
		last = t.Clock.Counter(to)
		last += min(^last, 4)
	}
	return first, last
}

// newPartCursor returns a cursor at the first word of the part's first run.
func newPartCursor(t *Trace, k *Task, window []byte, emit func(*Event) error, p *part) (*cursor, error) {
	c := &cursor{t: t, task: k, dec: t.newDecoder(k.chunks, window), part: p}
	c.ev.Task = k
	c.fl = newFollower(c, p.blocks[0].due, k.Stack)
	if k.ParentPID != 0 {
		c.fl.inherit(p.inherited, k.begin)
	}
	run := p.runs[0]
	if run[0] > 0 {
		bs := blockState{comm: p.comm}
		err := p.reach(c.fl, run[0], &bs)
		if err == nil {
			err = c.enterRun(&bs, run[0])
		}
		if err != nil {
			return nil, err
		}
		c.emit = emit
		return c, nil
	}
	if !c.begin() {
		return nil, cmp.Or(c.dec.err, errBlocks)
	}
	c.ev.Comm = k.firstName(c.dec)
	c.dec.commIsNew = false
	c.emit = emit
	c.setRun(run)
	return c, nil
}

// setRun says where the run of blocks ends.
func (c *cursor) setRun(run [2]int) {
	c.rest = len(c.task.chunks) - c.part.end(run[1]-1)
	c.part.due = c.part.blocks[run[0]].due
}

// seek brings the cursor from the state at the start of block i to the first word of
// the run that begins with block j, which is later.
func (c *cursor) seek(bs *blockState, i, j int, watch *stateWatch) error {
	p := c.part
	c.short = c.short && i == j
	for i++; i <= j; i++ {
		if err := p.apply(c.fl, i, bs, watch); err != nil {
			return errBlocks
		}
	}
	return c.enterRun(bs, j)
}

// enterRun goes on with the run that begins with block j, whose state the follower is in.
func (c *cursor) enterRun(bs *blockState, j int) error {
	if c.part.takes(j) {
		return c.enterGists(bs, j)
	}
	return c.settle(bs, j)
}

// settle goes on with the first word of block j, whose state the follower is in.
func (c *cursor) settle(bs *blockState, j int) error {
	p, d := c.part, c.dec
	c.inGists = false
	d.chunks, d.win, d.at, d.off, d.end = c.task.chunks[p.blocks[j].chunk:], nil, 0, 0, 0
	d.number = bs.number
	if !c.begin() {
		return cmp.Or(d.err, errBlocks)
	}
	c.ev.Comm = bs.comm
	c.tail, c.leaf = bs.tail, bs.leaf
	c.setRun(p.runs[0])
	return nil
}

// jump goes on with the next run of blocks; the walk is over for the task if there is
// none. It returns false, as step does for what it cannot go on with at once.
func (c *cursor) jump() bool {
	p := c.part
	at := p.runs[0][1] // the follower is at its start
	bs := blockState{comm: c.ev.Comm}
	if p.takes(at - 1) {
		bs = p.gists.bs
	}
	p.runs = p.runs[1:]
	least := map[uint64]int{} // by stack, how many calls are still open
	changed := func(st *callStack, kept int) {
		if d, ok := least[st.num]; !ok || kept < d {
			least[st.num] = kept
		}
	}
	t := c.fl.t
	switch {
	case len(p.runs) > 0:
		c.err = c.seek(&bs, at, p.runs[0][0], &stateWatch{changed: changed})
		c.jumped = c.err == nil
	case p.stop < len(p.blocks):
		// What is open when the window ends is open for those who show it.
		for i := at + 1; i <= p.stop && c.err == nil; i++ {
			if p.apply(c.fl, i, &bs, &stateWatch{changed: changed}) != nil {
				c.err = errBlocks
			}
		}
	default:
		changed(c.fl.cur, 0)
		for _, st := range c.fl.stacks {
			changed(st, 0)
		}
	}
	if c.err == nil {
		next := c.fl.t
		c.fl.t = t
		c.skipped(least)
		c.fl.t = next
	}
	return false
}

// skipped emits which calls have ended in blocks that are not visited.
func (c *cursor) skipped(least map[uint64]int) {
	if c.emit == nil || c.part.all {
		return
	}
	ev := c.ev
	ev.Kind, ev.Time, ev.Flags, ev.Count = Skipped, c.t.Clock.Time(c.fl.t), 0, 0
	ev.Func, ev.Caller, ev.Dur, ev.Self = FuncID{}, FuncID{}, 0, 0
	for _, num := range slices.Sorted(maps.Keys(least)) {
		ev.Stack, ev.Depth = num, least[num]
		if c.err == nil {
			c.err = c.emit(&ev)
		}
	}
}
