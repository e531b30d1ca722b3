package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fentry-dev/fentry/internal/safetext"
	"github.com/fentry-dev/fentry/patch"
	"github.com/fentry-dev/fentry/trace"
)

type reportCmd struct {
	filterFlags
	sort    []string
	fields  []string
	top     int
	task    bool
	process bool
	srcline bool
	json    bool
	never   bool
	sys     bool
}

func newReportCmd(a *app) *cobra.Command {
	var c reportCmd
	cmd := &cobra.Command{
		Use:   "report [options] [DIR]",
		Short: "print a table of functions: calls, times",
		Long: `report prints one line for each function that was called: the number of calls,
the total time from entry to exit, the time in the function itself (self), and
how long single calls took.

Only the outermost of recursive calls counts towards the total, so no total
exceeds the time the threads ran. Average, minimum, maximum and 99th percentile
are those of all calls.

If record switched functions off (--overhead), OFF FROM is the time from which
calls of a function may be missing, and >= marks what is a lower bound.`,
		Example: `  fentry report                        by total time
  fentry report -s self                where the time goes
  fentry report -s calls -n 10         the ten functions called most often
  fentry report -s p99 -f calls,avg,p99,max
  fentry report -s wait -f calls,total,cpu,wait   who works and who waits
  fentry report --task                 for each thread
  fentry report --process -F main      for each process, by its arguments
  fentry report --time 1s,2s           of one second
  fentry report -G parse_term          what was called in that function
  fentry report --never                the functions that were not called
  fentry report --syscalls             which system calls were made, as strace -c
  fentry report --json | jq -s 'map(select(.calls > 1000))'`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return c.run(a, cmd, args) },
	}
	c.filterFlags.add(cmd)
	f := cmd.Flags()
	f.StringSliceVarP(&c.sort, "sort", "s", []string{"total"},
		"sort by `KEY`[,KEY...]: "+strings.Join(reportNames(), ", ")+", name; largest first")
	f.StringSliceVarP(&c.fields, "fields", "f", []string{"calls", "total", "self", "avg", "min", "max", "p99"},
		"print `FIELD`[,FIELD...]: "+strings.Join(reportNames(), ", "))
	f.IntVarP(&c.top, "top", "n", 0, "print only the first `N` lines; 0: all")
	f.BoolVar(&c.process, "process", false, "print one line per function and process")
	f.BoolVar(&c.task, "task", false, "print one line per function and thread")
	f.BoolVar(&c.srcline, "srcline", false, "show where functions begin in the source (needs debug information)")
	f.BoolVar(&c.never, "never", false, "list the traced functions that were never called")
	f.BoolVar(&c.sys, "syscalls", false, "print strace's table of system calls: time, calls, errors")
	f.BoolVar(&c.json, "json", false, "one JSON object per line, one per function")
	registerFieldCompletion(cmd, "sort", append(reportNames(), "name"))
	registerFieldCompletion(cmd, "fields", reportNames())
	return cmd
}

// A reportField is a column of the report.
type reportField struct {
	name  string
	value func(*trace.FuncStat) int64 // for sorting; -1 when not known
	count bool                        // a number, not a time
	least bool                        // it only grows with more calls
	part  bool                        // a part of total, which can be known in part
}

var reportFields = []reportField{
	{name: "calls", count: true, least: true, value: func(s *trace.FuncStat) int64 { return int64(s.Calls) }},
	{name: "total", least: true, value: func(s *trace.FuncStat) int64 { return s.Total }},
	{name: "self", least: true, value: func(s *trace.FuncStat) int64 { return s.Self }},
	{name: "cpu", part: true, least: true, value: func(s *trace.FuncStat) int64 { return s.CPU }},
	{name: "wait", part: true, least: true, value: func(s *trace.FuncStat) int64 { return s.Wait }},
	{name: "avg", value: func(s *trace.FuncStat) int64 { return s.Avg }},
	{name: "min", value: func(s *trace.FuncStat) int64 { return s.Min }},
	{name: "max", value: func(s *trace.FuncStat) int64 { return s.Max }},
	{name: "p99", value: func(s *trace.FuncStat) int64 { return s.P99 }},
	{name: "stddev", value: func(s *trace.FuncStat) int64 { return int64(s.StdDev) }},
	{name: "unwound", count: true, least: true, value: func(s *trace.FuncStat) int64 { return int64(s.Unwound) }},
	{name: "unfinished", count: true, least: true, value: func(s *trace.FuncStat) int64 { return int64(s.Unfinished) }},
}

func reportNames() []string {
	var names []string
	for i := range reportFields {
		names = append(names, reportFields[i].name)
	}
	return names
}

func findReportField(name string) *reportField {
	for i := range reportFields {
		if reportFields[i].name == name {
			return &reportFields[i]
		}
	}
	return nil
}

