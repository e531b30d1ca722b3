package trace

import "github.com/fentry-dev/fentry/internal/format"

// A report of calls that are chosen by their function, duration and time needs no events
// where the index has their sums: between a window's two ends, or, with a threshold, where
// no call that begins and ends in a block is long enough. The calls that cross the borders
// of blocks are on the follower's stacks and taken off by the states, as for every chosenSink
// over blocks that are left out; the lists say when each has ended, so it is not taken back
// but counted.
//
// What the sink knows of calls at a block's start must then be what it would know had it
// decoded the block before. Whether a call was outermost when it began depends on calls that
// have ended since, maybe on other stacks, so it is not found out again: the states say it.
// Of the calls that are open when a window begins the sink decides it itself, with an index
// and without. A graph asks the same of call paths, and a report of calls inside of others asks
// it of those that count, of which the states say nothing. There the lists serve in blocks of
// one stack, where calls come and go in the order of the stack.

// A blockSums reads the lists and sums of a task.
type blockSums struct {
	x  *blockIndex
	tb *taskBlocks

	// paths: calls are counted by their paths. Where stacks have taken turns, states do not tell which calls were
	// outermost of their path.
	paths bool

	least uint64 // ticks of calls that count

	segment  int // of which lists and runs are; -1: none
	first, n int // its blocks
	lists    [][]endedCall
	runs     []sumRun

	long   []longRun // nil: they were not read
	inLong []bool    // by block: it is of a long run that was added

	over  int // the block behind those whose runs are decided on
	added int // the block behind the newest run that was added

	now []endedCall        // of the block that is left out, from the first that was not taken
	at  map[openCall][]int // where in it each call is, if there are many
	err error
}

// shortList is how many calls are looked through one by one.
const shortList = 16

func (q *blockSums) begin(x *blockIndex, tb *taskBlocks) {
	*q = blockSums{x: x, tb: tb, paths: q.paths, least: q.least, segment: -1}
}

// tells says that lists tell enough of the calls that cross a block's borders.
func (q *blockSums) tells(block int) bool {
	return q != nil && (!q.paths || q.tb.blocks[block].flags&format.BlockPlain != 0)
}

// load reads the segment that has a block.
func (q *blockSums) load(block int) error {
	if q.segment >= 0 && block >= q.first && block < q.first+q.n {
		return nil
	}
	if q.segment < 0 || block < q.first {
		q.segment, q.first, q.n = 0, 0, q.tb.segments[0]
	}
	for block >= q.first+q.n {
		if q.segment++; q.segment >= len(q.tb.segments) {
			return errBlocks
		}
		q.first += q.n
		q.n = q.tb.segments[q.segment]
	}
	s := &q.x.tasks[q.tb.task.Index][q.segment]
	off := s.off + int64(s.states) + int64(s.functions)
	b, err := q.x.section(off, s.lists, s.listsCRC)
	if err == nil {
		q.lists, err = parseLists(b, q.x.images, q.tb.blocks[q.first:q.first+q.n])
	}
	if err == nil {
		b, err = q.x.section(off+int64(s.lists), s.sums, s.sumsCRC)
	}
	if err == nil {
		q.runs, err = parseRuns(b, q.first, q.n)
	}
	return err
}

// list makes the list of a block the one that calls are taken from.
func (q *blockSums) list(block int) error {
	if err := q.load(block); err != nil {
		return err
	}
	q.now, q.at = q.lists[block-q.first], nil
	if len(q.now) > shortList {
		q.at = make(map[openCall][]int, len(q.now))
		for i := range q.now {
			q.at[q.now[i].openCall] = append(q.at[q.now[i].openCall], i)
		}
	}
	return nil
}

// take takes a call from the list.
func (q *blockSums) take(c openCall) *endedCall {
	if q.at != nil {
		at := q.at[c]
		if len(at) == 0 {
			return nil
		}
		q.at[c] = at[1:]
		return &q.now[at[0]]
	}
	for i := range q.now {
		if e := &q.now[i]; e.openCall == c && e.how != endTaken {
			taken := *e
			e.how = endTaken
			return &taken
		}
	}
	return nil
}

