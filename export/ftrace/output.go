package ftrace

import (
	"io"
	"strconv"
	"strings"

	"github.com/fentry-dev/fentry/internal/safetext"
	"github.com/fentry-dev/fentry/trace"
)

// bufferSize is how much text is collected for one write.
const bufferSize = 64 << 10

// output is what both formats share: the buffer and the tasks' columns.
type output struct {
	w      io.Writer
	t      *trace.Trace
	buf    []byte
	err    error
	base   int64 // added to times
	oneCPU bool
	number func(*trace.Task) int // CPU numbers; nil: places in Trace.Tasks
	named  []bool                // by CPU number: the task's line has been written

	skipped uint64 // events of unknown kinds
}

// Skipped returns the number of events that this format cannot show: records of a later version, or damage.
func (o *output) Skipped() uint64 { return o.skipped }

// known counts an event that nobody knows how to show.
func (o *output) known(ev *trace.Event) bool {
	if ev.Kind >= trace.Entry && ev.Kind < trace.Unknown {
		return true
	}
	o.skipped++
	return false
}

func newOutput(w io.Writer, t *trace.Trace, sinceStart, oneCPU bool) output {
	o := output{w: w, t: t, buf: make([]byte, 0, bufferSize+4096), oneCPU: oneCPU}
	if !sinceStart {
		o.base = t.Clock.Monotonic
	}
	return o
}

// flush writes the buffer when it is full enough.
func (o *output) flush(all bool) error {
	if len(o.buf) >= bufferSize || all && len(o.buf) > 0 {
		if o.err == nil {
			_, o.err = o.w.Write(o.buf)
		}
		o.buf = o.buf[:0]
	}
	return o.err
}

// Flush writes what is there of lines.
func (o *output) Flush() error { return o.flush(true) }

// cpu is the number in a task's CPU column.
func (o *output) cpu(k *trace.Task) int {
	if o.oneCPU || k == nil {
		return 0
	}
	if o.number != nil {
		return o.number(k)
	}
	return k.Index
}

// cpus is the number of different numbers.
func (o *output) cpus() int {
	if o.oneCPU {
		return 1
	}
	if o.number != nil {
		n := 1
		for _, k := range o.t.Tasks {
			n = max(n, o.number(k)+1)
		}
		return n
	}
	return max(1, len(o.t.Tasks))
}

// appendLost appends the kernel's line for missing events.
func appendLost(b []byte, cpu int, ev *trace.Event) []byte {
	b = append(b, "CPU:"...)
	b = strconv.AppendInt(b, int64(cpu), 10)
	b = append(b, " [LOST "...)
	if ev.Flags&trace.FlagAbout != 0 {
		b = append(b, "ABOUT "...)
	}
	if ev.Count > 0 {
		b = strconv.AppendUint(b, ev.Count, 10)
		b = append(b, ' ')
	}
	return append(b, "EVENTS]\n"...)
}

// appendNote appends what an event that is no call says, as it stands in a
// comment. It appends nothing for an event that says nothing to people.
func (o *output) appendNote(b []byte, ev *trace.Event) []byte {
	switch ev.Kind {
	case trace.SwitchOff:
		b = append(b, "switched off: "...)
		b = append(b, o.t.Label(ev.Func)...)
		b = append(b, ", about "...)
		b = strconv.AppendUint(b, ev.Count, 10)
		b = append(b, " calls a second"...)
	case trace.Stack:
		if number, ok := trace.GoroutineOf(ev.Count); ok {
			b = strconv.AppendUint(append(b, "goroutine "...), number, 10)
		} else {
			b = strconv.AppendUint(append(b, "stack "...), ev.Count, 10)
		}
	case trace.Fork:
		b = append(b, "forked from "...)
		b = strconv.AppendUint(b, ev.Count&0xffffffff, 10)
	case trace.Start:
		b = append(b, "program starts"...)
		if s := commandLine(ev.Task, ev.Time); s != "" {
			b = append(b, ": "...)
			b = append(b, s...)
		}
	case trace.Comm:
		b = append(b, "name: "...)
		b = append(b, safetext.Line(ev.Comm)...)
	case trace.ThreadEnd:
		b = append(b, "thread ends"...)
	case trace.Mark:
		b = appendMark(b, ev)
	case trace.Trigger:
		b = o.appendTrigger(b, ev)
	case trace.Stacktrace:
		b = o.appendBacktrace(b, ev)
	case trace.SignalDelivered:
		b = append(append(b, "signal "...), o.t.Machine().SignalName(ev.Count)...)
	case trace.Cut:
		b = append(b, "killed while it wrote this: "...)
		b = append(b, ev.Text...)
	}
	return b
}

