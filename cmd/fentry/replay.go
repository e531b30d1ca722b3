package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fentry-dev/fentry/cmd/fentry/internal/show"
	"github.com/fentry-dev/fentry/export/ftrace"
	"github.com/fentry-dev/fentry/export/ndjson"
	"github.com/fentry-dev/fentry/patch"
	"github.com/fentry-dev/fentry/trace"
)

type replayCmd struct {
	conditions []string
	filterFlags
	format  string
	fields  []string
	depth   int
	slowest int
	srcline bool
}

func newReplayCmd(a *app) *cobra.Command {
	var c replayCmd
	cmd := &cobra.Command{
		Use:   "replay [options] [DIR...]",
		Short: "print every call, nested, with its duration",
		Long: `replay prints what the threads of a traced program did, in order of time: in the
columns of ftrace's function_graph tracer, as one line per call (--format
function), or as JSON.

The CPU column has the number of the thread; a line before its first one says
which thread that is, and which process with which arguments. Of a Go program,
each goroutine has such a number, and TASK/PID says which one it is, and which thread
runs it then: server-g17/4711; -f noproc hides this.

Marks before durations are ftrace's: + for more than 10 us, ! 100 us, # 1 ms,
* 10 ms, @ 100 ms, $ 1 s.

The field irq-info, which --format function has by default, is five characters
as ftrace's: d if signals are blocked (by rt_sigprocmask, recorded with
record --syscalls, or where a handler interrupted the thread); f in a forked
child; h in a handler of a signal that was recorded, H in one on an alternate
stack, s on another stack without a handler; how many handlers lie one in the
other. What was so before the trace, or the part of it that is shown, is not
known.`,
		Example: `  fentry replay                          all of it, in a pager
  fentry replay -D 3                     three levels of calls
  fentry replay -t 100us                 calls of at least 100 us
  fentry replay -F 'parse_*'             those functions only
  fentry replay -G parse_term            what happened inside that function
  fentry replay -f abstime,proc,tail     more columns
  fentry replay --time 1ms,2ms           one millisecond of it
  fentry replay --if 'path ~ /etc/*'     calls with such an argument (record -A)
  fentry replay --slowest 3 -F 'parse_*' the longest calls, and what took long in them
  fentry replay --format json | jq -c 'select(.dur > 1000000)'`,
		RunE: func(cmd *cobra.Command, args []string) error { return c.run(a, cmd, args) },
	}
	c.filterFlags.add(cmd)
	conditionFlag(cmd, &c.conditions)
	f := cmd.Flags()
	f.StringVar(&c.format, "format", "", "print as `FORMAT`: "+strings.Join(formatNames(), ", ")+" (default: as recorded)")
	f.StringSliceVarP(&c.fields, "fields", "f", nil,
		"show `FIELD`[,FIELD...], or hide it with \"no\" in front: "+strings.Join(fieldNames(), ", "))
	f.IntVarP(&c.depth, "depth", "D", 0, "show only the first `N` levels of nested calls; 0: all")
	f.IntVar(&c.slowest, "slowest", 0, "show the `N` longest calls, each with what took long inside; "+
		"-F says of which functions")
	f.BoolVar(&c.srcline, "srcline", false, "show where functions begin in the source (needs debug information)")
	registerFieldCompletion(cmd, "fields", fieldNames())
	cmd.RegisterFlagCompletionFunc("format", cobra.FixedCompletions(formatNames(), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// display is the options of both text formats.
type display struct {
	graph    ftrace.GraphOptions
	function ftrace.FunctionOptions
}

// A displayField is a column or property of the text formats, named as the
// kernel's trace option. set turns it on or off.
type displayField struct {
	name   string
	kernel string // its full name there, "" when the kernel has none
	set    func(d *display, on bool)
}

var displayFields = []displayField{
	{"cpu", "funcgraph-cpu", func(d *display, on bool) { d.graph.NoCPU = !on }},
	{"duration", "funcgraph-duration", func(d *display, on bool) { d.graph.NoDuration = !on }},
	{"overhead", "funcgraph-overhead", func(d *display, on bool) { d.graph.NoOverhead = !on }},
	{"proc", "funcgraph-proc", func(d *display, on bool) { d.graph.Proc = on }},
	{"command", "", func(d *display, on bool) { d.graph.Command = on }},
	{"abstime", "funcgraph-abstime", func(d *display, on bool) { d.graph.AbsTime = on }},
	{"tail", "funcgraph-tail", func(d *display, on bool) { d.graph.Tail = on }},
	{"irq-info", "irq-info", func(d *display, on bool) { d.function.NoIRQInfo, d.graph.State = !on, on }},
	{"tgid", "record-tgid", func(d *display, on bool) { d.function.TGID = on }},
	{"parent", "print-parent", func(d *display, on bool) { d.function.NoParent = !on }},
	{"sym-offset", "sym-offset", func(d *display, on bool) { d.function.SymOffset = on }},
	{"sym-addr", "sym-addr", func(d *display, on bool) { d.function.SymAddr = on }},
	{"annotate", "annotate", func(d *display, on bool) { d.function.Annotate = on }},
	{"header", "", func(d *display, on bool) { d.graph.NoHeader, d.function.NoHeader = !on, !on }},
	{"notes", "", func(d *display, on bool) { d.graph.NoNotes = !on }},
	{"one-cpu", "", func(d *display, on bool) { d.graph.OneCPU, d.function.OneCPU = on, on }},
	{"since-start", "", func(d *display, on bool) { d.graph.SinceStart, d.function.SinceStart = on, on }},
}

func fieldNames() []string {
	var names []string
	for _, f := range displayFields {
		names = append(names, f.name)
	}
	return names
}

// switchFields applies --fields.
func (d *display) switchFields(words []string) error {
	for _, word := range words {
		if !d.switchField(word, true) {
			off, no := strings.CutPrefix(word, "no")
			if !no || !d.switchField(off, false) {
				return fmt.Errorf("--fields: no field %q; there are %s", word, strings.Join(fieldNames(), ", "))
			}
		}
	}
	return nil
}

func (d *display) switchField(name string, on bool) bool {
	for _, f := range displayFields {
		if name == f.name || name == f.kernel && name != "" {
			f.set(d, on)
			return true
		}
	}
	return false
}

// An eventWriter is an export format.
type eventWriter interface {
	Event(*trace.Event) error
	Close() error
	Skipped() uint64 // events of kinds that it does not know
}

// replayFormats are the values of --format, with what writes each. The first is the default.
var replayFormats = []struct {
	name   string
	writer func(out *output, t *trace.Trace, d display) eventWriter
}{
	{"graph", func(out *output, t *trace.Trace, d display) eventWriter {
		if out.paint {
			d.graph.Color = durationColor
			d.graph.FuncColor = triggerColors(t)
			d.graph.ColorEnd = "\x1b[" + sgrYellow + "m"
		}
		return ftrace.NewGraph(out.Writer, t, d.graph)
	}},
	{"function", func(out *output, t *trace.Trace, d display) eventWriter {
		return ftrace.NewFunction(out.Writer, t, d.function)
	}},
	{"json", func(out *output, t *trace.Trace, d display) eventWriter { return ndjson.New(out.Writer, t) }},
}

func formatNames() []string {
	var names []string
	for _, f := range replayFormats {
		names = append(names, f.name)
	}
	return names
}

// options translates the flags that need no trace.
func (c *replayCmd) options(cmd *cobra.Command) (s selection, err error) {
	if err := new(display).switchFields(c.fields); err != nil {
		return s, &usageError{cmd, err}
	}
	if c.format != "" && !slices.Contains(formatNames(), c.format) {
		return s, usagef(cmd, "--format: no format %q; there are %s", c.format, strings.Join(formatNames(), ", "))
	}
	if c.srcline && c.format == "json" {
		return s, usagef(cmd, "--srcline requires the format graph or function")
	}
	if err := c.checkSlowest(cmd); err != nil {
		return s, err
	}
	if s, err = c.parse(cmd); err != nil {
		return s, err
	}
	if s.calls.Depth = c.depth; c.depth < 0 {
		return s, usagef(cmd, "--depth %d: not a number of levels", c.depth)
	}
	return s, nil
}

func (c *replayCmd) run(a *app, cmd *cobra.Command, args []string) (err error) {
	if _, err := c.options(cmd); err != nil {
		return err
	}
	read, err := c.openAll(a, cmd, args)
	if err != nil {
		return err
	}
	defer read.close()
	if len(read.traces) > 1 && c.format == "json" {
		return usagef(cmd, "--format json shows one trace")
	}
	var out *output // nil: there is nothing to show yet
	defer func() {
		if out != nil {
			err = out.close(err)
		}
	}()
	for i, t := range read.traces {
		err := c.replay(a, cmd, t, func() (*output, error) {
			if out == nil {
				if out, err = a.open(); err != nil {
					return nil, err
				}
			}
			if i > 0 {
				fmt.Fprintln(out)
			}
			if len(read.traces) > 1 {
				fmt.Fprintln(out, out.paint.with(sgrBold, "==> "+printable(t.Dir)+" <=="))
			}
			return out, nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// replay shows one trace, once begin has returned what it is shown on.
func (c *replayCmd) replay(a *app, cmd *cobra.Command, t *trace.Trace, begin func() (*output, error)) error {
	sel, err := c.options(cmd)
	if err != nil {
		return err
	}
	if err := c.resolve(cmd, t, &sel); err != nil {
		return err
	}
	if sel.calls.When, err = when(cmd, t, c.conditions); err != nil {
		return err
	}
	tracer := tracerOf(t)
	switch {
	case tracer == patch.Count.String():
		return fmt.Errorf("%s: recorded with the count tracer: numbers of calls, no single calls; print them with: "+
			"fentry report", t.Dir)
	case tracer == patch.Profile.String():
		return fmt.Errorf("%s: a profile has counts and times, but no single calls; print them with: fentry report", t.Dir)
	case tracer == patch.Function.String() && c.format == "graph":
		return fmt.Errorf("%s: recorded with the function tracer: only entries, no nesting and no durations", t.Dir)
	}
	var d display
	d.function.NoParent = tracer == patch.Function.String() // nobody knows who was the caller
	d.graph.NoDuration = t.Clockless()
	d.graph.Proc = t.LastThread() != 0 // nothing else says which thread runs a goroutine
	if err := d.switchFields(c.fields); err != nil {
		return &usageError{cmd, err}
	}
	if t.Clockless() && (!d.graph.NoDuration || d.graph.AbsTime || d.graph.SinceStart || c.format == "function") {
		return fmt.Errorf("%s: recorded with --clock none: there are no times to show; --format graph and json show "+
			"nesting and order", t.Dir)
	}
	if c.srcline {
		src := newSources(a, one(t))
		d.graph.Comment, d.function.Comment = src.line, src.line
	}
	out, err := begin()
	if err != nil {
		return err
	}
	if c.slowest > 0 {
		if tracer == patch.Function.String() {
			return fmt.Errorf("%s: recorded with the function tracer: no durations", t.Dir)
		}
		if err := c.runSlowest(out, t, &sel, d); err != nil {
			return err
		}
		sel.warn(a, t)
		reportEmpty(a, t)
		reportLost(a, t)
		return nil
	}
	w := c.writer(out, t, d, tracer)
	emit, end := t.WithSwitchedOff(sel.walk.From, sel.calls.Match, w.Event), w.Close
	if !sel.all() {
		f := show.New(sel.calls, emit)
		emit = f.Event
		end = func() error {
			if err := f.Close(); err != nil {
				return err
			}
			return w.Close()
		}
	}
	if c.showsState(w, &d) {
		emit = t.WithSignalState(emit)
	}
	if err := sel.prepare(t); err != nil {
		return pathError(err)
	}
	p := a.progress("replay", t)
	defer p.done()
	if err := t.Walk(sel.walk, p.watch(emit)); err != nil {
		return pathError(err)
	}
	if err := end(); err != nil {
		return err
	}
	sel.warn(a, t)
	reportEmpty(a, t)
	if n := w.Skipped(); n > 0 {
		a.notef("fentry: %s: %s not known and skipped: the trace is from a newer fentry, or damaged",
			t.Dir, plural(n, "record is", "records are"))
	}
	reportLost(a, t)
	return nil
}

// showsState reports whether the state of threads' signals is shown.
func (c *replayCmd) showsState(w eventWriter, d *display) bool {
	switch w.(type) {
	case *ftrace.Graph:
		return d.graph.State
	case *ftrace.Function:
		return !d.function.NoIRQInfo
	}
	return true
}

func (c *replayCmd) writer(out *output, t *trace.Trace, d display, tracer string) eventWriter {
	format := c.format
	if format == "" && tracer == patch.Function.String() {
		format = "function"
	}
	for _, f := range replayFormats {
		if f.name == format {
			return f.writer(out, t, d)
		}
	}
	return replayFormats[0].writer(out, t, d)
}

// durationColor stresses what took long, from the durations on at which ftrace
// prints ! and # and *.
func durationColor(ns int64) string {
	switch {
	case ns > 10_000_000:
		return "\x1b[1;31m"
	case ns > 1_000_000:
		return "\x1b[31m"
	case ns > 100_000:
		return "\x1b[33m"
	}
	return ""
}

// tracerOf returns how a trace was recorded, "" when nothing tells.
func tracerOf(t *trace.Trace) string {
	if t.Info != nil && t.Info.Tracer != "" {
		return t.Info.Tracer
	}
	for _, im := range t.Images {
		if im.Mode != "" {
			return im.Mode
		}
	}
	return ""
}
