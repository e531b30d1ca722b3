package trace

import (
	"maps"
	"slices"
)

// A frame is an open call.
type frame struct {
	start uint64 // counter at entry
	self  uint64 // ticks in the function itself so far
	fn    FuncID
	ref   int32 // the sink's own: an index into its table
	flags frameFlags
}

type frameFlags uint8

const (
	frameInherited frameFlags = 1 << iota // open in the parent when this task was forked
	frameOutermost                        // no other activation of the function was open
	frameSuspended                        // closed by a resync; was or is kept aside
)

// An ending says how a call ended.
type ending uint8

const (
	endExit       ending = iota
	endUnwound           // skipped by longjmp, an exception, or an exit further out
	endUnfinished        // still open when the trace or the thread ended
)

// A sink gets what happens to frames. Pointers to frames are only good during
// the call. All times are counters; m.t is the event's.
type sink interface {
	// enter is called with the frame just pushed on m.cur.
	enter(f *frame)
	// suspend is called when a resync has taken f off m.cur; leave follows when
	// it is known how the call ended.
	suspend(f *frame)
	// leave is called when f is off its stack for good. end is the call's end,
	// which lies before m.t for a suspended frame that never came back.
	leave(f *frame, end uint64, how ending)
	// forget is called for an inherited frame that turns out not to be one.
	forget(f *frame)
	// call is called for the entry of a call of which nothing else is recorded.
	call(fn FuncID)
	// orphan is called for the exit of a call whose entry is not in the trace.
	orphan(fn FuncID)
}

// A callStack is one of the stacks a task runs on.
type callStack struct {
	num    uint64
	frames []frame
}

// A suspended frame waits for an exit that may still come.
type suspendedFrame struct {
	frame
	end uint64 // when the resync closed it
}

const (
	// maxSuspended frames are kept aside. A program that longjmps leaves one for
	// each frame skipped, which never come back; coroutines whose stacks lie close
	// together leave all they have open at every switch.
	maxSuspended = 1 << 16
	// maxStacks and maxOpen bound what damaged events can make a reader hold.
	maxStacks = 1 << 16
	maxOpen   = 1 << 24
	// A search for a call further out looks at searchFree frames, or as many
	// as the task's events so far have earned.
	searchFree   = 4096
	searchEarned = 16
)

// A machine follows the calls of one task.
type machine struct {
	sink   sink
	cur    *callStack
	t      uint64                // of the word
	now    uint64                // the latest time so far
	stacks map[uint64]*callStack // those that are not current
	open   int                   // frames on the stacks that are not current
	over   int                   // entries beyond maxOpen
	lossy  bool                  // events were lost since the stack was last empty
	aside  []suspendedFrame      // oldest first
	credit int                   // frames a search may look at

	// Of a forked task:
	forked    uint64     // its first event, 0: not forked
	inherited []openCall // what the frames with frameInherited are
}

func newMachine(s sink, start uint64) *machine {
	return &machine{sink: s, cur: new(callStack), t: start, now: start, stacks: map[uint64]*callStack{}}
}

// step takes the next word of the task.
//
// The words are in the order of their times, with two exceptions: an entry that
// a threshold has held back, on a stack that was not the current one meanwhile,
// and a word whose writer was interrupted by a signal handler that wrote some.
// Their times are taken as they are; time that has been given to a call stays
// that call's.
func (m *machine) step(w *word) {
	m.t = w.t
	if w.t > m.now {
		if n := len(m.cur.frames); n > 0 {
			m.cur.frames[n-1].self += w.t - m.now
		}
		m.now = w.t
	}
	switch w.code {
	case wEntry:
		if w.t < m.forked {
			m.held(w.fn)
			return
		}
		m.push(w.fn, 0)
	case wExit:
		if n := len(m.cur.frames); n > 0 && m.cur.frames[n-1].fn == w.fn && m.over == 0 {
			f := &m.cur.frames[n-1]
			m.cur.frames = m.cur.frames[:n-1]
			m.sink.leave(f, m.t, endExit)
			return
		}
		m.exit(w.fn)
	default:
		m.other(w)
	}
}

func (m *machine) push(fn FuncID, flags frameFlags) {
	if m.open+len(m.cur.frames) >= maxOpen {
		m.over++
		return
	}
	m.credit += searchEarned
	m.cur.frames = append(m.cur.frames, frame{start: m.t, fn: fn, flags: flags})
	m.sink.enter(&m.cur.frames[len(m.cur.frames)-1])
}

