package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/fentry-dev/fentry/patch"
	"github.com/fentry-dev/fentry/trace"
)

type graphCmd struct {
	filterFlags
	depth    int
	focus    string
	min      float64
	process  bool
	task     bool
	unfolded bool
	wait     bool
	srcline  bool
	json     bool
	diff     string
}

func newGraphCmd(a *app) *cobra.Command {
	var c graphCmd
	cmd := &cobra.Command{
		Use:   "graph [options] [DIR...]",
		Short: "print the merged call tree with counts and times",
		Long: `graph merges all calls that were reached by the same path into one line: how
often the path was taken, the time from entry to exit, and the time in the
function itself. A call of a function that is already open on the path is counted
with the open one, so recursion does not make the tree deeper.

With --focus it prints one function with its callers and callees. Several traces,
or directories of them, make one tree; with --process and --task, a tree for each
of theirs.`,
		Example: `  fentry graph                      all of it
  fentry graph -D 3                 the first three levels
  fentry graph --min 1              only what took 1 % of the time or more
  fentry graph --focus parse_term   callers and callees of a function
  fentry graph --task               a tree for each thread
  fentry graph --diff old.data --min 1   which call paths changed by 1 % of the time
  fentry graph --wait               who works and who waits
  fentry graph -G parse_term        what was called in that function
  fentry graph --time 1s,2s -t 1ms  the long calls of one second`,
		RunE: func(cmd *cobra.Command, args []string) error { return c.run(a, cmd, args) },
	}
	c.filterFlags.add(cmd)
	f := cmd.Flags()
	f.IntVarP(&c.depth, "depth", "D", 0, "print only the first `N` levels; 0: all")
	f.StringVar(&c.focus, "focus", "", "print callers and callees of the functions that match `PAT`")
	f.Float64Var(&c.min, "min", 0, "leave out what took less than `PERCENT` of the total time")
	f.BoolVar(&c.process, "process", false, "print a tree for each process")
	f.BoolVar(&c.task, "task", false, "print a tree for each thread")
	f.BoolVar(&c.unfolded, "recursion", false, "show every level of recursion")
	f.BoolVar(&c.wait, "wait", false, "also print the time on a processor and off it")
	f.BoolVar(&c.srcline, "srcline", false, "show where functions begin in the source (needs debug information)")
	diffFlag(cmd, &c.diff)
	f.BoolVar(&c.json, "json", false, "print one JSON object per line of the tree")
	return cmd
}

func (c *graphCmd) run(a *app, cmd *cobra.Command, args []string) (err error) {
	switch {
	case c.depth < 0:
		return usagef(cmd, "--depth %d: not a number of levels", c.depth)
	case c.min < 0 || c.min > 100:
		return usagef(cmd, "--min %v: not a percentage", c.min)
	case c.process && c.task:
		return usagef(cmd, "--process and --task are mutually exclusive")
	case c.focus != "" && (c.process || c.task || c.unfolded || c.depth > 0 || c.wait):
		return usagef(cmd, "--focus cannot be combined with --process, --task, --recursion, --depth and --wait")
	}
	if c.diff != "" {
		for _, name := range []string{"focus", "process", "task", "recursion", "wait", "srcline", "tid", "pid", "goroutine"} {
			if cmd.Flags().Changed(name) {
				return usagef(cmd, "--diff and --%s are mutually exclusive", name)
			}
		}
	}
	if _, err := c.parse(cmd); err != nil {
		return err
	}
	read, err := c.openAll(a, cmd, args)
	if err != nil {
		return err
	}
	defer read.close()
	root, sels, err := c.trees(cmd, read)
	if err != nil {
		return err
	}
	if c.diff != "" {
		if len(read.traces) > 1 {
			return usagef(cmd, "--diff compares one trace with another one")
		}
		err = c.writeDiff(a, cmd, read.traces[0], root)
	} else {
		err = c.write(a, cmd, read, root)
	}
	if err != nil {
		return err
	}
	for _, t := range read.traces {
		reportEmpty(a, t)
		if c.wait && !t.Clockless() {
			explainWaits(a, t, root.Unknown > 0)
		}
	}
	warnAll(a, read, sels)
	for _, t := range read.traces {
		reportLost(a, t)
	}
	return nil
}

// trees merges the calls that the selection chose of all traces.
func (c *graphCmd) trees(cmd *cobra.Command, read reading) (*trace.Node, []selection, error) {
	var sels []selection
	var roots []*trace.Node
	for _, t := range read.traces {
		sel, err := c.parse(cmd)
		if err != nil {
			return nil, nil, err
		}
		root, err := c.tree(cmd, t, &sel)
		if err != nil {
			return nil, nil, err
		}
		sels, roots = append(sels, sel), append(roots, root)
		if len(read.traces) > 1 {
			read.union.Tree(t, root)
		}
	}
	if len(roots) == 1 {
		return roots[0], sels, nil
	}
	return trace.JoinTrees(roots), sels, nil
}

