// Package ndjson writes the events of a trace as JSON, one object per line.
//
//	j := ndjson.New(w, t)
//	err := t.Walk(trace.WalkOptions{}, j.Event)
//	if err == nil {
//		err = j.Close()
//	}
//
// The fields, in this order, are:
//
//	time    ns since the trace's start; without a clock, a number by which events are in order
//	event   what it is, see below
//	pid     process id
//	tid     thread id; of a goroutine, its number
//	comm    name of the thread at that time
//	task    number of the task in the trace, from 0; thread ids can be reused
//	thread  id of the thread that runs the goroutine (events of goroutines only)
//	depth   number of open calls around it
//	func    name of the function or system call (calls, switch_off and trigger only)
//	image   path of the function's program image (calls only)
//	addr    the function's address in the image, a string in hex (calls only, if known)
//	caller  function of the innermost open call around it (calls only, if there is one)
//	dur     ns from entry to exit (exit, unwound, unfinished; entry of a leaf), if there is a clock
//	self    ns in the function itself (as dur)
//	stack   number of the stack in the process, if it is not the one the task began on
//	count   a number, see below
//	text    a text, see below; absent if empty
//	words   arguments of a system call, an array of strings in hex (sys_enter)
//	args    the same by their names: numbers, strings, constants by name, structures as strace shows them (sys_enter);
//	        what was captured of a function's arguments, by their names or as arg1, arg2 (entry): numbers, strings,
//	        enumerators by name, objects, arrays; addresses and other numbers in hex are strings; null: unknown, or NULL
//	result  result of a system call (sys_exit; sys_enter of a leaf), or what was captured of a function's (exit; entry of a
//	        leaf)
//	errno   name of the error if it is one, such as ENOENT
//	ppid    process id of the parent (fork)
//	ptid    thread id of the parent (fork)
//	signal  name of the signal (signal, as all of the next five)
//	code    si_code
//	address si_addr of a fault; of a signal that a process has sent, its id and user
//	pc      where the thread was interrupted
//	blocked the signals that were blocked there, bit 0 for signal 1
//	handler the function that is called, if it is traced
//	action  what was done (trigger)
//	dur     of a trigger: how long the call took that ends, if that was the reason
//	chain   array of the functions that are open, the innermost first (trigger with stacktrace)
//	signals what is known of the thread's signals, absent if there is nothing: handlers, how many are running, one inside the
//	        other; other_stack, the innermost is on another stack than what it has interrupted; blocked, which signals are,
//	        bit 0 for signal 1, but for those that are because they are handled
//	flags   array of leaf, tail, no_entry, inherited, resumed, entry_only, open;
//	        absent if empty
//
// Calls are
//
//	entry       a function was called
//	exit        it returned
//	unwound     it ended otherwise: longjmp, an exception
//	unfinished  it was open at the end of the thread or the trace
//
// and other events are
//
//	lost        count events of the task are missing here, 0 if their number is unknown
//	stack       the task continues on the stack with number count
//	fork        the task begins as a copy of another, ppid and ptid
//	start       a program image starts
//	comm        the thread has a new name, comm
//	thread_end  the thread has ended by this time
//	mark        the program set a mark: count and text are what it gave
//	sys_enter   a system call begins: func is sys_ and its name, count its number, text what strace would show; what is
//	            unknown is absent. The one of a leaf has its result, too
//	sys_exit    it ended
//	trigger     something was done because func is called: traceon, traceoff (calls that begin between them are missing, in
//	            all threads), finish, stacktrace, snapshot
//	signal      a handler of signal count is called
//	switch_off  func was switched off, to bound what tracing costs: calls of it from here on may be missing, in all
//	            threads; count is how often a second it was called, estimated
//	cut         the task was killed while it wrote something; text says what: sync, lost,
//	            resync, stack, fork, start, comm, thread_end, mark, data or signal
//
// Records of a later version are left out; [Writer.Skipped] counts them.
//
// Later versions may add fields, but none changes its meaning. Bytes of names that are not UTF-8 become U+FFFD.
package ndjson

import (
	"io"
	"strconv"

	"github.com/fentry-dev/fentry/internal/safetext"
	"github.com/fentry-dev/fentry/internal/syscalls"
	"github.com/fentry-dev/fentry/trace"
)