// addRun adds the sums of the run that begins with block i, if all of it counts. Otherwise its blocks are decoded.
func (s *chosenSink) addRun(i, first, last int, wanted []bool) error {
	q := s.sums
	if added, err := s.addLong(i, last, wanted); added || err != nil {
		return err
	}
	if i < q.over {
		return nil
	}
	if err := q.load(i); err != nil {
		return err
	}
	for j := range q.runs {
		r := &q.runs[j]
		end := r.first + r.n
		if i < r.first || i >= end {
			continue
		}
		q.over = end
		if !q.paths && len(r.body) == 0 || q.paths && len(r.paths) == 0 {
			return nil
		}
		for k := i; k < end; k++ {
			// A call that a threshold has held back can begin before the window, and be in the block.
			if b := &q.tb.blocks[k]; b.flags&format.BlockAlike != 0 || b.lo < s.from {
				return nil
			}
		}
		// Where the window begins, its first block is decoded for what is open then.
		if i > r.first || end > last && last < len(wanted) || s.before || s.fl.now <= s.from && s.from > 0 {
			return nil
		}
		if len(r.waits) == 0 && !s.onProcessor(i, end) {
			return nil
		}
		ok, err := s.addSums(r)
		if ok {
			clear(wanted[i:end])
			q.added = end
		}
		return err
	}
	return errBlocks
}

// addSums adds a run's sums. ok is false if they do not tell what is asked for; then nothing is added.
func (s *chosenSink) addSums(r *sumRun) (ok bool, err error) {
	q := s.sums
	if q.paths {
		return r.addPaths(counting(s).(pathSink), q.x.images, s, q.least)
	}
	return r.addTo(counting(s).(*report), q.x.images, &s.match, q.least)
}

// onProcessor says of a run that tells nothing of it that no call in the blocks up to end had to wait, as far as that is asked for: if the task was on a
// processor all the time, the sums of calls have all that there is to know.
func (s *chosenSink) onProcessor(i, end int) bool {
	w := s.fl.waits
	if w == nil {
		return true
	}
	lo := s.tb.blocks[i].lo
	for _, b := range s.tb.blocks[i:end] {
		lo = min(lo, b.lo)
	}
	return w.busy(lo, s.tb.blocks[end-1].hi)
}

// ended takes the end of a call in a block that is left out.
func (s *chosenSink) ended(f *frame, place stackPlace) {
	e := s.sums.take(openCall{f.fn, f.start})
	if e == nil {
		s.sums.err = errBlocks
		return
	}
	if place.stack != noStack { // what is aside spends no time
		f.self = e.self
		s.since(f, place)
	}
	if e.how == endForgotten {
		s.forget(f)
		return
	}
	s.leave(f, e.end, e.how)
}

// stated gives a call that has begun in a block that is left out what the state says of it.
func (s *chosenSink) stated(f *frame) {
	if s.sums == nil || s.sums.paths || f.flags&frameHidden != 0 {
		return
	}
	was := f.flags & frameOutermost
	f.flags &^= frameOutermost
	if f.flags&frameOuter != 0 {
		f.flags |= frameOutermost
	}
	if f.flags&frameOutermost != was {
		counting(s).(*report).remark(f)
	}
}

// putAside takes the calls that have begun in a block that is left out, and were put aside in it. It returns an error if
// what was left out does not fit.
func (s *chosenSink) putAside() error {
	if s.sums == nil || s.before {
		return nil
	}
	cur := s.fl.cur
	for i := range s.fresh.list {
		f := &s.fresh.list[i].frame
		if f.flags&frameTaken != 0 {
			f.flags &^= frameTaken
			continue
		}
		if s.sums.paths {
			continue // it stays hidden: all that begin in such a block are too short
		}
		f.flags &^= frameHidden
		st := callStack{num: noStack, frames: []frame{*f}}
		s.fl.cur = &st
		s.enter(&st.frames[0])
		*f = st.frames[0]
		s.stated(f)
		s.suspend(f)
	}
	s.fl.cur = cur
	return s.sums.err
}
