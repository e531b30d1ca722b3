package export

import (
	"strconv"
	"strings"

	"github.com/fentry-dev/fentry/arguments"
	"github.com/fentry-dev/fentry/internal/safetext"
	"github.com/fentry-dev/fentry/trace"
)

// What events say beside when they happened: arguments and results of calls, the stacks that were walked at them, and
// what happened between calls. Each format has a place of its own for it, or none; what it is, and which text stands for
// it, is said here once. Text is safe to show as far as Label and FrameLabels make it so; values are the programs' own
// bytes, as C or strace has them, so writers of text make them safe like names.

// NoteText is the text of an event that is shown as an instant: a mark, lost events, a signal, what a trigger did, a
// stack that was walked. ok is false for others.
func NoteText(t *trace.Trace, ev *trace.Event) (text string, ok bool) {
	switch ev.Kind {
	case trace.Mark:
		if ev.Text == "" {
			return "mark " + strconv.FormatUint(ev.Count, 10), true
		}
		return ev.Text, true
	case trace.Lost:
		if ev.Count == 0 {
			return "events lost", true
		}
		return strconv.FormatUint(ev.Count, 10) + " events lost", true
	case trace.SignalDelivered:
		return "signal " + t.Machine().SignalName(ev.Count), true
	case trace.Trigger:
		return trace.TriggerName(ev.Count) + ": " + t.Label(ev.Func), true
	case trace.Stacktrace:
		if ev.Backtrace != nil && ev.Backtrace.Timer {
			return "sample: " + t.StackLabels(ev)[0], true
		}
		return "backtrace: " + t.Label(ev.Func), true
	case trace.SwitchOff:
		return "switched off: " + t.Label(ev.Func), true
	}
	return "", false
}

// Backtrace returns the functions of a stack that was walked, or of the open calls that a trigger asked for, from the
// innermost outwards, and why there are no more: "outermost" if there are none. frames is nil for other events.
func Backtrace(t *trace.Trace, ev *trace.Event) (frames []trace.SourceFrame, end string) {
	switch {
	case ev.Kind == trace.Stacktrace && ev.Backtrace != nil:
		return t.StackSource(ev), ev.Backtrace.End
	case ev.Kind == trace.Trigger && ev.Count == trace.TriggerStackTrace:
		for _, id := range ev.Chain {
			frames = append(frames, t.SourceFrame(id))
		}
		return frames, "outermost"
	}
	return nil, ""
}

// BacktraceLine is a stack in a line, the innermost function first.
func BacktraceLine(frames []trace.SourceFrame, end string) string {
	var b strings.Builder
	for i, f := range frames {
		if i > 0 {
			b.WriteString(" <- ")
		}
		b.WriteString(f.Name)
	}
	if end != "outermost" {
		b.WriteString(" (" + end + ")")
	}
	return b.String()
}

// HasValues tells whether EachValue may have something.
func HasValues(ev *trace.Event) bool {
	return ev.Args != nil || ev.Sys != nil || ev.Result != nil && ev.Kind == trace.Exit
}

// EachValue calls f with the name and the text of each argument that is known of a call at its Entry, and with its
// result at its Exit, under the name [trace.ResultName]: of functions what was captured, as C has it, of system calls
// what strace shows. With json, values are JSON. errno of a call that has failed follows its result, as in "-1 ENOENT"; in
// JSON it is a value of its own.
func EachValue(t *trace.Trace, ev *trace.Event, json bool, f func(name string, value []byte)) {
	if ev.Func.Image == trace.SyscallImage {
		eachOfSyscall(t, ev, json, f)
		return
	}
	c := t.Capture(ev)
	t.EachValue(ev, func(name string, v *arguments.Value, of *trace.Captured) {
		switch result := v == c.Result; {
		case json:
			f(name, v.AppendJSON(nil, of.Words, of.Memory()))
			if e := c.Error(of.Words); result && e != "" {
				f("errno", safetext.AppendJSON(nil, e))
			}
		case result:
			f(name, c.AppendResult(nil, of.Words, of.Memory()))
		default:
			f(name, v.AppendText(nil, of.Words, of.Memory()))
		}
	})
}

func eachOfSyscall(t *trace.Trace, ev *trace.Event, json bool, f func(name string, value []byte)) {
	if ev.Sys == nil || ev.Sys.Open {
		return
	}
	m := t.Made(ev)
	switch ev.Kind {
	case trace.Entry:
		for _, v := range m.Values() {
			if json {
				f(v.Name, v.AppendJSON(nil))
			} else {
				f(v.Name, v.AppendText(nil))
			}
		}
	case trace.Exit:
		text := string(m.AppendResult(nil))
		n, err := strconv.ParseInt(text, 10, 64)
		if number := err == nil && strconv.FormatInt(n, 10) == text; json && !number { // such as 022, of umask
			f(trace.ResultName, safetext.AppendJSON(nil, text))
			return
		}
		f(trace.ResultName, []byte(text))
	}
}

// AppendValues appends what EachValue has to text: name=value, name=value. A result stands alone.
func AppendValues(b []byte, t *trace.Trace, ev *trace.Event) []byte {
	sep := ""
	EachValue(t, ev, false, func(name string, value []byte) {
		b = append(b, sep...)
		if ev.Kind == trace.Entry {
			b = append(append(b, name...), '=')
		}
		b, sep = append(b, value...), ", "
	})
	return b
}
