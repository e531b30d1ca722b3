package trace

import (
	"cmp"
	"slices"
)

// A part is the blocks of a task that a walk visits, in runs of blocks that follow
// each other.
type part struct {
	*taskBlocks
	runs [][2]int // the first block and the one behind the last, in order
	due  uint64   // where the current run's first word is in the order of time
}

// planBlocks has those blocks of tasks read in which the events are that are asked for.
// It returns false if there is no index, or none that helps.
func (w *walker) planBlocks(o WalkOptions, visit []bool, emit func(*Event) error) bool {
	t := w.t
	if t.blocks == nil || o.From <= 0 {
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
		pt := &part{taskBlocks: tb, runs: [][2]int{{i, len(tb.blocks)}}}
		due := tb.blocks[i].due
		if i > 0 {
			due = min(due, from) // it has begun by then, whenever it goes on
		}
		w.pending = append(w.pending, pending{k, due, emit, pt})
	}
	slices.SortStableFunc(w.pending, func(a, b pending) int { return cmp.Compare(a.due, b.due) })
	return true
}

// counterBounds returns counters outside of which no event has a time in the window.
func (t *Trace) counterBounds(from, to int64) (first, last uint64) {
	first, last = t.Clock.Counter(from), ^uint64(0)
	first -= min(first, 4)
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
		if err := c.seek(&bs, 0, run[0], func(uint64, int) {}); err != nil {
			return nil, err
		}
		c.emit = emit
		return c, nil
	}
	if !c.dec.next(&c.cur) {
		return nil, cmp.Or(c.dec.err, errBlocks)
	}
	c.more = c.dec.next(&c.nxt)
	c.ev.Comm = commString(c.dec.comm[:])
	c.dec.commIsNew = false
	c.emit = emit
	c.setRun(run)
	return c, nil
}

// setRun says where the run of blocks ends.
func (c *cursor) setRun(run [2]int) {
	c.rest = len(c.task.chunks) - c.part.end(run[1]-1, c.task)
	c.part.due = c.part.blocks[run[0]].due
}

// seek brings the cursor from the state at the start of block i to the first word of
// the run that begins with block j, which is later.
func (c *cursor) seek(bs *blockState, i, j int, gone func(stack uint64, depth int)) error {
	p := c.part
	for i++; i <= j; i++ {
		blk := &p.blocks[i]
		bs.number = c.task.chunks[blk.chunk-1].number + 1
		if err := c.fl.apply(blk.state, bs, gone); err != nil {
			return errBlocks
		}
	}
	d := c.dec
	d.chunks, d.win, d.at, d.off, d.end = c.task.chunks[p.blocks[j].chunk:], nil, 0, 0, 0
	d.number = bs.number
	if !d.next(&c.cur) {
		return cmp.Or(d.err, errBlocks)
	}
	c.ev.Comm, d.commIsNew = bs.comm, false
	c.more = d.next(&c.nxt)
	c.tail, c.leaf = bs.tail, bs.leaf
	c.setRun(p.runs[0])
	return nil
}

// jump goes on with the next run of blocks; the walk is over for the task if there is
// none. It returns false, as step does for what it cannot go on with at once.
func (c *cursor) jump() bool {
	p := c.part
	at := p.runs[0][1] // the follower is at its start
	p.runs = p.runs[1:]
	if len(p.runs) == 0 {
		return false
	}
	bs := blockState{comm: c.ev.Comm}
	if c.err = c.seek(&bs, at, p.runs[0][0], func(uint64, int) {}); c.err == nil {
		c.jumped = true
	}
	return false
}