// bufferSize is how much text is collected for one write.
const bufferSize = 64 << 10

// A Writer writes events. It is not safe for concurrent use.
type Writer struct {
	w   io.Writer
	t   *trace.Trace
	buf []byte
	err error
	fns map[trace.FuncID]*fn
	// The function of the newest event and the one that called it.
	last, lastCaller memo
	tasks            []task // by Task.Index
	skipped          uint64
	untimed          bool // there is no clock
}

type memo struct {
	id trace.FuncID
	fn *fn
}

// task is what is written of a task: pid to depth's name.
type task struct {
	comm   string
	thread int
	text   string
}

// fn is what is written of a function, quoted once.
type fn struct {
	name  string // "name"
	place string // ,"image":"path","addr":"0x401000"
}

// New returns a Writer that writes to w.
func New(w io.Writer, t *trace.Trace) *Writer {
	return &Writer{
		w: w, t: t, buf: make([]byte, 0, bufferSize+4096), untimed: t.Clockless(),
		fns: map[trace.FuncID]*fn{}, tasks: make([]task, len(t.Tasks)),
	}
}

var flagNames = [...]string{"leaf", "tail", "no_entry", "inherited", "resumed", "entry_only", "open"}

// Skipped returns the number of events left out because they are unknown: records of a later version, or damage.
func (j *Writer) Skipped() uint64 { return j.skipped }

// Event writes an event.
func (j *Writer) Event(ev *trace.Event) error {
	if ev.Kind < trace.Entry || ev.Kind >= trace.Unknown {
		j.skipped++
		return nil
	}
	b := append(j.buf, `{"time":`...)
	b = strconv.AppendInt(b, ev.Time, 10)
	b = append(b, `,"event":"`...)
	b = append(b, kindName(ev)...)
	b = append(b, '"')
	b = append(b, j.task(ev)...)
	b = strconv.AppendInt(b, int64(ev.Depth), 10)
	if ev.Func.ID != 0 {
		f := j.fn(&j.last, ev.Func)
		b = append(b, `,"func":`...)
		b = append(b, f.name...)
		b = append(b, f.place...)
		if ev.Caller.ID != 0 {
			b = append(b, `,"caller":`...)
			b = append(b, j.fn(&j.lastCaller, ev.Caller).name...)
		}
	}
	switch ev.Kind {
	case trace.Entry:
		if ev.Flags&trace.FlagLeaf != 0 {
			b = j.times(b, ev)
		}
	case trace.Exit, trace.Unwound, trace.Unfinished:
		if ev.Flags&trace.FlagNoEntry == 0 {
			b = j.times(b, ev)
		}
	}
	if ev.Stack != ev.Task.Stack {
		b = append(b, `,"stack":`...)
		b = strconv.AppendUint(b, ev.Stack, 10)
	}
	switch ev.Kind {
	case trace.Lost, trace.Stack, trace.Mark, trace.SwitchOff:
		b = append(b, `,"count":`...)
		b = strconv.AppendUint(b, ev.Count, 10)
		b = text(b, ev)
	case trace.Entry, trace.Exit:
		if ev.Sys != nil {
			b = j.syscall(b, ev)
		}
		if ev.Args != nil || ev.Result != nil {
			b = j.captured(b, ev)
		}
	case trace.Trigger:
		b = safetext.AppendJSON(append(b, `,"action":`...), trace.TriggerName(ev.Count))
		if ev.Dur > 0 {
			b = strconv.AppendInt(append(b, `,"dur":`...), ev.Dur, 10)
		}
		sep := `,"chain":[`
		for _, id := range ev.Chain {
			b = append(append(b, sep...), j.fn(&j.lastCaller, id).name...)
			sep = ","
		}
		if len(ev.Chain) > 0 {
			b = append(b, ']')
		}
	case trace.Stacktrace:
		b = append(b, `,"frames":[`...)
		for i, f := range ev.Backtrace.Frames {
			for k, label := range j.t.FrameLabels(f) {
				if i+k > 0 {
					b = append(b, ',')
				}
				b = safetext.AppendJSON(b, label)
			}
		}
		b = safetext.AppendJSON(append(b, `],"end":`...), ev.Backtrace.End)
		b = safetext.AppendJSON(append(b, `,"mode":`...), ev.Backtrace.Mode)
		if ev.Backtrace.Timer {
			b = strconv.AppendInt(append(b, `,"timer":true,"delay":`...), ev.Backtrace.Delay, 10)
		}
	case trace.SignalDelivered:
		b = append(b, `,"count":`...)
		b = strconv.AppendUint(b, ev.Count, 10)
		b = j.signal(b, ev.Signal)
	case trace.Cut:
		b = text(b, ev)
	case trace.Start:
		b = started(b, ev)
	case trace.Fork:
		b = append(b, `,"ppid":`...)
		b = strconv.AppendUint(b, ev.Count>>32, 10)
		b = append(b, `,"ptid":`...)
		b = strconv.AppendUint(b, ev.Count&0xffffffff, 10)
	}
	if ev.Signals != (trace.SignalState{}) {
		b = signals(b, &ev.Signals)
	}
	if ev.Flags != 0 {
		sep := `,"flags":["`
		for i, s := range flagNames {
			if ev.Flags&(1<<i) != 0 {
				b = append(b, sep...)
				b = append(b, s...)
				sep = `","`
			}
		}
		b = append(b, `"]`...)
	}
	j.buf = append(b, "}\n"...)
	return j.flush(false)
}

