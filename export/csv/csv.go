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
	untimed := s.Trace.Clockless()
	row := append([]string(nil), Columns...)
	if err := c.Write(row); err != nil {
		return sum, err
	}
	err = s.Walk(s.Tasks, func(ev *trace.Event) error {
		start, dur, self := ev.Time, "", ""
		sum.LeaveValues(ev)
		switch ev.Kind {
		case trace.Entry:
			if ev.Flags&trace.FlagEntryOnly == 0 {
				return nil
			}
		case trace.Exit, trace.Unwound, trace.Unfinished:
			switch {
			case ev.Flags&trace.FlagResumed != 0:
				sum.Leave(export.Resumed, 1)
				return nil
			case ev.Flags&trace.FlagNoEntry == 0:
				start -= ev.Dur
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
			names.Get(ev.Caller), ev.Kind.String())
		return c.Write(row)
	})
	if err != nil {
		return sum, err
	}
	c.Flush()
	return sum, c.Error()
}
