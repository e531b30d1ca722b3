package trace

import (
	"maps"
	"slices"

	"github.com/fentry-dev/fentry/internal/format"
)

// A frame is an open call.
type frame struct {
	start uint64 // counter at entry
	self  uint64 // ticks in the function itself so far
	fn    FuncID
	ref   int32 // the sink's own: an index into its table
	flags frameFlags
	depth uint32 // in its stack, in words from the base; 0: not known
}

type frameFlags uint16

const (
	frameInherited frameFlags = 1 << iota // open in the parent when this task was forked
	frameOutermost                        // no other activation of the function was open; the sink's own
	frameSuspended                        // closed by a resync; was or is kept aside
	frameSaved                            // was there when the state was saved, see stateSaver
	frameOuter                            // no other activation of the function was open in all of the task, see blockBuilder
	frameInside                           // of a call that was asked for, see chosenSink
	frameHidden                           // not asked for
	frameEarlier                          // began before the window that is asked for
	frameOut                              // of or in a call that is left out with everything inside it
	frameTaken                            // was on a stack before it was put aside, see chosenSink.putAside
	frameJumped                           // ended by a tail call, and is kept open until that call ends
	frameTail                             // was entered by a tail call, see gistMaker
)

// An ending says how a call ended.
type ending uint8

const (
	endExit       ending = iota
	endUnwound           // skipped by longjmp, an exception, or an exit further out
	endUnfinished        // still open when the trace or the thread ended
)

