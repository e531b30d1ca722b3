package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

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
	each    bool // goroutine
	srcline bool
	json    bool
	never   bool
	sys     bool

	diff      string
	histogram string
	hdr       bool

	group      string
	conditions []string
	stacks     string
}

func newReportCmd(a *app) *cobra.Command {
	var c reportCmd
	cmd := &cobra.Command{
		Use:   "report [options] [DIR...]",
		Short: "print a table of functions: calls, times",
		Long: `report prints one line for each function that was called: the number of calls,
the total time from entry to exit, the time in the function itself (self), and
how long single calls took.

Only the outermost of recursive calls counts towards the total, so no total
exceeds the time the threads ran. Average, minimum, maximum and 99th percentile
are those of all calls.

With several traces, or directories of them, a line is that of the functions with
one name in all of them; with --process and --task, those of each.

If record switched functions off (--overhead), OFF FROM is the time from which
calls of a function may be missing, and >= marks what is a lower bound.`,
		Example: `  fentry report                        by total time
  fentry report -s self                where the time goes
  fentry report -s calls -n 10         the ten functions called most often
  fentry report -s p99 -f calls,avg,p99,max
  fentry report -s wait -f calls,total,cpu,wait   who works and who waits
  fentry report --task                 for each thread
  fentry report --goroutines           each goroutine of a Go program: what it is, how long it ran and waited
  fentry report --goroutine 17         what that goroutine did; without a number as --goroutines
  fentry report --process -F main      for each process, by its arguments
  fentry report --time 1s,2s           of one second
  fentry report -G parse_term          what was called in that function
  fentry report --never                the functions that were not called
  fentry report --diff old.data        what takes more time than in an older trace, what less
  fentry report --histogram parse_term how long its calls took
  fentry report -g handle@arg1         by what handle was called with (record -A handle)
  fentry report --stacks malloc | flamegraph.pl   who calls it, through whom
  fentry report -F own traces          of all traces in a directory, such as those of go test -exec
  fentry report --syscalls             which system calls were made, as strace -c
  fentry report --json | jq -s 'map(select(.calls > 1000))'`,
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
	f.BoolVar(&c.each, "goroutines", false, "print one line per goroutine: its function, who made it, how long it ran and waited")
	f.BoolVar(&c.srcline, "srcline", false, "show where functions begin in the source (needs debug information)")
	f.BoolVar(&c.never, "never", false, "list the traced functions that were never called")
	f.BoolVar(&c.sys, "syscalls", false, "print strace's table of system calls: time, calls, errors")
	diffFlag(cmd, &c.diff)
	f.StringVar(&c.histogram, "histogram", "", "print how long the calls of each function took that matches `PAT`, by powers of two")
	f.BoolVar(&c.hdr, "hdr", false, "with --histogram: print percentiles as HdrHistogram's tools read them (.hgrm)")
	f.StringVarP(&c.group, "group-by", "g", "", "print one line for each value of an argument or result that was recorded: "+
		"`FUNC@NAME`, FUNC@arg1 or FUNC@retval")
	conditionFlag(cmd, &c.conditions)
	f.StringVar(&c.stacks, "stacks", "", "print who calls the functions that match `PAT`, by the stacks that record --stack took: "+
		"one folded line for each, with the number of calls")
	f.BoolVar(&c.json, "json", false, "one JSON object per line, one per function")
	registerFieldCompletion(cmd, "sort", append(reportNames(), "name"))
	registerFieldCompletion(cmd, "fields", reportNames())
	return cmd
}

// reportArgs has --goroutine without a number be --goroutines, as the flag parser knows no option whose value may be left out
// and may follow a blank.
func reportArgs(args []string) []string {
	if len(args) == 0 || args[0] != "report" {
		return args
	}
	out := append([]string(nil), args...)
	for i, w := range out {
		if w == "--" {
			return out
		}
		if w == "--goroutine" && (i+1 == len(out) || out[i+1] == "" || out[i+1][0] < '0' || out[i+1][0] > '9') {
			out[i] = "--goroutines"
		}
	}
	return out
}

func (c *reportCmd) run(a *app, cmd *cobra.Command, args []string) (err error) {
	shown, err := c.shown(cmd)
	if err != nil {
		return err
	}
	if err := c.check(cmd); err != nil {
		return err
	}
	sel, err := c.parse(cmd)
	if err != nil {
		return err
	}
	read, err := c.openAll(a, cmd, args)
	if err != nil {
		return err
	}
	defer read.close()
	if len(read.traces) > 1 {
		return c.runSeveral(a, cmd, read, &shown)
	}
	t := read.traces[0]
	if c.group != "" {
		return c.groups(a, cmd, t, &sel)
	}
	if c.stacks != "" {
		return c.runStacks(a, cmd, t, &sel)
	}
	if c.each {
		return c.goroutines(a, cmd, t, &sel)
	}
	rows, err := c.count(a, cmd, t, &sel, &shown)
	if err != nil {
		return err
	}
	sel.warn(a, t)
	switch {
	case c.diff != "":
		return c.writeDiff(a, cmd, t, rows, &shown)
	case c.histogram != "":
		return c.writeHistograms(a, cmd, t, rows, shown.less)
	}
	if err = c.write(a, read, rows, &shown); err == nil {
		c.explain(a, t, rows)
	}
	return err
}

// write prints the rows.
func (c *reportCmd) write(a *app, read reading, rows []trace.FuncStat, shown *reportView) (err error) {
	if slices.SortStableFunc(rows, shown.less); c.sys {
		rows = onlySyscalls(rows)
	}
	if c.top > 0 && len(rows) > c.top && (!c.sys || c.json) {
		rows = rows[:c.top]
	}
	var src *sources
	if c.srcline {
		src = newSources(a, read)
	}
	out, err := a.open()
	if err != nil {
		return err
	}
	defer func() { err = out.close(err) }()
	switch {
	case c.json:
		return c.writeJSON(out, read, rows, src)
	case c.sys:
		return writeSyscalls(out, read.traces[0], rows, c.top)
	}
	return c.writeTable(out, read, rows, shown.fields, src)
}

// check says what cannot be asked for at once.
func (c *reportCmd) check(cmd *cobra.Command) error {
	exclusive := func(flag string, others ...string) error {
		for _, name := range others {
			if cmd.Flags().Changed(name) {
				return usagef(cmd, "--%s and --%s are mutually exclusive", flag, name)
			}
		}
		return nil
	}
	if err := c.checkGroups(cmd); err != nil {
		return err
	}
	switch {
	case c.process && c.task:
		return usagef(cmd, "--process and --task are mutually exclusive")
	case c.top < 0:
		return usagef(cmd, "--top %d: not a number of lines", c.top)
	case c.each:
		return exclusive("goroutines", "never", "task", "process", "fields", "sort", "diff", "histogram", "srcline", "syscalls",
			"filter", "notrace", "graph", "graph-notrace", "threshold")
	case c.never:
		return exclusive("never", "task", "process", "tid", "goroutine", "graph", "threshold", "time", "fields", "sort", "diff",
			"histogram")
	case c.stacks != "":
		return exclusive("stacks", "never", "task", "process", "fields", "sort", "srcline", "syscalls", "diff", "histogram", "filter",
			"notrace", "graph", "graph-notrace", "threshold")
	case c.diff != "":
		return exclusive("diff", "histogram", "task", "process", "tid", "pid", "goroutine", "syscalls", "srcline")
	case c.histogram != "":
		return exclusive("histogram", "task", "process", "fields", "syscalls", "srcline")
	case c.hdr:
		return usagef(cmd, "--hdr is for --histogram PAT")
	case c.sys:
		return exclusive("syscalls", "never", "task", "process", "fields", "sort", "srcline")
	}
	return nil
}

// count returns the rows of a trace's functions that the selection chose. What the trace does not have is taken out of
// what is shown, and the user is told.
func (c *reportCmd) count(
	a *app, cmd *cobra.Command, t *trace.Trace, sel *selection, shown *reportView,
) ([]trace.FuncStat, error) {
	if err := c.resolve(cmd, t, sel); err != nil {
		return nil, err
	}
	if err := sel.check(t); err != nil {
		return nil, err
	}
	if how := untimed(t); how != "" {
		if c.timed(cmd) || tracerOf(t) != patch.Function.String() && !c.never {
			a.notef("fentry: %s: recorded with %s: there are no times", t.Dir, how)
		}
		shown.untimed(cmd)
	}
	sel.counts = true
	if err := sel.prepare(t); err != nil {
		return nil, pathError(err)
	}
	o := trace.ReportOptions{Tasks: sel.walk.Tasks, PerTask: c.task, PerProcess: c.process,
		From: sel.walk.From, To: sel.walk.To, Calls: sel.counted(), Waits: c.json || c.asked("cpu", "wait", "running", "waiting"),
	}
	if how := untimed(t); c.never || how != "" || tracerOf(t) == patch.Profile.String() {
		// Tables have functions, not calls, which are counted apart from each other, whichever are shown.
		o.Calls.Match = nil
	}
	rows, err := t.Report(o)
	if err != nil {
		return nil, pathError(err)
	}
	if c.never {
		if rows, err = t.Never(rows); err != nil {
			return nil, fmt.Errorf("%s: %w", t.Dir, err)
		}
		*shown = reportView{less: func(trace.FuncStat, trace.FuncStat) int { return 0 }}
	}
	if match := sel.calls.Match; match != nil {
		rows = slices.DeleteFunc(rows, func(s trace.FuncStat) bool { return !match(s.Func) })
	}
	return rows, nil
}

// asked tells whether one of the columns is to be shown, or to be sorted by.
func (c *reportCmd) asked(names ...string) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		return slices.Contains(c.fields, name) || slices.Contains(c.sort, name)
	})
}

// explain says what the table does not.
func (c *reportCmd) explain(a *app, t *trace.Trace, rows []trace.FuncStat) {
	if o := leavingOut(t); c.never && len(o) > 0 {
		a.notef("fentry: %s: calls were left out by %s, so these functions may have been called", t.Dir, strings.Join(o, ", "))
	}
	if !c.never {
		reportEmpty(a, t)
	}
	reportLost(a, t)
	if c.asked("cpu", "wait") && untimed(t) == "" {
		explainWaits(a, t, slices.ContainsFunc(rows, func(s trace.FuncStat) bool { return s.Unknown > 0 }))
	}
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
