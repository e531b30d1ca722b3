package trace

import (
	"maps"
	"math"
	"slices"
	"sort"

	"github.com/fentry-dev/fentry/internal/format"
)

// With an index, a chosenSink gets the words of those blocks only that can have something
// of what is chosen, and is taken over the others by their states. It must count what it
// would have counted. That rests on this:
//
//   - Of a call that counts, the blocks are visited in which it begins, is put aside, and
//     ends: their bounds say that the function can have one.
//   - Whether a call is inside of another, or hidden, follows from the stack alone. So
//     calls that are open behind the blocks left out are entered then, and those that have
//     ended meanwhile are taken back: they are too short, or were hidden all along. How many
//     calls of a function are open is always right, and so is which of them is outermost.
//   - A call that was put aside meanwhile keeps what the sink knows of it: it can come
//     back and last long enough. One that is no longer aside was given up, and ended when
//     it was put there; had it come back and counted, that block would have been visited.
//   - The states have own times since the call's entry. What lies before a window is
//     subtracted.
//
// Leaving out blocks and counting what their states have in common was tried first; it
// came out different wherever coroutines and recursion meet.

// A stackPlace is the place of a frame: the stack's number and the depth.
type stackPlace struct {
	stack uint64
	depth int
}

// noStack is the number of no stack: those with the highest bit are reserved.
const noStack = math.MaxUint64

// setEarlier notes the own time of a call that is open when the window begins: the top of st. current is set if the
// task is in it, so that the time since its newest event is its own, too.
func (s *chosenSink) setEarlier(st *callStack, f *frame, current bool) {
	self := f.self
	if current && s.from > s.fl.now {
		self += s.from - s.fl.now
	}
	if s.blocks == nil || self == 0 || st.num == noStack {
		return
	}
	if s.earlier == nil {
		s.earlier = map[stackPlace]uint64{}
	}
	s.earlier[stackPlace{st.num, len(st.frames) - 1}] = self
}

// since makes the own time of a frame, which is that since its entry, that in the window.
func (s *chosenSink) since(f *frame, place stackPlace) {
	if f.flags&frameEarlier != 0 {
		f.self -= min(f.self, s.earlier[place])
	}
}

// runBlocks feeds the words of a task to the sink, as far as they are needed.
func (s *chosenSink) runBlocks(k *Task, d *decoder) error {
	tb, err := s.blocks.states(k)
	if err != nil {
		return errBlocks
	}
	if len(tb.blocks) == 0 { // no events at all
		fl := s.t.follow(k, s, 0)
		if k.ParentPID != 0 && s.from <= 0 {
			fl.inherit(tb.inherited, k.begin)
		}
		fl.finish()
		return nil
	}
	first := tb.from(s.from)
	if first == len(tb.blocks) {
		return nil
	}
	if s.sums != nil {
		s.sums.begin(s.blocks, tb)
	}
	wanted, last, err := s.wanted(k, tb, first)
	if err != nil {
		return errBlocks
	}
	fl := s.t.follow(k, s, tb.blocks[0].due)
	if k.ParentPID != 0 {
		fl.inherit(tb.inherited, k.begin)
	}
	short := s.shortCalls(tb)
	watch := &stateWatch{cut: s.cut, changed: s.changed, lost: s.lost, aside: s.aside}
	var bs blockState
	for i := range tb.blocks {
		if i > 0 && !wanted[i-1] {
			if s.leaveOut(fl, i, &bs, watch) != nil {
				return errBlocks
			}
			d.number = bs.number
		}
		// Where the window has begun and nothing has happened in it, the follower's time is not the states'.
		if !s.before && fl.now <= s.from && s.from > 0 {
			wanted[i] = true
		}
		if s.sums != nil && i >= first {
			if err := s.addRun(i, first, last, wanted); err != nil {
				return errBlocks
			}
		}
		if !wanted[i] {
			if i >= first && short.leaveOut(i) != nil {
				return errBlocks
			}
			continue
		}
		d.chunks = k.chunks[tb.blocks[i].chunk:tb.end(i)]
		d.win, d.at, d.off, d.end = nil, 0, 0, 0
		late, err := s.late(i, short)
		if err != nil {
			return errBlocks
		}
		if late {
			s.feedLate(d)
		} else if s.feed(d) {
			return nil
		}
		if d.err != nil {
			return d.err
		}
	}
	if n := len(wanted); !wanted[n-1] {
		return s.rest(fl, &bs, watch)
	}
	fl.finish()
	return nil
}

