package trace

import (
	"fmt"

	"github.com/fentry-dev/fentry/internal/format"
)

// A Kind is the kind of an Event.
type Kind uint8

// Kinds of event.
const (
	// Entry: a function was called, or a system call, which is a call of one of the functions of SyscallImage. Depth is
	// the number of open calls around it.
	Entry Kind = iota + 1
	// Exit: a call ended. Dur and Self are set, Depth is that of its entry.
	Exit
	// Unwound: a call ended without an exit of its own, by longjmp or an exception. Fields are as for Exit. A
	// coroutine's call can be unwound and still exit later: Exit with FlagResumed.
	Unwound
	// Unfinished: a call was still open at the end of the trace or the thread. Fields are as for Exit.
	Unfinished
	// Lost: Count events of the task are missing here, 0 if their number is unknown.
	Lost
	// Stack: the task runs on stack Count from here on.
	Stack
	// Fork: the task begins as a copy of Task.Parent.
	Fork
	// Start: a program image starts.
	Start
	// Comm: the thread has a new name, Event.Comm.
	Comm
	// ThreadEnd: the thread has ended by this time. Its open calls have ended as Unfinished, at the time of its last
	// event.
	ThreadEnd
	// Mark: the program set a mark with the number Count and the text Text.
	Mark
	// Cut: the task was killed while it wrote a record, of which only the type, Count, and the type's name, Text, are
	// known.
	Cut
	// SignalDelivered: a handler of the signal Event.Signal is called.
	SignalDelivered
	// Trigger: something was done because Func is called, Count says what: see the constants that begin with
	// Trigger. Depth is the number of open calls. Dur is how long the call took, if that was the reason.
	Trigger
	// Stacktrace: the stack was walked because Func is called; Backtrace has it.
	Stacktrace
	// SwitchOff: the recorder switched the function Func off, which was called Count times a second, estimated: calls of
	// it may be missing from here on, in all tasks. Only [Trace.WithSwitchedOff] makes these.
	SwitchOff
	// Unknown: a record of an unknown type, Count, written by a later version. Count 128: a word that is neither a
	// call's nor a record's; the trace is damaged.
	Unknown
	// Skipped: events were left out that WalkOptions.Calls does not ask for. Of the calls that are open on the stack
	// Stack, those from Depth on have ended meanwhile, and others may have begun.
	Skipped
)

var kindNames = [...]string{
	Entry: "entry", Exit: "exit", Unwound: "unwound", Unfinished: "unfinished", Lost: "lost", Stack: "stack",
	Fork: "fork", Start: "start", Comm: "comm", ThreadEnd: "thread_end", Mark: "mark", Cut: "cut",
	SignalDelivered: "signal", Trigger: "trigger", Stacktrace: "backtrace",
	SwitchOff: "switch_off", Unknown: "unknown", Skipped: "skipped",
}

