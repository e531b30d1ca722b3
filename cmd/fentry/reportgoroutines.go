package main

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/fentry-dev/fentry/trace"
)

// report --goroutines has a line for each goroutine of a Go program: what it began with and who made it, and the time of
// its outermost calls, divided into that in which it ran and that in which it was parked.

// goroutineLine is a line of the table, and of it as JSON. Times are in ns.
type goroutineLine struct {
	PID       int    `json:"pid"`
	Goroutine uint64 `json:"goroutine"`
	Calls     uint64 `json:"calls"`
	Total     int64  `json:"total_ns"`
	Running   *int64 `json:"running_ns"` // null: it is not known
	Waiting   *int64 `json:"waiting_ns"`
	Made      *int64 `json:"made_ns"` // when; null, with what follows: the trace does not tell
	Function  string `json:"function,omitempty"`
	Parent    uint64 `json:"parent,omitempty"` // 0: it is no goroutine
	By        string `json:"made_in,omitempty"`
}

func (c *reportCmd) goroutines(a *app, cmd *cobra.Command, t *trace.Trace, sel *selection) (err error) {
	if err := c.resolve(cmd, t, sel); err != nil {
		return err
	}
	if how := untimed(t); how != "" {
		return fmt.Errorf("%s: recorded with %s: there are no times", t.Dir, how)
	}
	tasks := sel.walk.Tasks
	if tasks == nil {
		tasks = t.Tasks
	}
	tasks = slices.DeleteFunc(slices.Clone(tasks), func(k *trace.Task) bool { return k.Goroutine == 0 })
	if len(tasks) == 0 {
		return fmt.Errorf("%s: no goroutines: it is not the trace of a Go program", t.Dir)
	}
	rows, err := t.Report(trace.ReportOptions{
		Tasks: tasks, PerTask: true, From: sel.walk.From, To: sel.walk.To, Calls: sel.counted(), Waits: true,
	})
	if err != nil {
		return pathError(err)
	}
	lines := goroutineLines(t, tasks, rows)
	if c.top > 0 && len(lines) > c.top {
		lines = lines[:c.top]
	}
	out, err := a.open()
	if err != nil {
		return err
	}
	defer func() { err = out.close(err) }()
	if c.json {
		enc := jsonLines(out)
		for i := range lines {
			if err := enc.Encode(&lines[i]); err != nil {
				return err
			}
		}
	} else if err := writeGoroutines(out, t, lines); err != nil {
		return err
	}
	reportLost(a, t)
	return nil
}

// goroutineLines are the lines of goroutines, the longest first.
func goroutineLines(t *trace.Trace, tasks []*trace.Task, rows []trace.FuncStat) []goroutineLine {
	at := map[*trace.Task]int{}
	lines := make([]goroutineLine, len(tasks))
	for i, k := range tasks {
		at[k] = i
		lines[i].PID, lines[i].Goroutine = k.PID, k.Goroutine
		if m, ok := t.Birth(k); ok {
			lines[i].Made, lines[i].Function, lines[i].Parent, lines[i].By = &m.Time, m.Function, m.Parent, m.By
		}
	}
	for i := range rows {
		r := &rows[i]
		l := &lines[at[r.Task]]
		l.Calls += r.Calls
		l.Total += r.Self // those of all calls are the time of the outermost
		if r.Running >= 0 && l.Waiting == nil {
			l.Waiting = new(int64)
		}
		if t.Parks(r.Func) {
			*l.Waiting += r.Total
		}
	}
	for i := range lines {
		if l := &lines[i]; l.Waiting != nil {
			running := l.Total - *l.Waiting
			l.Running = &running
		}
	}
	slices.SortStableFunc(lines, func(a, b goroutineLine) int { return cmp.Compare(b.Total, a.Total) })
	return lines
}

func writeGoroutines(out *output, t *trace.Trace, lines []goroutineLine) error {
	several := len(t.Processes) > 1
	var tab table
	if several {
		tab.column("PID", true)
	}
	for _, name := range []string{"GOROUTINE", "CALLS", "TOTAL", "RUNNING", "WAITING"} {
		tab.column(name, true)
	}
	tab.column("FUNCTION", false)
	tab.column("MADE BY", true)
	tab.column("IN", false)
	part := func(ns *int64) string {
		if ns == nil {
			return "-"
		}
		return durationCell(*ns)
	}
	for i := range lines {
		l := &lines[i]
		var cells []string
		if several {
			cells = append(cells, fmt.Sprint(l.PID))
		}
		parent := "-"
		if l.Parent != 0 {
			parent = fmt.Sprint(l.Parent)
		}
		tab.row(append(cells, fmt.Sprint(l.Goroutine), grouped(l.Calls), durationCell(l.Total), part(l.Running), part(l.Waiting),
			cmp.Or(l.Function, "-"), parent, cmp.Or(l.By, "-"))...)
	}
	return tab.write(out, out.paint)
}