// A sink gets what happens to frames. Pointers to frames are only good during
// the call. All times are counters; fl.t is the event's.
type sink interface {
	// enter is called with the frame just pushed on fl.cur.
	enter(f *frame)
	// suspend is called when a resync has taken f off fl.cur; leave follows when
	// it is known how the call ended.
	suspend(f *frame)
	// leave is called when f is off its stack for good. end is the call's end,
	// which lies before fl.t for a suspended frame that never came back.
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
	end   uint64 // when the resync closed it
	saved int32  // position, from 1 on, when the state was saved; 0: it was not there
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

// A follower follows the calls of one task.
type follower struct {
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

	waits *waits // nil: nobody asks for how long the task was off a processor
	begin uint64 // where what is counted begins

	nest bool // calls that end by tail calls are kept open, see take
	left bool // the newest word was the exit due: the next one tells whether it is a tail call's
	due  word

	// Of a forked task:
	forked    uint64     // its first event, 0: not forked
	inherited []openCall // what the frames with frameInherited are
}

// newFollower returns a follower for a task that begins on the given stack.
func newFollower(s sink, start, stack uint64) *follower {
	return &follower{sink: s, cur: &callStack{num: stack}, t: start, now: start}
}

// step takes the next word of the task.
//
// The words are in the order of their times, with two exceptions: an entry that
// a threshold has held back, on a stack that was not the current one meanwhile,
// and a word whose writer was interrupted by a signal handler that wrote some.
// Their times are taken as they are; time that has been given to a call stays
// that call's.
func (fl *follower) step(w *word) {
	fl.t = w.t
	if w.t > fl.now && w.code != wThreadEnd { // the end is noticed later
		if n := len(fl.cur.frames); n > 0 {
			fl.cur.frames[n-1].self += w.t - fl.now
		}
		fl.now = w.t
	}
	switch w.code {
	case wEntry:
		if w.t < fl.forked {
			fl.held(w.fn)
			return
		}
		fl.push(w.fn, 0)
	case wExit:
		if n := len(fl.cur.frames); n > 0 && fl.cur.frames[n-1].fn == w.fn && fl.over == 0 {
			f := &fl.cur.frames[n-1]
			fl.cur.frames = fl.cur.frames[:n-1]
			fl.sink.leave(f, fl.t, endExit)
			return
		}
		fl.exit(w.fn)
	default:
		fl.other(w)
	}
}

func (fl *follower) push(fn FuncID, flags frameFlags) {
	if fl.open+len(fl.cur.frames) >= maxOpen {
		fl.over++
		return
	}
	fl.credit += searchEarned
	fs := append(fl.cur.frames, frame{})
	fl.cur.frames = fs
	// Field by field: made elsewhere and copied, it would be read in larger pieces than it was just written in, for which
	// a processor waits.
	f := &fs[len(fs)-1]
	f.start, f.flags = fl.t, flags
	f.fn.Image, f.fn.ID = fn.Image, fn.ID
	fl.sink.enter(f)
}

// exit handles an exit that is not the innermost open call's.
func (fl *follower) exit(fn FuncID) {
	if fl.over > 0 {
		fl.over--
		return
	}
	// The runtime says what it skipped before it writes an exit, so a call that
	// is not the innermost was put aside; but where events are missing, the
	// resync may be among them.
	if fl.lossy {
		if fl.exitOuter(fn) || fl.exitAside(fn) {
			return
		}
	} else if fl.exitAside(fn) || fl.exitOuter(fn) {
		return
	}
	fl.sink.orphan(fn)
}

// exitOuter ends an open call further out and closes those inside it.
func (fl *follower) exitOuter(fn FuncID) bool {
	fs := fl.cur.frames
	reach := max(searchFree, fl.credit)
	stop := max(0, len(fs)-reach)
	i := len(fs) - 1
	for i >= stop && fs[i].fn != fn {
		i--
	}
	fl.credit = max(0, fl.credit-(len(fs)-i))
	if i < stop {
		return false
	}
	fl.drop(i+1, endUnwound)
	f := &fs[i]
	fl.cur.frames = fs[:i]
	fl.sink.leave(f, fl.t, endExit)
	return true
}

// exitAside ends a call that a resync had closed.
func (fl *follower) exitAside(fn FuncID) bool {
	for i := len(fl.aside) - 1; i >= 0; i-- {
		if fl.aside[i].fn == fn {
			f := fl.aside[i].frame
			fl.aside = slices.Delete(fl.aside, i, i+1)
			fl.sink.leave(&f, fl.t, endExit)
			return true
		}
	}
	return false
}

// drop takes frames off the current stack until depth are left.
func (fl *follower) drop(depth int, how ending) {
	for n := len(fl.cur.frames); n > depth; n-- {
		f := &fl.cur.frames[n-1]
		fl.cur.frames = fl.cur.frames[:n-1]
		fl.sink.leave(f, fl.t, how)
	}
}

func (fl *follower) other(w *word) {
	switch w.code {
	case wCall:
		fl.sink.call(w.fn)
	case wGap:
		fl.lossy = true
		if w.arg != 0 {
			fl.change(w.arg)
		}
	case wLost, wCut:
		fl.lossy = true
	case wSysEnter:
		fl.push(w.fn, 0)
	case wSysExit:
		fl.sysExit(w.fn.ID != 0)
	case wResync:
		fl.resync(w.arg)
	case wStack:
		fl.change(w.arg)
	case wDepth:
		fl.deep(w.arg)
	case wThreadEnd:
		fl.finish()
	}
}

// deep takes what is said of how deep in its stack a call is. Where that comes before the call's exit, it tells it from
// other calls of the same function: those inside have been left by a panic.
func (fl *follower) deep(arg uint64) {
	fs := fl.cur.frames
	depth, ends := uint32(arg&^format.DepthEnd/8), arg&format.DepthEnd != 0
	switch {
	case fl.over > 0 || len(fs) == 0:
	case !ends:
		fs[len(fs)-1].depth = depth
	case depth == 0: // all of the goroutine
		fl.drop(0, endUnwound)
	default:
		i, stop := len(fs)-1, max(0, len(fs)-max(searchFree, fl.credit))
		for i >= stop && (fs[i].depth == 0 || fs[i].depth > depth) {
			i--
		}
		fl.credit = max(0, fl.credit-(len(fs)-1-i))
		if i >= stop && fs[i].depth == depth {
			fl.drop(i+1, endUnwound)
		}
	}
}

// openSyscall returns the position of the innermost open system call on the current stack, -1 if there is none. Calls
// inside it are a signal's handlers, so there are few.
func (fl *follower) openSyscall() int {
	fs := fl.cur.frames
	for i := len(fs) - 1; i >= max(0, len(fs)-searchFree); i-- {
		if fs[i].fn.Image == SyscallImage {
			return i
		}
	}
	return -1
}

// sysExit ends the innermost open system call. Handlers that are still open inside it have been left without an exit.
// Where there is none, the task begins with the end of the call that made it, or events are missing: nothing ends.
func (fl *follower) sysExit(failed bool) {
	if fl.over > 0 {
		fl.over--
		return
	}
	i := fl.openSyscall()
	if i < 0 {
		return
	}
	fl.drop(i+1, endUnwound)
	f := &fl.cur.frames[i]
	fl.cur.frames = fl.cur.frames[:i]
	how := endExit
	if failed {
		how = endFailed
	}
	fl.sink.leave(f, fl.t, how)
}

// resync puts the n innermost frames aside. The runtime counts functions only: system calls among them, which a handler
// has left, and which cannot come back, are over.
func (fl *follower) resync(n uint64) {
	if fl.over > 0 {
		skip := min(uint64(fl.over), n)
		fl.over -= int(skip)
		n -= skip
	}
	for ; n > 0 && len(fl.cur.frames) > 0; n-- {
		if len(fl.aside) == maxSuspended {
			// Half at once, so that the copying does not show.
			old := fl.aside[:maxSuspended/2]
			for i := range old {
				fl.sink.leave(&old[i].frame, old[i].end, endUnwound)
			}
			fl.aside = append(fl.aside[:0], fl.aside[maxSuspended/2:]...)
		}
		top := len(fl.cur.frames) - 1
		f := fl.cur.frames[top]
		if f.fn.Image == SyscallImage {
			fl.drop(top, endUnwound)
			n++
			continue
		}
		f.flags |= frameSuspended
		fl.cur.frames = fl.cur.frames[:top]
		fl.sink.suspend(&f)
		fl.aside = append(fl.aside, suspendedFrame{frame: f, end: fl.t})
	}
}

// change makes another stack the current one.
func (fl *follower) change(num uint64) {
	old := fl.cur
	if num == old.num {
		return
	}
	next := fl.stacks[num]
	if next == nil && len(fl.stacks) >= maxStacks {
		fl.drop(0, endUnfinished) // no room to remember them
	}
	if next == nil {
		next = &callStack{num: num}
	} else {
		delete(fl.stacks, num)
		fl.open -= len(next.frames)
	}
	fl.cur = next
	if len(old.frames) == 0 {
		return // an empty stack needs no memory
	}
	if fl.stacks == nil {
		fl.stacks = map[uint64]*callStack{}
	}
	fl.stacks[old.num] = old
	fl.open += len(old.frames)
}

// finish closes everything that is open.
func (fl *follower) finish() {
	fl.t = fl.now
	fl.drop(0, endUnfinished)
	for _, num := range slices.Sorted(maps.Keys(fl.stacks)) {
		fl.cur = fl.stacks[num]
		fl.drop(0, endUnfinished)
	}
	clear(fl.stacks)
	fl.open, fl.over, fl.lossy = 0, 0, false
	for i := range fl.aside {
		fl.sink.leave(&fl.aside[i].frame, fl.aside[i].end, endUnwound)
	}
	fl.aside = fl.aside[:0]
	fl.cur = &callStack{num: fl.cur.num}
}
