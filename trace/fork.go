package trace

import "slices"

// A forked task begins inside the calls its parent was in. The trace has the
// parent's calls, but not the moment of the fork: the child's first event comes
// some time after it, and the parent may have gone on meanwhile. What the child
// had open is found so:
//
//   - The exits of calls that the child did not enter name the calls it was in,
//     innermost first. The newest state of the parent before the child's first
//     event that ends in those calls is the one.
//   - A child that never returns so far (it execs, or ends in _exit) names none.
//     A fork takes a while, in which the parent records nothing. If the parent
//     has recorded something just before the child's first event, its last pause
//     before that was the fork. Else the fork can be the pause that it is in, or
//     it is the one before and the parent waits for something else by now: the
//     calls are taken that are open in both. That can be a call too few, but not
//     a wrong one. A thread that has ended by then forked before that: it counts
//     as one that is still in the calls in which it has ended.
//   - Where a threshold holds entries back, the child writes those of calls that
//     were not written before the fork, with their own times, which are older than
//     the child. These are the innermost ones it is in, for certain.
const (
	// forkScan is how many of the child's words are looked at for exits.
	forkScan = 16 << 10
	// forkNeed is how many of those exits are compared.
	forkNeed = 64
	// maxWatches is how many children a parent is followed for at once.
	maxWatches = 8
	// maxInherited bounds the calls a child inherits; the innermost are left out.
	// With many children it is less: children of a deep parent that have a few
	// words each must not take more memory than all the trace. minInherited is
	// had by each of them, however many there are.
	maxInherited = 1 << 16
	minInherited = 1 << 8
	allInherited = 1 << 22
	// Seconds before the child's first event that are looked at, with and
	// without exits, and what is a pause.
	forkWindow      = 1.0
	forkQuietWindow = 0.003
	forkPause       = 20e-6
)

// inheritLimit is how many calls a child inherits at most.
func (t *Trace) inheritLimit() int {
	return min(max(allInherited/max(t.forked, 1), minInherited), maxInherited)
}

// A forker follows a task that forks and says what its children inherit.
type forker struct {
	t       *Trace
	limit   int     // of calls that a child inherits
	pending []*Task // children to come, by begin
	watches []*forkWatch
	start   uint64 // when the next child must be watched for

	ended bool       // the newest word is the end of the thread
	last  []openCall // in which it has ended
}

func newForker(t *Trace, k *Task) *forker {
	f := &forker{t: t, limit: t.inheritLimit(), pending: k.children}
	f.arm()
	return f
}

func (f *forker) ticks(seconds float64) uint64 { return uint64(seconds * f.t.Clock.Hz) }

// arm sets when the next watch begins.
func (f *forker) arm() {
	f.start = ^uint64(0)
	if n := len(f.watches); n < len(f.pending) && n < maxWatches {
		f.start = f.pending[n].begin - min(f.pending[n].begin, f.ticks(forkWindow))
	}
}

// step is fl.step for a task that may fork.
func (f *forker) step(fl *follower, w *word) {
	f.before(fl, w)
	fl.take(w)
	f.after()
}

// before looks at the state that the word ends, and after at what the word has left of those that are kept.
func (f *forker) before(fl *follower, w *word) {
	if f == nil {
		return
	}
	if end := w.code == wThreadEnd; end != f.ended { // a walk looks at the end twice
		if f.ended = end; end {
			f.last = fl.path(f.limit)
		}
	}
	for w.t >= f.start {
		f.watches = append(f.watches, newForkWatch(f, f.pending[len(f.watches)]))
		f.arm()
	}
	for _, fw := range f.watches {
		fw.before(fl, w)
	}
}

func (f *forker) after() {
	if f == nil {
		return
	}
	for _, fw := range f.watches {
		fw.after()
	}
}

// next returns the next child when its first event is due at counter t; nil: not yet.
func (f *forker) next(t uint64) *Task {
	if len(f.pending) == 0 || f.pending[0].begin > t {
		return nil
	}
	return f.pending[0]
}

// give tells the children that begin until counter t what they inherit.
func (f *forker) give(fl *follower, t uint64, to *forks) {
	if f == nil {
		return
	}
	for c := f.next(t); c != nil; c = f.next(t) {
		to.give(c, f.take(fl))
	}
}

// abandon tells all other children that they inherit nothing: nobody wants to know.
func (f *forker) abandon(to *forks) {
	if f == nil {
		return
	}
	for _, c := range f.pending {
		to.give(c, nil)
	}
	f.pending = nil
}

// take returns what the next child inherits from a parent in the state fl.
func (f *forker) take(fl *follower) []openCall {
	f.pending = f.pending[1:]
	now := f.last
	if !f.ended {
		now = fl.path(f.limit)
	}
	if len(f.watches) == 0 {
		f.arm()
		return now
	}
	fw := f.watches[0]
	f.watches = slices.Delete(f.watches, 0, 1)
	f.arm()
	switch {
	case fw.stack == nil:
		return now
	case len(fw.need) > 0:
		return fw.path(fl, f.limit)
	}
	then := fw.path(fl, f.limit)
	if fl.now+fw.pause > fw.until {
		return then
	}
	n := 0
	for n < len(now) && n < len(then) && now[n] == then[n] {
		n++
	}
	return now[:n]
}

// An openCall is a call that a forked task inherits. start is the counter at its
// entry, which tells it from other calls of the function.
type openCall struct {
	fn    FuncID
	start uint64
}