// String returns the name of the kind in lower case.
func (k Kind) String() string {
	if int(k) < len(kindNames) && kindNames[k] != "" {
		return kindNames[k]
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

// Flags qualify an Event.
type Flags uint8

// Flags of an event.
const (
	// FlagLeaf: an Entry whose Exit is the task's next event, and that Exit.
	// The Entry has Dur and Self already.
	FlagLeaf Flags = 1 << iota
	// FlagTail: an Entry by a tail call, and the Exit of the function that ended with it.
	FlagTail
	// FlagNoEntry: an Exit whose Entry is not in the trace: the function was called before tracing began or where
	// events were lost. Dur is unknown.
	FlagNoEntry
	// FlagInherited: the call was open in the parent when the task was forked;
	// Dur counts from the fork.
	FlagInherited
	// FlagResumed: an Exit of a call that an earlier Unwound event has closed.
	FlagResumed
	// FlagEntryOnly: an Entry of the function tracer, which records no exits. Its Depth and Caller are unknown.
	FlagEntryOnly
	// FlagOpen: an Entry that lies before the window of a walk, see WalkOptions.Open.
	FlagOpen
	// FlagAbout: a Lost event whose Count is an estimate. Only a [Stream] makes these.
	FlagAbout
)

// An Event is something that happened in a task. Times are in nanoseconds.
type Event struct {
	Time  int64 // since the trace's start
	Dur   int64 // of the call, from entry to exit
	Self  int64 // of the call: time in the function itself
	Count uint64
	Task  *Task
	// Thread is the thread that ran the task, a goroutine; 0: the task is a thread.
	Thread int
	Comm   string // name of the task at that time
	Func   FuncID // Entry, Exit, Unwound, Unfinished
	// Caller is the function of the innermost open call around this one, the zero FuncID if there is none.
	Caller FuncID
	Depth  int
	Stack  uint64 // number of the stack the task is on, unique in the process; Task.Stack is the first
	Text   string // Mark: bytes as the program gave them; Cut
	// Sys is what a system call's beginning or end says, or both in the Entry of a leaf; nil if there is nothing.
	Sys *Syscall
	// Args is what was captured of a function's arguments, in an Entry, Result of its result, in an Exit and in the Entry
	// of a leaf; nil: nothing.
	Args, Result *Captured
	Signal       *Signal
	// Signals is what is known of the thread's signals at this time, behind WithSignalState.
	Signals SignalState
	// Chain is the functions of the open calls, the innermost first: of a Trigger with TriggerStackTrace. It is only good
	// during the call.
	Chain []FuncID
	// Backtrace is the stack, of a Stacktrace.
	Backtrace *Backtrace

	Kind  Kind
	Flags Flags
}

// A cursor turns the words of one task into events.
type cursor struct {
	t    *Trace
	task *Task
	dec  *decoder
	fl   *follower
	cur  word // the word that is due
	nxt  word // the one behind it
	more bool // nxt is there

	thread uint32 // of nxt, see Event.Thread

	captured, nextCaptured *Captured // of cur and nxt, if they are an entry or exit

	ev    Event
	emit  func(*Event) error // nil: only keep the stack up to date
	err   error
	tail  bool // the call that is entered was jumped to
	leaf  bool // the call that is entered or left has no calls inside
	forks *forker
	paths map[*Task][]openCall // where it leaves what its children inherit

	part   *part // of the task's blocks that is visited; nil: all, without the index
	rest   int   // of the decoder's chunks where this run of blocks ends
	jumped bool  // the newest step went on to another run of blocks

	inGists bool // the run's gists are enough

	shorts shorts // that are left out
	short  bool   // the call that was entered last is one, and the next word leaves it

	stream *streaming // nil: no Stream's
}

// newCursor returns a cursor before the first event; nil when the task has none.
func newCursor(t *Trace, k *Task, window []byte, emit func(*Event) error) (*cursor, error) {
	c := &cursor{t: t, task: k, dec: t.newDecoder(k.chunks, window), emit: emit}
	if !c.begin() {
		return nil, c.dec.err
	}
	c.fl = newFollower(c, c.cur.t, k.Stack)
	c.ev.Task = k
	c.ev.Comm = k.firstName(c.dec)
	c.dec.commIsNew = false
	return c, nil
}

// firstName is what the task is called where the decoder has just begun with it.
func (k *Task) firstName(d *decoder) string {
	if len(k.chunks) > 0 && k.chunks[0].first&partOfChunk != 0 {
		return k.Comm // parts of chunks have no name
	}
	return commString(d.comm[:])
}

// begin reads the first two words from where the decoder is. A name that is new is the second one's.
func (c *cursor) begin() bool {
	if !c.read(&c.cur) {
		return false
	}
	c.ev.Thread = int(c.dec.thread)
	c.dec.commIsNew = false
	if c.stream != nil {
		c.stream.name = commString(c.dec.comm[:])
	}
	c.captured = nil
	if c.t.captures {
		c.captured = c.dec.captured(&c.cur)
	}
	c.lookAhead()
	return true
}

// lookAhead reads the word behind the one that is due.
func (c *cursor) lookAhead() {
	c.more = c.read(&c.nxt)
	c.thread = c.dec.thread
	if c.t.captures {
		c.nextCaptured = nil
		if c.more {
			c.nextCaptured = c.dec.captured(&c.nxt)
		}
	}
}

// give leaves what the children that begin until counter t inherit in c.paths.
func (c *cursor) give(t uint64) {
	if c.forks == nil {
		return
	}
	for k := c.forks.next(t); k != nil; k = c.forks.next(t) {
		c.paths[k] = c.forks.take(c.fl)
	}
}

// follow lets the word change the stacks.
func (c *cursor) follow(w *word) {
	if c.forks != nil {
		c.give(w.t)
		c.forks.step(c.fl, w)
		return
	}
	c.fl.step(w)
}

// step handles the word that is due. It returns false when there are no more.
func (c *cursor) step() bool {
	if c.inGists {
		return c.stepGist()
	}
	w, leaf := &c.cur, c.leaf
	if c.stream != nil {
		c.rename()
	}
	switch w.code {
	case wCall:
		c.follow(w)
	case wEntry:
		c.leaf = c.more && c.nxt.code == wExit && c.nxt.fn == w.fn
		c.follow(w)
		c.tail = false
	case wExit:
		c.tail = c.more && c.nxt.code == wEntry && c.nxt.t == w.t
		c.follow(w)
		c.leaf = false
	case wSysEnter:
		c.leaf, c.tail = c.more && c.nxt.code == wSysExit, false
		c.follow(w)
	case wSysExit:
		c.tail = false
		if c.fl.openSyscall() < 0 {
			c.sysOrphan(w)
		}
		c.follow(w)
		c.leaf = false
	case wThreadEnd:
		c.follow(w)
		c.fl.t = w.t
		c.note(ThreadEnd, 0)
	default:
		c.follow(w)
		c.noteWord(w)
	}
	if c.err != nil {
		return false
	}
	if c.dec.commIsNew {
		// Seen one word early; a name has no exact time anyway.
		c.dec.commIsNew = false
		if name := commString(c.dec.comm[:]); name != c.ev.Comm {
			c.ev.Comm = name
			c.note(Comm, 0)
		}
	}
	if c.stream != nil {
		c.stepped(w, leaf)
		if !c.more && !c.stream.end {
			c.stream.at = c.stream.next
			return false // more may come
		}
	}
	if !c.more {
		c.give(^uint64(0))
		c.fl.finish()
		if c.err == nil {
			c.err = c.dec.err
		}
		return false
	}
	if len(c.dec.chunks) < c.rest {
		return c.jump()
	}
	if c.nxt.code == wThreadEnd {
		c.follow(&c.nxt) // calls end at the time of this event, not when the end was noticed
	}
	c.cur, c.captured = c.nxt, c.nextCaptured
	c.ev.Thread = int(c.thread)
	c.lookAhead()
	return c.err == nil && (c.stream == nil || c.ready())
}

func (c *cursor) noteWord(w *word) {
	switch w.code {
	case wGap:
		c.gap()
	case wLost:
		c.note(Lost, w.arg)
	case wStack:
		c.note(Stack, w.arg)
	case wFork:
		c.note(Fork, w.arg)
	case wStart:
		c.note(Start, 0)
	case wComm:
		c.ev.Comm = c.dec.note(w.arg).text
		c.note(Comm, 0)
	case wMark:
		n := c.dec.note(w.arg)
		c.ev.Text = n.text
		c.note(Mark, n.value)
		c.ev.Text = ""
	case wSignal:
		c.ev.Signal = c.dec.note(w.arg).signal
		c.note(SignalDelivered, c.ev.Signal.Number)
		c.ev.Signal = nil
	case wTrigger:
		c.trigger(w)
	case wBacktrace:
		c.backtrace(w)
	case wCut:
		c.ev.Text = recordName(w.arg)
		c.note(Cut, w.arg)
		c.ev.Text = ""
	case wUnknown:
		c.note(Unknown, w.arg)
	}
}

// gap notes that chunks are missing. Only a stream can tell about how many events were in them: it has seen others.
func (c *cursor) gap() {
	c.note(Lost, c.stream.missed())
}

// sysOrphan emits the end of a system call whose beginning is not in the task.
func (c *cursor) sysOrphan(w *word) {
	if c.emit == nil || c.err != nil {
		return
	}
	c.fl.t = w.t
	c.ev.Dur, c.ev.Self = 0, 0
	c.ev.Sys = c.dec.note(w.arg).sys
	c.event(Exit, FlagNoEntry, unknownSyscall, len(c.fl.cur.frames))
	c.ev.Sys = nil
}

// sysOf returns what is said of a system call at the word that is due, with its end if that follows directly.
func (c *cursor) sysOf(f *frame, code uint8) *Syscall {
	if f.fn.Image != SyscallImage || c.cur.code != code {
		return nil
	}
	s := c.dec.note(c.cur.arg).sys
	if code == wSysEnter && c.leaf {
		whole := *s
		whole.End = c.dec.note(c.nxt.arg).sys
		return &whole
	}
	return s
}

// recordName is the name of a type of record, "" when it is not known.
func recordName(typ uint64) string {
	switch typ {
	case format.RecData:
		return "data"
	case format.RecArgs:
		return "args"
	case format.RecSignal:
		return "signal"
	case format.RecSync:
		return "sync"
	case format.RecLost:
		return "lost"
	case format.RecResync:
		return "resync"
	case format.RecStack:
		return "stack"
	case format.RecFork:
		return "fork"
	case format.RecStart:
		return "start"
	case format.RecComm:
		return "comm"
	case format.RecThreadEnd:
		return "thread_end"
	case format.RecMark:
		return "mark"
	case format.RecTrigger:
		return "trigger"
	case format.RecDepth:
		return "depth"
	case format.RecBacktrace:
		return "backtrace"
	case format.RecFrames:
		return "frames"
	case format.RecMaps:
		return "maps"
	}
	return ""
}

// note emits an event that is no call's.
func (c *cursor) note(kind Kind, count uint64) {
	if c.emit == nil || c.err != nil {
		return
	}
	ev := &c.ev
	ev.Time = c.t.Clock.Time(c.fl.t)
	ev.Kind, ev.Flags, ev.Count = kind, 0, count
	if kind == Lost && count > 0 && c.cur.code == wGap {
		ev.Flags = FlagAbout
	}
	ev.Func, ev.Caller, ev.Dur, ev.Self = FuncID{}, FuncID{}, 0, 0
	ev.Depth, ev.Stack = len(c.fl.cur.frames), c.fl.cur.num
	if n := len(c.fl.cur.frames); n > 0 {
		ev.Caller = c.fl.cur.frames[n-1].fn
	}
	c.err = c.emit(ev)
}

// event emits an event of a call whose frame is or was at depth.
func (c *cursor) event(kind Kind, flags Flags, fn FuncID, depth int) {
	ev := &c.ev
	ev.Time = c.t.Clock.Time(c.fl.t)
	ev.Kind, ev.Flags, ev.Count = kind, flags, 0
	ev.Func, ev.Caller = fn, FuncID{}
	ev.Depth, ev.Stack = depth, c.fl.cur.num
	if depth > 0 {
		ev.Caller = c.fl.cur.frames[depth-1].fn
	}
	c.err = c.emit(ev)
}

func (c *cursor) enter(f *frame) {
	if f.flags&frameInherited != 0 {
		c.leaf = false // its entry is the parent's, and not an event here
		return
	}
	if c.emit == nil || c.err != nil {
		return
	}
	if c.short = c.leaf && c.shorts.has(f.start, c.nxt.t); c.short {
		return
	}
	ev := &c.ev
	ev.Dur, ev.Self = 0, 0
	var flags Flags
	if c.tail {
		flags |= FlagTail
	}
	if c.leaf {
		flags |= FlagLeaf
		if c.nxt.t > f.start {
			ev.Dur = c.t.Clock.Span(c.nxt.t - f.start)
			ev.Self = ev.Dur
		}
	}
	ev.Sys = c.sysOf(f, wSysEnter)
	if c.t.captures && c.cur.code == wEntry {
		ev.Args = c.captured
		if c.leaf {
			ev.Result = c.nextCaptured
		}
	}
	c.event(Entry, flags, f.fn, len(c.fl.cur.frames)-1)
	ev.Sys, ev.Args, ev.Result = nil, nil, nil
}

// openCalls emits the calls that are open on the current stack, as events that lie
// before the window.
func (c *cursor) openCalls(emit func(*Event) error) error {
	ev := &c.ev
	ev.Dur, ev.Self = 0, 0
	ev.Kind, ev.Flags, ev.Count, ev.Stack = Entry, FlagOpen, 0, c.fl.cur.num
	ev.Caller = FuncID{}
	for i := range c.fl.cur.frames {
		f := &c.fl.cur.frames[i]
		ev.Time, ev.Func, ev.Depth = c.t.Clock.Time(f.start), f.fn, i
		if err := emit(ev); err != nil {
			return err
		}
		ev.Caller = f.fn
	}
	return nil
}

func (c *cursor) forget(*frame) {}

func (c *cursor) call(fn FuncID) {
	if c.emit != nil && c.err == nil {
		c.ev.Dur, c.ev.Self = 0, 0
		c.ev.Args = c.captured
		c.event(Entry, FlagEntryOnly, fn, len(c.fl.cur.frames))
		c.ev.Args = nil
	}
}

func (c *cursor) suspend(f *frame) { c.left(f, Unwound, 0) }

func (c *cursor) leave(f *frame, _ uint64, how ending) {
	switch {
	case how == endExit && f.flags&frameSuspended != 0:
		c.left(f, Exit, FlagResumed)
	case how == endExit, how == endFailed:
		c.left(f, Exit, 0)
	case f.flags&frameSuspended != 0:
		// Its Unwound event was emitted when it was suspended.
	case how == endUnwound:
		c.left(f, Unwound, 0)
	default:
		c.left(f, Unfinished, 0)
	}
}

func (c *cursor) left(f *frame, kind Kind, flags Flags) {
	if c.emit == nil || c.err != nil {
		return
	}
	if c.short {
		c.short = false
		return
	}
	ev := &c.ev
	ev.Dur, ev.Self = 0, c.t.Clock.Span(f.self)
	if c.fl.t > f.start {
		ev.Dur = c.t.Clock.Span(c.fl.t - f.start)
	}
	if kind == Exit {
		if c.leaf {
			flags |= FlagLeaf
		}
		if c.tail {
			flags |= FlagTail
		}
	}
	if f.flags&frameInherited != 0 {
		flags |= FlagInherited
	}
	if kind == Exit {
		ev.Sys = c.sysOf(f, wSysExit)
		if c.t.captures && c.cur.code == wExit {
			ev.Result = c.captured
		}
	}
	c.event(kind, flags, f.fn, len(c.fl.cur.frames))
	ev.Sys, ev.Result = nil, nil
}

func (c *cursor) orphan(fn FuncID) {
	if c.emit == nil || c.err != nil {
		return
	}
	c.ev.Dur, c.ev.Self = 0, 0
	flags := FlagNoEntry
	if c.tail {
		flags |= FlagTail
	}
	c.event(Exit, flags, fn, len(c.fl.cur.frames))
}
