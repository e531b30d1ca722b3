// Package csv writes the calls of a trace as comma-separated values, a line each, in the order in which they end, below
// a line with the names of the columns. Values are quoted as RFC 4180 says; lines end in LF.
//
//	start     ns since the trace's start, that of the call's end if its beginning is not in the trace; of a trace
//	          without a clock, a number by which calls are in order
//	dur       ns from entry to exit; empty if unknown
//	self      ns in the function itself; empty if unknown
//	pid, tid  process and thread
//	comm      name of the thread at the end of the call
//	depth     number of open calls around it
//	stack     number of the stack in the process it was made on
//	function  its name
//	image     path of its program image
//	caller    function of the innermost open call around it
//	end       exit, unwound or unfinished; entry: the function tracer records no ends
//	args      arguments that were recorded, of functions as C has them, of system calls as strace: n=3, s="x"
//	result    the result, if it was recorded
//
// Events that are no call's are left out.
package csv

import (
	"encoding/csv"
	"io"
	"strconv"

	"github.com/fentry-dev/fentry/export"
	"github.com/fentry-dev/fentry/internal/safetext"
	"github.com/fentry-dev/fentry/trace"
)

// Columns are the names of the columns.
var Columns = []string{
	"start", "dur", "self", "pid", "tid", "comm", "depth", "stack", "function", "image", "caller", "end",
	"args", "result",
}

// A place is where a call is open.
type place struct {
	task  *trace.Task
	stack uint64
	depth int
}

// A writer has what has to be remembered of calls until they end.
type writer struct {
	t    *trace.Trace
	args map[place]string // of open calls of which there are any
}

// enter takes the beginning of a call.
func (w *writer) enter(ev *trace.Event) {
	at := place{ev.Task, ev.Stack, ev.Depth}
	delete(w.args, at) // of one whose end is not in the trace
	if !export.HasValues(ev) {
		return
	}
	if text := string(export.AppendValues(nil, w.t, ev)); text != "" {
		if w.args == nil {
			w.args = map[place]string{}
		}
		w.args[at] = text
	}
}

// values returns what is known of the arguments and the result of a call that ends.
func (w *writer) values(ev *trace.Event) (args, result string) {
	at := place{ev.Task, ev.Stack, ev.Depth}
	if args = w.args[at]; args != "" {
		delete(w.args, at)
	}
	if export.HasValues(ev) {
		result = string(export.AppendValues(nil, w.t, ev))
	}
	return safetext.Line(args), safetext.Line(result)
}

// Write writes the calls.
func Write(w io.Writer, s *export.Source) (sum export.Summary, err error) {
	c := csv.NewWriter(w)
	names := export.Cache[string]{Make: func(id trace.FuncID) string {
		if id.ID == 0 {
			return ""
		}
		return safetext.Line(s.Trace.Name(id))
	}}
	untimed, values := s.Trace.Clockless(), &writer{t: s.Trace}
	row := append([]string(nil), Columns...)
	if err := c.Write(row); err != nil {
		return sum, err
	}
	err = s.Walk(s.Tasks, func(ev *trace.Event) error {
		start, dur, self, args, result := ev.Time, "", "", "", ""
		switch ev.Kind {
		case trace.Entry:
			if ev.Flags&trace.FlagEntryOnly == 0 {
				values.enter(ev)
				return nil
			}
		case trace.Exit, trace.Unwound, trace.Unfinished:
			switch {
			case ev.Flags&trace.FlagResumed != 0:
				sum.Leave(export.Resumed, 1)
				return nil
			case ev.Flags&trace.FlagNoEntry == 0:
				start -= ev.Dur
				args, result = values.values(ev)
				if !untimed {
					dur, self = strconv.FormatInt(ev.Dur, 10), strconv.FormatInt(ev.Self, 10)
				}
			}
		default:
			sum.LeaveEvent(ev)
			return nil
		}
		sum.Calls++
		image := ""
		if int(ev.Func.Image) < len(s.Trace.Images) {
			image = safetext.Line(s.Trace.Images[ev.Func.Image].Path)
		}
		row = append(row[:0], strconv.FormatInt(start, 10), dur, self, strconv.Itoa(ev.Task.PID), strconv.Itoa(ev.Task.TID),
			safetext.Line(ev.Comm), strconv.Itoa(ev.Depth), strconv.FormatUint(ev.Stack, 10), names.Get(ev.Func), image,
			names.Get(ev.Caller), ev.Kind.String(), args, result)
		return c.Write(row)
	})
	if err != nil {
		return sum, err
	}
	c.Flush()
	return sum, c.Error()
}