// tree merges the calls that the selection chose.
func (c *graphCmd) tree(cmd *cobra.Command, t *trace.Trace, sel *selection) (*trace.Node, error) {
	switch tracerOf(t) {
	case patch.Function.String():
		return nil, fmt.Errorf("%s: recorded with the function tracer: only entries, no nesting", t.Dir)
	case patch.Count.String():
		return nil, fmt.Errorf("%s: recorded with the count tracer: numbers of calls, no call paths; print them with: "+
			"fentry report", t.Dir)
	case patch.Profile.String():
		return nil, fmt.Errorf("%s: a profile has counts and times, but no call paths; print them with: fentry report", t.Dir)
	}
	if t.Clockless() && (c.focus != "" || c.min > 0 || c.diff != "") {
		return nil, fmt.Errorf("%s: recorded with --clock none: there are no times for --focus, --min and --diff", t.Dir)
	}
	if err := c.resolve(cmd, t, sel); err != nil {
		return nil, err
	}
	if err := sel.prepare(t); err != nil {
		return nil, pathError(err)
	}
	root, err := t.Graph(trace.GraphOptions{
		Tasks: sel.walk.Tasks, PerProcess: c.process, PerTask: c.task, KeepRecursion: c.unfolded || c.focus != "",
		From: sel.walk.From, To: sel.walk.To, Calls: sel.counted(),
		Waits: c.wait || c.json,
	})
	if err != nil {
		return nil, pathError(err)
	}
	return root, nil
}

// write prints the tree, or the functions in focus.
func (c *graphCmd) write(a *app, cmd *cobra.Command, read reading, root *trace.Node) (err error) {
	var src *sources
	if c.srcline {
		src = newSources(a, read)
	}
	out, err := a.open()
	if err != nil {
		return err
	}
	defer func() { err = out.close(err) }()
	if c.focus != "" {
		match, focused, err := read.matcher(cmd, c.focus)
		if err != nil {
			return err
		}
		if err := c.writeFocus(out, root.Focus(match), root.Total, src); err != nil {
			return err
		}
		warnAll(a, read, focused)
	} else {
		w := graphWriter{
			out: out, c: c, src: src, least: int64(c.min / 100 * float64(root.Total)), total: root.Total, read: read,
			untimed: slices.ContainsFunc(read.traces, (*trace.Trace).Clockless),
		}
		if w.untimed {
			w.least = 0
		}
		if c.json {
			w.enc = jsonLines(out)
		} else {
			fmt.Fprintln(out, out.paint.with(sgrBold, graphHeading(c.wait)))
		}
		if err := w.children(root, 0, nil, ""); err != nil {
			return err
		}
		if w.hidden > 0 && !c.json {
			a.notef("%s below --min %v not shown", plural(w.hidden, "line", "lines"), c.min)
		}
	}
	return nil
}

// graphWriter prints a tree in depth-first order.
type graphWriter struct {
	out    *output
	enc    *json.Encoder
	c      *graphCmd
	src    *sources
	read   reading
	least  int64
	total  int64
	hidden uint64
	task   *trace.Task // whose tree it is, nil: everybody's

	untimed bool // times are sequence numbers
}

// cell is a duration for people.
func (w *graphWriter) cell(ns int64) string {
	if w.untimed {
		return "-"
	}
	return durationCell(ns)
}

// percent is a part of all time for people.
func (w *graphWriter) percent(part int64) string {
	if w.untimed {
		return "-"
	}
	return percent(part, w.total)
}

// parts are columns of the time on a processor and off it, if they are asked for.
func (w *graphWriter) parts(n *trace.Node) string {
	if !w.c.wait {
		return ""
	}
	return fmt.Sprintf("%12s %12s ", partCell(n.CPU, n.Unknown, n.Total), partCell(n.Wait, n.Unknown, n.Total))
}

// known is a time for programs, nil if there is none.
func (w *graphWriter) known(ns int64) *int64 {
	if w.untimed || ns < 0 {
		return nil
	}
	return &ns
}

// graphLine is a line of graph --json. Times are in nanoseconds, null if there are none.
type graphLine struct {
	Depth      int      `json:"depth"`
	Name       string   `json:"name"`
	Source     string   `json:"source,omitempty"`
	Path       []string `json:"path"`
	Trace      string   `json:"trace,omitempty"` // of several, with --task and --process
	PID        int      `json:"pid,omitempty"`
	TID        int      `json:"tid,omitempty"`
	Comm       string   `json:"comm,omitempty"`
	Command    string   `json:"command,omitempty"` // with --process
	Calls      uint64   `json:"calls"`
	Recursive  uint64   `json:"recursive"`
	Total      *int64   `json:"total_ns"`
	Self       *int64   `json:"self_ns"`
	CPU        *int64   `json:"cpu_ns"`
	Wait       *int64   `json:"wait_ns"`
	Unknown    *int64   `json:"unknown_ns"`
	Unwound    uint64   `json:"unwound"`
	Unfinished uint64   `json:"unfinished"`
}