// leaveOut brings the follower to the start of block i, or behind the last one, without decoding the block before.
func (s *chosenSink) leaveOut(fl *follower, i int, bs *blockState, watch *stateWatch) error {
	s.fresh = freshFrames{}
	if s.sums != nil && !s.before {
		if err := s.sums.list(i - 1); err != nil {
			return err
		}
	}
	if err := s.tb.apply(fl, i, bs, watch); err != nil {
		return err
	}
	return s.putAside()
}

// feed takes the words of the decoder's chunks. It returns true if the window has ended.
func (s *chosenSink) feed(d *decoder) (over bool) {
	var w word
	for d.next(&w) {
		if s.before && w.t >= s.from {
			s.open(&w)
		}
		if w.t > s.to {
			s.end(&w)
			return true
		}
		s.fl.step(&w)
	}
	return false
}

// wanted says which of a task's blocks from first on, in which the window begins, are visited, and in which it ends.
func (s *chosenSink) wanted(k *Task, tb *taskBlocks, first int) (wanted []bool, last int, err error) {
	s.tb, wanted = tb, make([]bool, len(tb.blocks))
	last = sort.Search(len(tb.blocks), func(i int) bool { return tb.blocks[i].hi > s.to })
	c := &s.calls
	if c.Match == nil && c.Roots == nil && c.Threshold <= 0 {
		for i := first; i < len(wanted); i++ {
			wanted[i] = true
		}
		return wanted, last, nil
	}
	functions := make([][]FuncID, len(tb.blocks)) // of each block, if roots are asked for
	err = s.blocks.eachBounds(tb, func(i int, fn FuncID, ticks, inside uint64) {
		if s.sums.tells(i) {
			ticks = inside // the others are listed
		}
		if !wanted[i] && (c.Match == nil || s.match.ask(fn)) {
			wanted[i] = ticks == math.MaxUint64 || s.t.Clock.Span(ticks) >= c.Threshold
		}
		if c.Roots != nil {
			functions[i] = append(functions[i], fn)
		}
	})
	if err == nil && c.Roots != nil {
		err = s.insideRoots(k, tb, functions, wanted)
	}
	for i := first; s.sums != nil && i < len(wanted); i++ {
		wanted[i] = wanted[i] || tb.blocks[i].flags&format.BlockAlike != 0
	}
	clear(wanted[:first])
	wanted[first] = wanted[first] || s.from > 0 // the calls that are open when the window begins
	if last < len(wanted) {
		wanted[last] = true // and those open at its end
	}
	return wanted, last, err
}

// insideRoots takes back what lies in blocks without roots.
func (s *chosenSink) insideRoots(k *Task, tb *taskBlocks, functions [][]FuncID, wanted []bool) error {
	fl := newFollower(&orphans{}, tb.blocks[0].due, k.Stack)
	if k.ParentPID != 0 {
		fl.inherit(tb.inherited, k.begin)
	}
	open := map[uint64]bool{}  // stacks that are inside a root
	aside := map[FuncID]int{}  // calls aside that were inside a root, or may have been
	var fresh []suspendedFrame // of those
	changed := func(st *callStack, keep int) {
		for i := keep; i < len(st.frames); i++ {
			if s.roots.ask(st.frames[i].fn) || i > 0 && st.frames[i-1].flags&frameInside != 0 {
				st.frames[i].flags |= frameInside
			}
		}
		delete(open, st.num)
		if n := len(st.frames); n > 0 && st.frames[n-1].flags&frameInside != 0 {
			open[st.num] = true
		}
	}
	changed(fl.cur, 0)
	watch := &stateWatch{
		changed: changed,
		aside:   func(fs []suspendedFrame) { fresh = fs },
		lost: func(f *suspendedFrame) {
			if f.flags&frameInside == 0 {
				return
			}
			if aside[f.fn]--; aside[f.fn] == 0 {
				delete(aside, f.fn)
			}
		},
	}
	var bs blockState
	rooted := false
	for i := range tb.blocks {
		if i > 0 {
			fresh = nil
			if err := tb.apply(fl, i, &bs, watch); err != nil {
				return err
			}
			if rooted { // what was put aside in the block before can have been inside
				for j := range fresh {
					fresh[j].flags |= frameInside
					aside[fresh[j].fn]++
				}
			}
		}
		rooted = len(open) > 0
		for _, fn := range functions[i] {
			rooted = rooted || s.roots.ask(fn) || aside[fn] > 0
		}
		wanted[i] = wanted[i] && rooted
	}
	return nil
}

