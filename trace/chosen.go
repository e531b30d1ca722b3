package trace

import (
	"maps"
	"math"
	"slices"
)

// Reports and graphs count calls as a follower tells of them. A chosenSink between the
// two leaves out what is not asked for: what lies outside of a window of time, calls of
// other functions, calls outside of certain functions, short calls. The sink behind it
// knows nothing of that. A call that is left out is still on the follower's stack, so
// nothing is decided twice or guessed: whether a call is inside of another, and how long
// it took, is what it would be in the whole trace.
//
// Of calls that reach out of the window only the time inside counts. Those that were
// open at its start count as no calls, as those that a forked task inherits; those open
// at its end are unfinished.

// Calls say which calls count. The zero value says all. Its functions are called from several goroutines at once, but not
// for every call.
type Calls struct {
	// Match says whether calls of a function count; nil: all. The time in those left out is not their callers' own.
	Match func(FuncID) bool
	// Roots says in which functions calls must be made; those functions themselves count, too. nil: anywhere.
	Roots func(FuncID) bool
	// Without says which functions do not count, nor anything inside them; nil: none. Their time is not their
	// callers' own.
	Without func(FuncID) bool
	// Nest counts a call that was reached by a tail call as inside the one that ended by jumping there, which then
	// ends with it. Otherwise it is another call of the same caller.
	Nest bool
	// Threshold is the duration from which on a call counts, in ns.
	Threshold int64
}

func (c *Calls) all() bool {
	return c.Match == nil && c.Roots == nil && c.Without == nil && !c.Nest && c.Threshold <= 0
}

// A choice is a window and calls. Counters are those of the first and the last event.
type choice struct {
	from, to uint64
	calls    Calls
	whole    bool // everything is chosen
}

// alone says that whether a call counts is not a question of the calls around it.
func (c *choice) alone() bool {
	return c == nil || c.calls.Roots == nil && c.calls.Without == nil && !c.calls.Nest
}

// nests says that calls are inside of those that the events have around them.
func (c *choice) nests() bool { return c == nil || !c.calls.Nest }

// choose returns what options choose; nil: everything.
func (t *Trace) choose(from, to int64, calls Calls) *choice {
	if from <= 0 && to <= 0 && calls.all() {
		return nil
	}
	c := &choice{to: math.MaxUint64, calls: calls}
	if from > 0 {
		c.from = t.Clock.Counter(from)
		c.from -= min(c.from, 4) // the inverse of Time to within two ticks
		for t.Clock.Time(c.from) < from && c.from < math.MaxUint64 {
			c.from++
		}
	}
	if to > 0 {
		c.to = t.Clock.Counter(to)
		c.to += min(math.MaxUint64-c.to, 4)
		for t.Clock.Time(c.to) > to && c.to > 0 {
			c.to--
		}
	}
	return c
}

// least returns how many ticks a call has to take to count.
func (t *Trace) least(c *choice) uint64 {
	if c == nil || c.calls.Threshold <= 0 {
		return 0
	}
	return t.Clock.atLeast(c.calls.Threshold)
}

// indexFor returns the index if it helps to count what the choice, or else the tasks alone, leave: nil if they leave
// everything, or calls that jumped away, which states do not have.
func (t *Trace) indexFor(c *choice, tasks []*Task) *blockIndex {
	if c == nil && tasks == nil || c != nil && c.calls.Nest {
		return nil
	}
	return t.blocks
}

// tasks returns those of the tasks that can have something of the choice.
func (c *choice) tasks(ks []*Task, blocks *blockIndex) []*Task {
	if c == nil || c.whole {
		return ks
	}
	out := []*Task{}
	for _, k := range ks {
		if len(k.chunks) == 0 {
			continue // a profile has no single calls
		}
		first, last := k.begin, uint64(math.MaxUint64)
		if blocks != nil {
			first, last = blocks.span(k)
		}
		if first <= c.to && last >= c.from {
			out = append(out, k)
		}
	}
	return out
}

// A countingSink is a sink behind a chosenSink.
type countingSink interface {
	taskSink
	// drop takes back a call that was entered: it was too short.
	drop(f *frame)
}

type chosenSink struct {
	countingSink
	*choice
	t      *Trace
	fl     *follower
	before bool // the window has not begun
	match  memory
	roots  memory

	without memory

	least uint64 // ticks of calls that count
	part  frame  // of the call that ends, what is in the window

	// With an index, see chosenblocks.go:
	blocks  *blockIndex
	earlier map[stackPlace]uint64 // own times at the window's start of calls that are open then
	fresh   freshFrames
	tb      *taskBlocks
	sums    *blockSums // what is counted without decoding, see chosensums.go; nil: nothing
	entered int        // how many calls of the current stack the sink knows of, see chosenshort.go
}

// A memory remembers what a function says of functions.
type memory struct {
	fn  func(FuncID) bool
	tab funcTable
}

func (m *memory) ask(fn FuncID) bool {
	const yes, no = 1, 2
	p := m.tab.slot(fn)
	if *p == 0 {
		*p = no
		if m.fn(fn) {
			*p = yes
		}
	}
	return *p == yes
}

// chosen returns s, behind a chosenSink if there is a choice.
func (c *choice) chosen(t *Trace, blocks *blockIndex, s countingSink) taskSink {
	if c == nil {
		return s
	}
	return &chosenSink{
		countingSink: s, choice: c, t: t, match: memory{fn: c.calls.Match}, roots: memory{fn: c.calls.Roots},
		without: memory{fn: c.calls.Without}, least: t.least(c), blocks: blocks,
	}
}

// counting returns the sink that counts.
func counting(s taskSink) taskSink {
	if c, ok := s.(*chosenSink); ok {
		return c.countingSink
	}
	return s
}