// exit handles an exit that is not the innermost open call's.
func (m *machine) exit(fn FuncID) {
	if m.over > 0 {
		m.over--
		return
	}
	// The runtime says what it skipped before it writes an exit, so a call that
	// is not the innermost was put aside; but where events are missing, the
	// resync may be among them.
	if m.lossy {
		if m.exitOuter(fn) || m.exitAside(fn) {
			return
		}
	} else if m.exitAside(fn) || m.exitOuter(fn) {
		return
	}
	m.sink.orphan(fn)
}

// exitOuter ends an open call further out and closes those inside it.
func (m *machine) exitOuter(fn FuncID) bool {
	fs := m.cur.frames
	reach := max(searchFree, m.credit)
	stop := max(0, len(fs)-reach)
	i := len(fs) - 1
	for i >= stop && fs[i].fn != fn {
		i--
	}
	m.credit = max(0, m.credit-(len(fs)-i))
	if i < stop {
		return false
	}
	m.drop(i+1, endUnwound)
	f := &fs[i]
	m.cur.frames = fs[:i]
	m.sink.leave(f, m.t, endExit)
	return true
}

// exitAside ends a call that a resync had closed.
func (m *machine) exitAside(fn FuncID) bool {
	for i := len(m.aside) - 1; i >= 0; i-- {
		if m.aside[i].fn == fn {
			f := m.aside[i].frame
			m.aside = slices.Delete(m.aside, i, i+1)
			m.sink.leave(&f, m.t, endExit)
			return true
		}
	}
	return false
}

// drop takes frames off the current stack until depth are left.
func (m *machine) drop(depth int, how ending) {
	for n := len(m.cur.frames); n > depth; n-- {
		f := &m.cur.frames[n-1]
		m.cur.frames = m.cur.frames[:n-1]
		m.sink.leave(f, m.t, how)
	}
}

func (m *machine) other(w *word) {
	switch w.code {
	case wCall:
		m.sink.call(w.fn)
	case wGap, wLost, wCut:
		m.lossy = true
	case wResync:
		m.resync(w.arg)
	case wStack:
		m.change(w.arg)
	case wThreadEnd:
		m.finish()
	}
}

// resync puts the n innermost frames aside.
func (m *machine) resync(n uint64) {
	if m.over > 0 {
		skip := min(uint64(m.over), n)
		m.over -= int(skip)
		n -= skip
	}
	for ; n > 0 && len(m.cur.frames) > 0; n-- {
		if len(m.aside) == maxSuspended {
			// Half at once, so that the copying does not show.
			old := m.aside[:maxSuspended/2]
			for i := range old {
				m.sink.leave(&old[i].frame, old[i].end, endUnwound)
			}
			m.aside = append(m.aside[:0], m.aside[maxSuspended/2:]...)
		}
		top := len(m.cur.frames) - 1
		f := m.cur.frames[top]
		f.flags |= frameSuspended
		m.cur.frames = m.cur.frames[:top]
		m.sink.suspend(&f)
		m.aside = append(m.aside, suspendedFrame{f, m.t})
	}
}

// change makes another stack the current one.
func (m *machine) change(num uint64) {
	old := m.cur
	if num == old.num {
		return
	}
	next := m.stacks[num]
	if next == nil && len(m.stacks) >= maxStacks {
		m.drop(0, endUnfinished) // no room to remember them
	}
	if next == nil {
		next = &callStack{num: num}
	} else {
		delete(m.stacks, num)
		m.open -= len(next.frames)
	}
	m.cur = next
	if len(old.frames) == 0 {
		return // an empty stack needs no memory
	}
	m.stacks[old.num] = old
	m.open += len(old.frames)
}

// finish closes everything that is open.
func (m *machine) finish() {
	m.t = m.now
	m.drop(0, endUnfinished)
	for _, num := range slices.Sorted(maps.Keys(m.stacks)) {
		m.cur = m.stacks[num]
		m.drop(0, endUnfinished)
	}
	clear(m.stacks)
	m.open, m.over, m.lossy = 0, 0, false
	for i := range m.aside {
		m.sink.leave(&m.aside[i].frame, m.aside[i].end, endUnwound)
	}
	m.aside = m.aside[:0]
	m.cur = new(callStack)
}