// signals appends what is known of a thread's signals.
func signals(b []byte, s *trace.SignalState) []byte {
	b = strconv.AppendInt(append(b, `,"signals":{"handlers":`...), int64(s.Handlers), 10)
	b = strconv.AppendBool(append(b, `,"other_stack":`...), s.OtherStack)
	b = append(strconv.AppendUint(append(b, `,"blocked":"0x`...), s.Blocked, 16), '"')
	return append(b, '}')
}

// signal appends what is known of a signal.
func (j *Writer) signal(b []byte, s *trace.Signal) []byte {
	b = safetext.AppendJSON(append(b, `,"signal":`...), j.t.Machine().SignalName(s.Number))
	b = strconv.AppendInt(append(b, `,"code":`...), s.Code, 10)
	for _, f := range []struct {
		name  string
		value uint64
	}{{"address", s.Address}, {"pc", s.PC}, {"blocked", s.Blocked}} {
		b = append(append(append(b, `,"`...), f.name...), `":"0x`...)
		b = append(strconv.AppendUint(b, f.value, 16), '"')
	}
	if s.Handler.ID != 0 {
		b = append(append(b, `,"handler":`...), j.fn(&j.lastCaller, s.Handler).name...)
	}
	return b
}

// kindName is the name of an event: system calls have their own.
func kindName(ev *trace.Event) string {
	if ev.Func.Image == trace.SyscallImage {
		switch ev.Kind {
		case trace.Entry:
			return "sys_enter"
		case trace.Exit:
			return "sys_exit"
		}
	}
	return ev.Kind.String()
}

// syscall appends what is known of a system call that begins or ends. A leaf has both.
func (j *Writer) syscall(b []byte, ev *trace.Event) []byte {
	s, m := ev.Sys, j.t.Made(ev)
	if ev.Kind == trace.Entry && !s.Open {
		b = append(b, `,"count":`...)
		b = strconv.AppendUint(b, s.Value, 10)
		b = append(b, `,"words":[`...)
		for i, a := range s.Args {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(b, `"0x`...)
			b = append(strconv.AppendUint(b, a, 16), '"')
		}
		b = append(b, ']')
		b = values(b, m)
		b = safetext.AppendJSON(append(b, `,"text":`...), m.Text())
	}
	if m.Ended {
		b = append(b, `,"result":`...)
		b = strconv.AppendInt(b, int64(m.Result), 10)
		if e := syscalls.ErrnoName(syscalls.Errno(m.Result)); e != "" {
			b = safetext.AppendJSON(append(b, `,"errno":`...), e)
		}
	}
	return b
}

// captured appends what is known of a function's arguments and result. A leaf has both.
func (j *Writer) captured(b []byte, ev *trace.Event) []byte {
	c := j.t.Capture(ev)
	if c == nil {
		return b
	}
	if a := ev.Args; a != nil && !a.Open && len(c.Params) > 0 {
		b = c.AppendObject(append(b, `,"args":`...), a.Words, a.Memory())
	}
	if r := ev.Result; r != nil && !r.Open && c.Result != nil {
		b = c.Result.AppendJSON(append(b, `,"result":`...), r.Words, r.Memory())
	}
	if r := ev.Result; r != nil && !r.Open {
		if e := c.Error(r.Words); e != "" {
			b = safetext.AppendJSON(append(b, `,"errno":`...), e)
		}
	}
	return b
}

