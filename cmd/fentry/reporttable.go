package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fentry-dev/fentry/trace"
)

// cell prints a column of a row; least says that the function was switched off for a time.
func (f *reportField) cell(r *trace.FuncStat, least bool) string {
	v := f.value(r)
	if v < 0 || f.part && nothingKnown(r.Unknown, r.Total) {
		return "-"
	}
	cell := durationCell(v)
	if f.count {
		cell = grouped(uint64(v))
	}
	if least && f.least || f.part && r.Unknown > 0 {
		return ">=" + cell
	}
	return cell
}

func (c *reportCmd) writeTable(
	out *output, read reading, rows []trace.FuncStat, fields []*reportField, src *sources,
) error {
	var tab table
	off := slices.ContainsFunc(read.traces, func(t *trace.Trace) bool { return len(t.SwitchedOff) > 0 })
	sideBySide := len(read.traces) > 1 && (c.task || c.process)
	for _, f := range fields {
		tab.column(strings.ToUpper(f.name), true)
	}
	if off {
		tab.column("OFF FROM", true)
	}
	if sideBySide {
		tab.column("TRACE", false)
	}
	if c.task {
		tab.column("THREAD", false)
	}
	if c.process {
		tab.column("PID", true)
		tab.column("COMMAND", false)
	}
	tab.column("FUNCTION", false)
	if src != nil {
		tab.column("SOURCE", false)
	}
	for i := range rows {
		r := &rows[i]
		var cells []string
		t, fn := read.origin(r.Func)
		from, least := t.OffFrom(fn)
		for _, f := range fields {
			cells = append(cells, f.cell(r, least))
		}
		switch {
		case off && least && !t.Clockless():
			cells = append(cells, durationCell(from))
		case off:
			cells = append(cells, "")
		}
		if sideBySide {
			cells = append(cells, printable(read.of(r.Task).Dir))
		}
		if c.task {
			cells = append(cells, r.Task.String())
		}
		if c.process {
			cells = append(cells, fmt.Sprint(r.Task.PID), short(commandLine(r.Task.Process), shortCommand))
		}
		cells = append(cells, r.Name)
		if src != nil {
			cells = append(cells, src.line(r.Func))
		}
		tab.row(cells...)
	}
	return tab.write(out, out.paint)
}

// reportLine is a line of report --json. Times are in nanoseconds; those that the tracer
// did not measure are null.
type reportLine struct {
	Name       string  `json:"name"`
	Symbol     string  `json:"symbol,omitempty"`
	Address    string  `json:"address,omitempty"`
	Image      string  `json:"image,omitempty"`
	Source     string  `json:"source,omitempty"`
	Trace      string  `json:"trace,omitempty"` // of several, with --task and --process
	PID        int     `json:"pid,omitempty"`
	TID        int     `json:"tid,omitempty"`
	Comm       string  `json:"comm,omitempty"`
	Command    string  `json:"command,omitempty"` // with --process
	Calls      uint64  `json:"calls"`
	Total      *int64  `json:"total_ns"`
	Self       *int64  `json:"self_ns"`
	CPU        *int64  `json:"cpu_ns"`               // with wait_ns and unknown_ns, all of total_ns
	Wait       *int64  `json:"wait_ns"`              // off a processor
	Unknown    *int64  `json:"unknown_ns"`           // one of the two
	Running    *int64  `json:"running_ns,omitempty"` // with waiting_ns, all of total_ns
	Waiting    *int64  `json:"waiting_ns,omitempty"` // goroutines were parked
	Avg        *int64  `json:"avg_ns"`
	Min        *int64  `json:"min_ns"`
	Max        *int64  `json:"max_ns"`
	P99        *int64  `json:"p99_ns"`
	StdDev     *int64  `json:"stddev_ns"`
	Unwound    uint64  `json:"unwound"`
	Unfinished uint64  `json:"unfinished"`
	NoEntry    *uint64 `json:"no_entry,omitempty"`
	Errors     *uint64 `json:"errors,omitempty"`      // of system calls
	OffFrom    *int64  `json:"off_from_ns,omitempty"` // the recorder switched the function off: there may be more calls
}

func (c *reportCmd) writeJSON(out *output, read reading, rows []trace.FuncStat, src *sources) error {
	enc := jsonLines(out)
	for i := range rows {
		l := c.line(read, &rows[i], src)
		if len(read.traces) > 1 && rows[i].Task != nil {
			l.Trace = read.of(rows[i].Task).Dir
		}
		if err := enc.Encode(l); err != nil {
			return err
		}
	}
	return nil
}

// line is a row for programs.
func (c *reportCmd) line(read reading, r *trace.FuncStat, src *sources) reportLine {
	known := func(v int64) *int64 {
		if v < 0 {
			return nil
		}
		return &v
	}
	t, id := read.origin(r.Func)
	fn := t.Func(id)
	l := reportLine{
		Name: r.Name, Symbol: fn.Name, Source: src.line(r.Func),
		Calls: r.Calls, Total: known(r.Total), Self: known(r.Self), Avg: known(r.Avg),
		CPU: known(r.CPU), Wait: known(r.Wait), Unknown: known(r.Unknown),
		Running: known(r.Running), Waiting: known(r.Waiting),
		Min: known(r.Min), Max: known(r.Max), P99: known(r.P99), StdDev: known(int64(r.StdDev)),
		Unwound: r.Unwound, Unfinished: r.Unfinished,
	}
	if fn.Addr != 0 {
		l.Address = fmt.Sprintf("%#x", fn.Addr)
	}
	if int(id.Image) < len(t.Images) {
		l.Image = t.Images[id.Image].Path
	}
	if r.Task != nil {
		l.PID, l.Comm = r.Task.PID, r.Task.Comm
		if c.process {
			l.Command = commandLine(r.Task.Process)
		} else {
			l.TID = r.Task.TID
		}
	}
	if r.NoEntry > 0 {
		l.NoEntry = &r.NoEntry
	}
	if r.Func.Image == trace.SyscallImage {
		l.Errors = &r.Errors
	}
	if from, off := t.OffFrom(id); off {
		l.OffFrom = &from
	}
	return l
}