func (c *reportCmd) run(a *app, cmd *cobra.Command, args []string) (err error) {
	less, err := c.order(cmd)
	if err != nil {
		return err
	}
	var fields []*reportField
	for _, name := range c.fields {
		f := findReportField(name)
		if f == nil {
			return usagef(cmd, "--fields: no field %q; there are %s", name, strings.Join(reportNames(), ", "))
		}
		fields = append(fields, f)
	}
	if c.process && c.task {
		return usagef(cmd, "--process and --task are mutually exclusive")
	}
	if c.top < 0 {
		return usagef(cmd, "--top %d: not a number of lines", c.top)
	}
	if c.never {
		for _, name := range []string{"task", "process", "tid", "graph", "threshold", "time", "fields", "sort"} {
			if cmd.Flags().Changed(name) {
				return usagef(cmd, "--never and --%s are mutually exclusive", name)
			}
		}
	}
	if c.sys {
		for _, name := range []string{"never", "task", "process", "fields", "sort", "srcline"} {
			if cmd.Flags().Changed(name) {
				return usagef(cmd, "--syscalls and --%s are mutually exclusive", name)
			}
		}
	}
	sel, err := c.parse(cmd)
	if err != nil {
		return err
	}
	t, err := c.open(a, cmd, args)
	if err != nil {
		return err
	}
	defer t.Close()
	if err := c.resolve(cmd, t, &sel); err != nil {
		return err
	}
	if err := sel.check(t); err != nil {
		return err
	}
	if how := untimed(t); how != "" {
		if c.timed(cmd) || tracerOf(t) != patch.Function.String() && !c.never {
			a.notef("fentry: %s: recorded with %s: there are no times", t.Dir, how)
		}
		if !cmd.Flags().Changed("fields") {
			fields = []*reportField{findReportField("calls")}
		}
		if !cmd.Flags().Changed("sort") {
			less = func(a, b trace.FuncStat) int { return cmp.Compare(b.Calls, a.Calls) }
		}
	}
	sel.counts = true
	if err := sel.prepare(t); err != nil {
		return pathError(err)
	}
	o := trace.ReportOptions{Tasks: sel.walk.Tasks, PerTask: c.task, PerProcess: c.process,
		From: sel.walk.From, To: sel.walk.To, Calls: sel.counted(), Waits: c.json || c.asked("cpu", "wait"),
	}
	if how := untimed(t); c.never || how != "" || tracerOf(t) == patch.Profile.String() {
		// Tables have functions, not calls, which are counted apart from each other, whichever are shown.
		o.Calls.Match = nil
	}
	rows, err := t.Report(o)
	if err != nil {
		return pathError(err)
	}
	if c.never {
		if rows, err = t.Never(rows); err != nil {
			return fmt.Errorf("%s: %w", t.Dir, err)
		}
		fields = nil
		less = func(trace.FuncStat, trace.FuncStat) int { return 0 }
	}
	if match := sel.calls.Match; match != nil {
		rows = slices.DeleteFunc(rows, func(s trace.FuncStat) bool { return !match(s.Func) })
	}
	sel.warn(a, t)
	if slices.SortStableFunc(rows, less); c.sys {
		rows = onlySyscalls(rows)
	}
	if c.top > 0 && len(rows) > c.top && (!c.sys || c.json) {
		rows = rows[:c.top]
	}
	var src *sources
	if c.srcline {
		src = newSources(a, t)
	}
	out, err := a.open()
	if err != nil {
		return err
	}
	defer func() { err = out.close(err) }()
	if c.json {
		err = c.writeJSON(out, t, rows, src)
	} else if c.sys {
		err = writeSyscalls(out, t, rows, c.top)
	} else {
		err = c.writeTable(out, t, rows, fields, src)
	}
	if err == nil {
		c.explain(a, t)
		if c.asked("cpu", "wait") && untimed(t) == "" {
			explainWaits(a, t, slices.ContainsFunc(rows, func(s trace.FuncStat) bool { return s.Unknown > 0 }))
		}
	}
	return err
}

// asked tells whether one of the columns is to be shown, or to be sorted by.
func (c *reportCmd) asked(names ...string) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		return slices.Contains(c.fields, name) || slices.Contains(c.sort, name)
	})
}

// explain says what the table does not.
func (c *reportCmd) explain(a *app, t *trace.Trace) {
	if o := leavingOut(t); c.never && len(o) > 0 {
		a.notef("fentry: %s: calls were left out by %s, so these functions may have been called", t.Dir, strings.Join(o, ", "))
	}
	if !c.never {
		reportEmpty(a, t)
	}
	reportLost(a, t)
}

// untimed says what a trace without times was recorded with; "": there are times.
func untimed(t *trace.Trace) string {
	tracer := tracerOf(t)
	switch {
	case t.Clockless():
		return "--clock none"
	case tracer == patch.Function.String() || tracer == patch.Count.String():
		return "the " + tracer + " tracer"
	}
	return ""
}