func (s *chosenSink) begin(fl *follower) {
	s.fl, s.before, s.earlier = fl, s.from > 0, nil
	fl.nest, fl.begin = s.calls.Nest, s.from
	s.countingSink.begin(fl)
}

func (s *chosenSink) enter(f *frame) {
	if s.before {
		return
	}
	var outside frameFlags
	f.ref = 0
	if fs := s.fl.cur.frames; len(fs) > 1 {
		around := &fs[len(fs)-2]
		outside = around.flags
		f.ref = around.ref // if f is hidden; so that its calls are those of around
	}
	f.flags |= s.hidden(f.fn, outside)
	if f.flags&frameHidden == 0 {
		s.as(f, countingSink.enter)
	}
}

// hidden says whether a call of a function is hidden, and what it hides, by the flags of the call around it.
func (s *chosenSink) hidden(fn FuncID, around frameFlags) (flags frameFlags) {
	flags = around & (frameInside | frameOut)
	if s.calls.Without != nil && s.without.ask(fn) {
		flags |= frameOut
	}
	if s.calls.Roots == nil || flags&frameInside == 0 && s.roots.ask(fn) {
		flags |= frameInside
	}
	if flags&frameInside == 0 || flags&frameOut != 0 || s.calls.Match != nil && !s.match.ask(fn) {
		flags |= frameHidden
	}
	return flags
}

// as tells the sink of a call; of one that began before the window, as one that is inherited.
func (s *chosenSink) as(f *frame, tell func(countingSink, *frame)) {
	if f.flags&(frameEarlier|frameInherited) != frameEarlier {
		tell(s.countingSink, f)
		return
	}
	f.flags |= frameInherited
	tell(s.countingSink, f)
	f.flags &^= frameInherited
}

func (s *chosenSink) hides(f *frame) bool { return s.before || f.flags&frameHidden != 0 }

func (s *chosenSink) suspend(f *frame) {
	if !s.hides(f) {
		s.countingSink.suspend(f)
	}
}

func (s *chosenSink) forget(f *frame) {
	if !s.hides(f) {
		s.countingSink.forget(f)
	}
}

func (s *chosenSink) leave(f *frame, end uint64, how ending) {
	if s.hides(f) {
		return
	}
	if end-min(end, f.start) < s.least {
		s.as(f, countingSink.drop)
		return
	}
	if f.flags&frameEarlier == 0 && f.start >= s.from { // nearly all
		s.countingSink.leave(f, end, how)
		return
	}
	s.part = *f
	s.part.start = max(f.start, s.from)
	if f.flags&frameEarlier != 0 {
		s.part.flags |= frameInherited
	}
	s.countingSink.leave(&s.part, end, how)
}

func (s *chosenSink) call(fn FuncID) {
	if s.calls.Without != nil && s.without.ask(fn) {
		return
	}
	if !s.before && (s.calls.Roots == nil || s.roots.ask(fn)) && (s.calls.Match == nil || s.match.ask(fn)) {
		s.countingSink.call(fn)
	}
}

func (s *chosenSink) orphan(fn FuncID) {
	if s.before || s.calls.Without != nil && s.without.ask(fn) {
		return
	}
	inside := s.calls.Roots == nil || s.roots.ask(fn)
	if fs := s.fl.cur.frames; len(fs) > 0 {
		if fs[len(fs)-1].flags&frameOut != 0 {
			return
		}
		inside = inside || fs[len(fs)-1].flags&frameInside != 0
	}
	if inside && (s.calls.Match == nil || s.match.ask(fn)) {
		s.countingSink.orphan(fn)
	}
}

// open enters the calls that are open when the window begins, before the word w.
func (s *chosenSink) open(w *word) {
	s.before = false
	fl := s.fl
	cur := fl.cur
	goesOn := w.code != wThreadEnd // else they have ended by the word before
	enter := func(st *callStack) {
		fs := st.frames
		fl.cur = st
		for i := range fs {
			st.frames = fs[:i+1]
			s.setEarlier(st, &fs[i], goesOn && st == cur && i == len(fs)-1)
			fs[i].self = 0
			fs[i].flags |= frameEarlier
			s.enter(&fs[i])
		}
	}
	enter(cur)
	for _, num := range slices.Sorted(maps.Keys(fl.stacks)) {
		enter(fl.stacks[num])
	}
	for i := range fl.aside {
		f := &fl.aside[i].frame
		st := callStack{num: noStack, frames: []frame{*f}}
		enter(&st)
		*f = st.frames[0]
		s.suspend(f)
	}
	fl.cur = cur
	if goesOn {
		fl.now = max(fl.now, s.from)
	}
}

// end ends the window, before the word w.
func (s *chosenSink) end(w *word) {
	if s.before {
		s.open(w)
	}
	fl := s.fl
	if n := len(fl.cur.frames); n > 0 && s.to > fl.now && w.code != wThreadEnd {
		fl.cur.frames[n-1].self += s.to - fl.now
		fl.now = s.to
	}
	fl.finish()
}

// run feeds the words of the window to the sink. The follower is at the word w. Who looks for the moment of a fork sees
// the parent's pauses as they are: also one in which the window begins.
func (s *chosenSink) run(d *decoder, w *word, more bool, fk *forker, f *forks) {
	for latest := uint64(0); more; more = d.next(w) {
		latest = max(latest, w.t)
		fk.give(s.fl, min(latest, s.to), f)
		fk.before(s.fl, w)
		if s.before && w.t >= s.from {
			s.open(w)
		}
		if w.t > s.to {
			s.fl.settle()
			s.end(w)
			fk.abandon(f)
			return
		}
		s.fl.take(w)
		fk.after()
	}
	fk.give(s.fl, math.MaxUint64, f)
	s.fl.settle()
	s.fl.finish()
}