// appendTrigger appends what was done because a function is called.
func (o *output) appendTrigger(b []byte, ev *trace.Event) []byte {
	switch ev.Count {
	case trace.TriggerOn:
		b = append(b, "tracing on"...)
	case trace.TriggerOff:
		b = append(b, "tracing off"...)
	case trace.TriggerFinish:
		b = append(b, "recording ends"...)
	case trace.TriggerStackTrace:
		b = append(b, "stack trace: "...)
		for i, id := range ev.Chain {
			if i > 0 {
				b = append(b, " <- "...)
			}
			b = append(b, o.t.Label(id)...)
		}
		if len(ev.Chain) == 0 {
			b = append(b, o.t.Label(ev.Func)...) // nobody knows who has called it
		}
		return o.appendTook(b, ev)
	default:
		b = append(b, trace.TriggerName(ev.Count)...)
	}
	return o.appendTook(append(append(b, ": "...), o.t.Label(ev.Func)...), ev)
}

// appendTook appends how long a call took, if that was why something was done.
func (o *output) appendTook(b []byte, ev *trace.Event) []byte {
	if ev.Dur == 0 {
		return b
	}
	return append(appendNumber(append(b, ", took "...), ev.Dur), " us"...)
}

// appendState appends the five characters that the kernel has for interrupts and preemption, with their meaning for
// threads: d, signals are blocked; f, in a forked child; h, in a signal's handler, H, in one on another stack than what it
// has interrupted, s, on another stack without one; how many handlers lie one in the other; nothing.
func appendState(b []byte, ev *trace.Event) []byte {
	state := [...]byte{'.', '.', '.', '.', '.'}
	s := &ev.Signals
	if s.Blocked != 0 {
		state[0] = 'd'
	}
	if ev.Task.Parent != nil {
		state[1] = 'f'
	}
	switch {
	case s.Handlers > 0 && s.OtherStack:
		state[2] = 'H'
	case s.Handlers > 0:
		state[2] = 'h'
	case ev.Stack != ev.Task.Stack:
		state[2] = 's'
	}
	if s.Handlers > 0 {
		state[3] = "0123456789"[min(s.Handlers, 9)]
	}
	return append(b, state[:]...)
}

// appendBacktrace appends a stack in one line, from the function that asked for it outwards.
func (o *output) appendBacktrace(b []byte, ev *trace.Event) []byte {
	sep := "stack trace: "
	if ev.Backtrace.Timer {
		sep = "sample: "
	}
	for _, label := range o.t.StackLabels(ev) {
		b = append(append(b, sep...), label...)
		sep = " <- "
	}
	if ev.Backtrace.End != "outermost" {
		b = append(append(append(b, " ("...), ev.Backtrace.End...), ')')
	}
	return b
}

// maxCommand is how many characters of a command line are shown.
const maxCommand = 200

// commandLine is what a task's process was at a time, "" if that is not known.
func commandLine(k *trace.Task, at int64) string {
	if k.Process == nil {
		return ""
	}
	return clip(safetext.Line(k.Process.CommandLine(at)), maxCommand)
}

// clip cuts s after n characters.
func clip(s string, n int) string {
	for i := range s {
		if n == 0 {
			return s[:i] + "..."
		}
		n--
	}
	return s
}

// appendMark appends a mark's text, as the kernel prints what is written to
// trace_marker, and its number unless that is 0; without a text, "mark" and the
// number.
func appendMark(b []byte, ev *trace.Event) []byte {
	if ev.Text == "" {
		b = append(b, "mark "...)
		return strconv.AppendUint(b, ev.Count, 10)
	}
	b = append(b, safetext.Line(strings.TrimSuffix(ev.Text, "\n"))...)
	if ev.Count != 0 {
		b = append(b, " ("...)
		b = strconv.AppendUint(b, ev.Count, 10)
		b = append(b, ')')
	}
	return b
}

// appendComment appends what comment has to say of a function.
func appendComment(b []byte, comment func(trace.FuncID) string, id trace.FuncID) []byte {
	if comment == nil {
		return b
	}
	if s := comment(id); s != "" {
		b = append(b, " /* "...)
		b = append(b, safetext.Line(s)...)
		b = append(b, " */"...)
	}
	return b
}