// timed tells whether the user asks for a time, as a column or to sort by.
func (c *reportCmd) timed(cmd *cobra.Command) bool {
	asked := func(flag string, names []string) bool {
		return cmd.Flags().Changed(flag) && slices.ContainsFunc(names, func(name string) bool {
			f := findReportField(name)
			return f != nil && !f.count
		})
	}
	return asked("fields", c.fields) || asked("sort", c.sort)
}

// order makes the comparison of the sort keys; ties are left in the order they
// have, by total time.
func (c *reportCmd) order(cmd *cobra.Command) (func(a, b trace.FuncStat) int, error) {
	var keys []*reportField
	for _, name := range c.sort {
		f := findReportField(name)
		if f == nil && name != "name" {
			return nil, usagef(cmd, "--sort: no key %q; there are %s, name", name, strings.Join(reportNames(), ", "))
		}
		keys = append(keys, f)
	}
	return func(a, b trace.FuncStat) int {
		for _, k := range keys {
			if k == nil {
				if d := strings.Compare(a.Name, b.Name); d != 0 {
					return d
				}
				continue
			}
			if va, vb := k.value(&a), k.value(&b); va != vb {
				if va > vb {
					return -1
				}
				return 1
			}
		}
		return 0
	}, nil
}

func (c *reportCmd) writeTable(
	out *output, t *trace.Trace, rows []trace.FuncStat, fields []*reportField, src *sources,
) error {
	var tab table
	off := len(t.SwitchedOff) > 0
	for _, f := range fields {
		tab.column(strings.ToUpper(f.name), true)
	}
	if off {
		tab.column("OFF FROM", true)
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
		from, least := t.OffFrom(r.Func)
		for _, f := range fields {
			v := f.value(r)
			cell := durationCell(v)
			switch {
			case v < 0:
				cells = append(cells, "-")
				continue
			case f.count:
				cell = grouped(uint64(v))
			case f.part && nothingKnown(r.Unknown, r.Total):
				cells = append(cells, "-")
				continue
			case f.part && r.Unknown > 0 && !least:
				cell = ">=" + cell
			}
			if least && f.least {
				cell = ">=" + cell
			}
			cells = append(cells, cell)
		}
		switch {
		case off && least && !t.Clockless():
			cells = append(cells, durationCell(from))
		case off:
			cells = append(cells, "")
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
	PID        int     `json:"pid,omitempty"`
	TID        int     `json:"tid,omitempty"`
	Comm       string  `json:"comm,omitempty"`
	Command    string  `json:"command,omitempty"` // with --process
	Calls      uint64  `json:"calls"`
	Total      *int64  `json:"total_ns"`
	Self       *int64  `json:"self_ns"`
	CPU        *int64  `json:"cpu_ns"`     // with wait_ns and unknown_ns, all of total_ns
	Wait       *int64  `json:"wait_ns"`    // off a processor
	Unknown    *int64  `json:"unknown_ns"` // one of the two
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

func (c *reportCmd) writeJSON(out *output, t *trace.Trace, rows []trace.FuncStat, src *sources) error {
	enc := json.NewEncoder(safetext.JSONWriter(out))
	enc.SetEscapeHTML(false)
	known := func(v int64) *int64 {
		if v < 0 {
			return nil
		}
		return &v
	}
	for i := range rows {
		r := &rows[i]
		fn := t.Func(r.Func)
		l := reportLine{
			Name: r.Name, Symbol: fn.Name, Source: src.line(r.Func),
			Calls: r.Calls, Total: known(r.Total), Self: known(r.Self), Avg: known(r.Avg),
			CPU: known(r.CPU), Wait: known(r.Wait), Unknown: known(r.Unknown),
			Min: known(r.Min), Max: known(r.Max), P99: known(r.P99), StdDev: known(int64(r.StdDev)),
			Unwound: r.Unwound, Unfinished: r.Unfinished,
		}
		if fn.Addr != 0 {
			l.Address = fmt.Sprintf("%#x", fn.Addr)
		}
		if int(r.Func.Image) < len(t.Images) {
			l.Image = t.Images[r.Func.Image].Path
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
		if from, off := t.OffFrom(r.Func); off {
			l.OffFrom = &from
		}
		if err := enc.Encode(l); err != nil {
			return err
		}
	}
	return nil
}

// registerFieldCompletion completes comma-separated lists of names.
func registerFieldCompletion(cmd *cobra.Command, flag string, names []string) {
	cmd.RegisterFlagCompletionFunc(flag, func(
		_ *cobra.Command, _ []string, toComplete string,
	) ([]string, cobra.ShellCompDirective) {
		done := ""
		if i := strings.LastIndexByte(toComplete, ','); i >= 0 {
			done = toComplete[:i+1]
		}
		var out []string
		for _, n := range names {
			out = append(out, done+n)
		}
		return out, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	})
}