// values appends the arguments of a system call by their names.
func values(b []byte, m *syscalls.Made) []byte {
	list := m.Values()
	if len(list) == 0 {
		return b
	}
	sep := byte('{')
	b = append(b, `,"args":`...)
	for i := range list {
		v := &list[i]
		b = append(safetext.AppendJSON(append(b, sep), v.Name), ':')
		b, sep = v.AppendJSON(b), ','
	}
	return append(b, '}')
}

// started appends what program starts, and whose child the process is.
func started(b []byte, ev *trace.Event) []byte {
	p := ev.Task.Process
	if p == nil {
		return b
	}
	if p.ParentPID != 0 {
		b = append(b, `,"ppid":`...)
		b = strconv.AppendInt(b, int64(p.ParentPID), 10)
	}
	args, title := p.Command(ev.Time)
	if title || args == nil {
		return b
	}
	sep := byte('[')
	b = append(b, `,"args":`...)
	for _, a := range args {
		b = safetext.AppendJSON(append(b, sep), a)
		sep = ','
	}
	return append(b, ']')
}

func text(b []byte, ev *trace.Event) []byte {
	if ev.Text == "" {
		return b
	}
	return safetext.AppendJSON(append(b, `,"text":`...), ev.Text)
}

func (j *Writer) times(b []byte, ev *trace.Event) []byte {
	if j.untimed {
		return b
	}
	b = append(b, `,"dur":`...)
	b = strconv.AppendInt(b, ev.Dur, 10)
	b = append(b, `,"self":`...)
	return strconv.AppendInt(b, ev.Self, 10)
}

// Close flushes the buffer.
func (j *Writer) Close() error { return j.flush(true) }

func (j *Writer) flush(all bool) error {
	if len(j.buf) >= bufferSize || all && len(j.buf) > 0 {
		if j.err == nil {
			_, j.err = j.w.Write(j.buf)
		}
		j.buf = j.buf[:0]
	}
	return j.err
}

// maxFns bounds the quoted names that are kept when ids are damaged.
const maxFns = 1 << 20

func (j *Writer) fn(m *memo, id trace.FuncID) *fn {
	if m.fn != nil && m.id == id {
		return m.fn
	}
	f := j.fns[id]
	if f == nil {
		f = j.newFn(id)
		if len(j.fns) < maxFns {
			j.fns[id] = f
		}
	}
	m.id, m.fn = id, f
	return f
}

func (j *Writer) newFn(id trace.FuncID) *fn {
	f := new(fn)
	f.name = string(safetext.AppendJSON(nil, j.t.Name(id)))
	var b []byte
	if int(id.Image) < len(j.t.Images) {
		b = append(b, `,"image":`...)
		b = safetext.AppendJSON(b, j.t.Images[id.Image].Path)
	}
	if s := j.t.Func(id); s.Addr != 0 {
		b = append(b, `,"addr":"0x`...)
		b = strconv.AppendUint(b, s.Addr, 16)
		b = append(b, '"')
	}
	f.place = string(b)
	return f
}

func (j *Writer) task(ev *trace.Event) string {
	k := &j.tasks[ev.Task.Index]
	if k.text == "" || k.comm != ev.Comm || k.thread != ev.Thread {
		b := append([]byte(nil), `,"pid":`...)
		b = strconv.AppendInt(b, int64(ev.Task.PID), 10)
		b = append(b, `,"tid":`...)
		b = strconv.AppendInt(b, int64(ev.Task.TID), 10)
		b = append(b, `,"comm":`...)
		b = safetext.AppendJSON(b, ev.Comm)
		b = append(b, `,"task":`...)
		b = strconv.AppendInt(b, int64(ev.Task.Index), 10)
		if ev.Thread != 0 {
			b = strconv.AppendInt(append(b, `,"thread":`...), int64(ev.Thread), 10)
		}
		b = append(b, `,"depth":`...)
		k.comm, k.thread, k.text = ev.Comm, ev.Thread, string(b)
	}
	return k.text
}