func (w *graphWriter) children(n *trace.Node, depth int, path []string, indent string) error {
	var shown []*trace.Node
	for _, k := range n.Children {
		if k.Total < w.least && k.Task == nil {
			w.hidden++
			continue
		}
		shown = append(shown, k)
	}
	for i, k := range shown {
		if k.Task != nil {
			if err := w.group(k); err != nil {
				return err
			}
			if err := w.children(k, 0, nil, ""); err != nil {
				return err
			}
			continue
		}
		branch, below := branches(i == len(shown)-1, depth)
		if err := w.line(k, depth, path, indent+branch); err != nil {
			return err
		}
		if w.c.depth > 0 && depth+1 >= w.c.depth {
			continue
		}
		if err := w.children(k, depth+1, append(path[:len(path):len(path)], k.Name), indent+below); err != nil {
			return err
		}
	}
	return nil
}

// branches are what draws a tree: in front of a node, and in front of those below it.
func branches(last bool, depth int) (here, below string) {
	switch {
	case depth == 0:
		return "", ""
	case last:
		return "└─ ", "   "
	}
	return "├─ ", "│  "
}

// group prints the heading of a process or thread.
func (w *graphWriter) group(n *trace.Node) error {
	if w.enc != nil {
		w.task = n.Task // every line below says so
		return nil
	}
	label := n.Task.String()
	if w.c.process {
		label = fmt.Sprintf("%s (process %d)", n.Task.Comm, n.Task.PID)
		if s := commandOf(n.Task); s != "" {
			label = fmt.Sprintf("process %d: %s", n.Task.PID, s)
		}
	}
	if len(w.read.traces) > 1 {
		label = w.read.of(n.Task).Dir + ": " + label
	}
	_, err := fmt.Fprintf(w.out, "%12s %12s %12s %s%7s  %s\n",
		"", w.cell(n.Total), "", w.parts(n), w.percent(n.Total), w.out.paint.with(sgrBold, printable(label)))
	return err
}

func (w *graphWriter) line(n *trace.Node, depth int, path []string, prefix string) error {
	if w.enc != nil {
		l := graphLine{
			Depth: depth, Name: n.Name, Source: w.src.line(n.Func), Path: append(path[:len(path):len(path)], n.Name),
			Calls: n.Calls, Recursive: n.Recursive,
			Total: w.known(n.Total), Self: w.known(n.Self),
			CPU: w.known(n.CPU), Wait: w.known(n.Wait), Unknown: w.known(n.Unknown), Unwound: n.Unwound, Unfinished: n.Unfinished,
		}
		if w.task != nil {
			l.PID, l.Comm = w.task.PID, w.task.Comm
			if len(w.read.traces) > 1 {
				l.Trace = w.read.of(w.task).Dir
			}
			if w.c.task {
				l.TID = w.task.TID
			} else {
				l.Command = commandOf(w.task)
			}
		}
		return w.enc.Encode(l)
	}
	note := ""
	if l := w.src.line(n.Func); l != "" {
		note = w.out.paint.with(sgrDim, "  "+l)
	}
	if n.Recursive > 0 {
		note += w.out.paint.with(sgrDim, fmt.Sprintf("  (%s recursive)", grouped(n.Recursive)))
	}
	if n.Folded > 0 {
		note += w.out.paint.with(sgrDim, fmt.Sprintf("  (%s calls below not shown apart)", grouped(n.Folded)))
	}
	_, err := fmt.Fprintf(w.out, "%12s %12s %12s %s%7s  %s%s%s\n",
		grouped(n.Calls), w.cell(n.Total), w.cell(n.Self), w.parts(n), w.percent(n.Total),
		w.out.paint.with(sgrDim, prefix), w.name(n.Name, prefix), note)
	return err
}

// name is a function's name behind a prefix, as much of its end as the terminal has room for.
func (w *graphWriter) name(name, prefix string) string {
	name = printable(name)
	if w.out.width == 0 {
		return name
	}
	numbers := 3*(12+1) + 7 + 2
	if w.c.wait {
		numbers += 2 * (12 + 1)
	}
	return keepEnd(name, max(narrowest, w.out.width-numbers-utf8.RuneCountInString(prefix)))
}

func percent(part, whole int64) string {
	if whole <= 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", 100*float64(part)/float64(whole))
}

// graphHeading is the heading of a tree, and of functions in focus.
func graphHeading(wait bool) string {
	parts := ""
	if wait {
		parts = fmt.Sprintf("%12s %12s ", "CPU", "WAIT")
	}
	return fmt.Sprintf("%12s %12s %12s %s%7s  %s", "CALLS", "TOTAL", "SELF", parts, "TIME%", "FUNCTION")
}