// A freshFrames has frames that were put aside in a block that is left out.
type freshFrames struct {
	list []suspendedFrame
	at   map[openCall][]int // where each call is, once one is looked for
}

// take returns the frame of a call that was on a stack; nil: it was not put aside.
func (fr *freshFrames) take(f *frame) *suspendedFrame {
	if len(fr.list) == 0 {
		return nil
	}
	if fr.at == nil {
		fr.at = map[openCall][]int{}
		for i := range fr.list {
			c := openCall{fr.list[i].fn, fr.list[i].start}
			fr.at[c] = append(fr.at[c], i)
		}
	}
	c := openCall{f.fn, f.start}
	at := fr.at[c]
	if len(at) == 0 {
		return nil
	}
	fr.at[c] = at[1:]
	return &fr.list[at[0]]
}

// aside takes frames that were put aside meanwhile. They are hidden if they were not on a stack before: then they
// have begun meanwhile, too.
func (s *chosenSink) aside(fs []suspendedFrame) {
	if s.before {
		return
	}
	s.fresh = freshFrames{list: fs}
	for i := range fs {
		fs[i].flags |= frameHidden
	}
}

// cut takes calls that have ended meanwhile, or were put aside.
func (s *chosenSink) cut(st *callStack, keep int) {
	for i := len(st.frames) - 1; i >= keep && !s.before; i-- {
		f := &st.frames[i]
		if f.flags&frameHidden != 0 {
			continue
		}
		if g := s.fresh.take(f); g != nil {
			g.ref, g.flags = f.ref, f.flags|frameSuspended|frameTaken
			s.since(&g.frame, stackPlace{st.num, i})
			s.suspend(&g.frame)
			continue
		}
		if s.sums != nil {
			s.ended(f, stackPlace{st.num, i})
			continue
		}
		s.as(f, countingSink.drop)
	}
}

// changed takes calls that have begun meanwhile, and those that are open still.
func (s *chosenSink) changed(st *callStack, keep int) {
	if s.before {
		return
	}
	fs, cur := st.frames, s.fl.cur
	if keep > 0 {
		s.since(&fs[keep-1], stackPlace{st.num, keep - 1})
	}
	s.fl.cur = st
	for i := keep; i < len(fs); i++ {
		st.frames = fs[:i+1]
		s.enter(&fs[i])
		s.stated(&fs[i])
	}
	st.frames, s.fl.cur = fs, cur
}

// lost takes a call that was aside and is no longer.
func (s *chosenSink) lost(f *suspendedFrame) {
	switch {
	case s.before:
	case s.sums != nil && f.flags&frameHidden == 0:
		s.ended(&f.frame, stackPlace{noStack, 0})
	default:
		s.leave(&f.frame, f.end, endUnwound)
	}
}

// rest takes what is open before the last block, which is left out.
func (s *chosenSink) rest(fl *follower, bs *blockState, watch *stateWatch) error {
	if s.before {
		return nil
	}
	if len(s.tb.next) > 0 { // there is a state behind it
		if err := s.leaveOut(fl, len(s.tb.blocks), bs, watch); err != nil {
			return errBlocks
		}
		fl.finish()
		return nil
	}
	s.fresh = freshFrames{}
	if s.sums != nil {
		if err := s.sums.list(len(s.tb.blocks) - 1); err != nil {
			return errBlocks
		}
	}
	s.cut(s.fl.cur, 0)
	for _, num := range slices.Sorted(maps.Keys(s.fl.stacks)) {
		s.cut(s.fl.stacks[num], 0)
	}
	for i := range s.fl.aside {
		s.lost(&s.fl.aside[i])
	}
	if s.sums != nil {
		return s.sums.err
	}
	return nil
}