// path returns the calls that are open on the current stack, outermost first, at
// most limit.
func (fl *follower) path(limit int) []openCall {
	return appendPath(nil, fl.cur.frames, fl.inherited, limit)
}

// appendPath appends the calls of frames. The first ones may be inherited
// themselves; their entries are an ancestor's.
func appendPath(calls []openCall, frames []frame, inherited []openCall, limit int) []openCall {
	frames = frames[:min(len(frames), limit)]
	calls = slices.Grow(calls, len(frames))
	for i := range frames {
		c := openCall{frames[i].fn, frames[i].start}
		if frames[i].flags&frameInherited != 0 && i < len(inherited) {
			c = inherited[i]
		}
		calls = append(calls, c)
	}
	return calls
}

// A forkWatch remembers the newest state of a parent that a child can have begun in.
type forkWatch struct {
	need  []FuncID // exits of the child that have no entry, innermost first
	from  uint64   // counter at which a pause counts
	until uint64   // the child's first event
	pause uint64   // ticks

	// The state: the base outermost frames of stack, and those that have ended
	// since, innermost first.
	stack *callStack
	base  int
	ended []openCall
}

func newForkWatch(f *forker, child *Task) *forkWatch {
	fw := &forkWatch{
		until: child.begin,
		from:  child.begin - min(child.begin, f.ticks(forkQuietWindow)),
		pause: f.ticks(forkPause),
	}
	var s orphans
	d := f.t.newDecoder(child.chunks, make([]byte, 4<<10))
	fl := newFollower(&s, fw.until, child.Stack)
	var w word
	for n := 0; n < forkScan && len(s.fns) < forkNeed && d.next(&w); n++ {
		if w.code == wGap || w.code == wLost {
			break // what comes now may be anything
		}
		fl.step(&w)
	}
	fw.need = s.fns
	return fw
}

// before looks at the state that the word ends.
func (fw *forkWatch) before(fl *follower, w *word) {
	if len(fw.need) == 0 {
		// Outside all calls nothing forks that is traced. When a thread has ended was noticed later.
		if w.code != wThreadEnd && w.t >= fw.from && w.t <= fw.until && w.t > fl.now && w.t-fl.now >= fw.pause && len(fl.cur.frames) > 0 {
			fw.keep(fl)
		}
		return
	}
	fs := fl.cur.frames
	if len(fs) < len(fw.need) {
		return
	}
	for i, fn := range fw.need {
		if fs[len(fs)-1-i].fn != fn {
			return
		}
	}
	fw.keep(fl)
}

func (fw *forkWatch) keep(fl *follower) {
	fw.stack, fw.base, fw.ended = fl.cur, len(fl.cur.frames), fw.ended[:0]
}

// after notes which calls of the state have ended. Frames behind the end of the
// slice are as they were: a word takes frames off or puts one on, not both.
func (fw *forkWatch) after() {
	if fw.stack == nil || len(fw.stack.frames) >= fw.base {
		return
	}
	n := len(fw.stack.frames)
	for i := fw.base - 1; i >= n; i-- {
		f := &fw.stack.frames[:fw.base][i]
		fw.ended = append(fw.ended, openCall{f.fn, f.start})
	}
	fw.base = n
}

func (fw *forkWatch) path(fl *follower, limit int) []openCall {
	calls := appendPath(nil, fw.stack.frames[:fw.base], fl.inherited, limit)
	for i := len(fw.ended) - 1; i >= 0 && len(calls) < limit; i-- {
		calls = append(calls, fw.ended[i])
	}
	return calls
}

// inherit opens the calls a forked task was in. begin is its first event.
func (fl *follower) inherit(calls []openCall, begin uint64) {
	fl.forked = begin
	fl.inherited = calls
	for _, c := range calls {
		fl.push(c.fn, frameInherited)
	}
}

// held takes the entry of a call that was made before the task was forked, and
// held back then.
func (fl *follower) held(fn FuncID) {
	c := openCall{fn, fl.t}
	n := len(fl.cur.frames)
	if fl.cur.num != 0 || n > len(fl.inherited) || n > 0 && fl.cur.frames[n-1].flags&frameInherited == 0 {
		// Not the first thing the child does: nothing is known of this.
		fl.push(fn, 0)
		return
	}
	// What is inherited and younger was not open at the fork.
	i := n
	for i > 0 && fl.inherited[i-1].start > c.start {
		i--
	}
	if i > 0 && fl.inherited[i-1] == c {
		i-- // the parent has written it, too
	}
	// Frames that are taken back were never entered: they end without a trace.
	for ; n > i; n-- {
		f := &fl.cur.frames[n-1]
		fl.cur.frames = fl.cur.frames[:n-1]
		fl.sink.forget(f)
	}
	fl.inherited = append(fl.inherited[:i:i], c)
	t := fl.t
	fl.t = fl.forked
	fl.push(fn, frameInherited)
	fl.t = t
}

// orphans is a sink that keeps the exits that have no entry.
type orphans struct{ fns []FuncID }

func (*orphans) enter(*frame)                 {}
func (*orphans) suspend(*frame)               {}
func (*orphans) forget(*frame)                {}
func (*orphans) call(FuncID)                  {}
func (*orphans) leave(*frame, uint64, ending) {}
func (o *orphans) orphan(fn FuncID)           { o.fns = append(o.fns, fn) }
