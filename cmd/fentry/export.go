package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fentry-dev/fentry/cmd/fentry/internal/show"
	"github.com/fentry-dev/fentry/export"
	"github.com/fentry-dev/fentry/export/formats"
	"github.com/fentry-dev/fentry/internal/atomicfile"
	"github.com/fentry-dev/fentry/patch"
	"github.com/fentry-dev/fentry/trace"
)

type exportCmd struct {
	filterFlags
	out    string
	format string
	depth  int
}

func newExportCmd(a *app) *cobra.Command {
	var c exportCmd
	cmd := &cobra.Command{
		Use:   "export [options] -o FILE [DIR]",
		Short: "write a trace for other programs to read",
		Long: `export writes a trace, or the part of it that the options choose, in a format
that another program reads. The end of the file's name says which; --format does
for other names. With "-o -" it goes to standard output. What a format cannot hold
is counted on standard error.

` + formatTable(),
		Example: `  fentry export -o trace.json            for chrome://tracing, ui.perfetto.dev
  fentry export -o trace.pftrace         the same in a third of the size
  fentry export -o cpu.pb.gz && go tool pprof -http=: cpu.pb.gz
  fentry export -o - --format folded | flamegraph.pl > flame.svg
  fentry export -o callgrind.out.1 && callgrind_annotate --inclusive=yes callgrind.out.1
  fentry export --time 1s,1.01s -o window.json   ten milliseconds of it
  fentry export -G parse_term -o parse.speedscope.json
  fentry export -f parquet -o lake/      one run more in a data set of many machines' (docs/fleet.md)`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return c.run(a, cmd, args) },
	}
	c.filterFlags.add(cmd)
	f := cmd.Flags()
	f.StringVarP(&c.out, "output", "o", "", "write `FILE`; -: standard output")
	f.StringVarP(&c.format, "format", "f", "", "write `FORMAT`: "+strings.Join(formats.Names(), ", "))
	f.IntVarP(&c.depth, "depth", "D", 0, "write only the first `N` levels of nested calls; 0: all (not pprof, folded, callgrind)")
	cmd.RegisterFlagCompletionFunc("format", cobra.FixedCompletions(formats.Names(), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// formatTable lists the formats for the help.
func formatTable() string {
	var b strings.Builder
	b.WriteString("Formats, the ends of file names, and what opens them:\n")
	for _, f := range formats.All {
		fmt.Fprintf(&b, "\n  %-11s %-17s %s", f.Name, f.Suffixes[0], f.Readers)
	}
	return b.String()
}

// chosen returns the format that the flags name.
func (c *exportCmd) chosen(a *app, cmd *cobra.Command) (*formats.Format, error) {
	if c.out == "" {
		return nil, usagef(cmd, "give -o FILE, or -o - for standard output")
	}
	f := formats.Of(c.out)
	if c.format != "" {
		if f = formats.Named(c.format); f == nil {
			return nil, usagef(cmd, "--format: no format %q; there are %s", c.format, strings.Join(formats.Names(), ", "))
		}
	}
	switch {
	case f == nil && c.out == "-":
		return nil, usagef(cmd, "-o -: give --format FORMAT: %s", strings.Join(formats.Names(), ", "))
	case f == nil:
		return nil, usagef(cmd, "-o %s: the name does not say which format; give --format FORMAT: %s", c.out,
			strings.Join(formats.Names(), ", "))
	case c.depth < 0:
		return nil, usagef(cmd, "--depth %d: not a number of levels", c.depth)
	case c.depth > 0 && f.Merged:
		return nil, usagef(cmd, "--depth cannot be combined with the format %s, which has no single calls", f.Name)
	case c.out == "-" && f.WriteDir != nil:
		return nil, usagef(cmd, "-o -: %s is a directory of files", f.Name)
	case c.out == "-" && f.Binary && isTerminal(a.stdout):
		return nil, usagef(cmd, "-o -: %s is not for a terminal", f.Name)
	}
	return f, nil
}

func (c *exportCmd) run(a *app, cmd *cobra.Command, args []string) error {
	f, err := c.chosen(a, cmd)
	if err != nil {
		return err
	}
	sel, err := c.parse(cmd)
	if err != nil {
		return err
	}
	sel.calls.Depth = c.depth
	t, err := c.open(a, cmd, args)
	if err != nil {
		return err
	}
	defer t.Close()
	if err := exportable(t, f); err != nil {
		return err
	}
	if err := c.resolve(cmd, t, &sel); err != nil {
		return err
	}
	if err := sel.prepare(t); err != nil {
		return pathError(err)
	}
	warnLarge(a, t, f, &sel)
	p := a.progress("export", t)
	defer p.done()
	sum, written, err := c.write(a, f, sel.source(t, p))
	if err != nil {
		return pathError(err)
	}
	p.done()
	sel.warn(a, t)
	reportEmpty(a, t)
	for _, l := range sum.Left {
		a.sayf("fentry: %s: %s cannot hold %s: %s left out", t.Dir, f.Name, l.What, grouped(l.Count))
	}
	reportLost(a, t)
	what := plural(sum.Calls, "call", "calls")
	if written > 0 {
		what += ", " + size(written)
	}
	to := printable(c.out)
	if c.out == "-" {
		to = "standard output"
	}
	a.notef("[ fentry: %s -> %s ]", what, to)
	return nil
}

// exportable says why a trace has nothing for a format.
func exportable(t *trace.Trace, f *formats.Format) error {
	switch tracer := tracerOf(t); {
	case tracer == patch.Count.String() || tracer == patch.Profile.String():
		return fmt.Errorf("%s: recorded with the %s tracer: sums, no single calls and no call paths; print them with: "+
			"fentry report", t.Dir, tracer)
	case tracer == patch.Function.String() && (f.Merged || f.Name == "speedscope"):
		return fmt.Errorf("%s: recorded with the function tracer: only entries, no nesting and no durations, which %s needs",
			t.Dir, f.Name)
	}
	return nil
}

// warnLarge says before the work that its result may be too large for what reads it.
func warnLarge(a *app, t *trace.Trace, f *formats.Format, s *selection) {
	about := t.Bytes / 8 * f.PerEvent
	if f.Large > 0 && about > f.Large && s.all() && s.walk.From == 0 && s.walk.To == 0 && s.walk.Tasks == nil {
		a.sayf("fentry: warning: about %s, and readers of the format are known to fail above %s; choose a part with --time, "+
			"-F, -G or -t, or another format", size(uint64(about)), size(uint64(f.Large)))
	}
}

// source is the part of a trace that is selected.
func (s *selection) source(t *trace.Trace, p *progress) *export.Source {
	src := export.From(t)
	if s.walk.Tasks != nil {
		src.Tasks = s.walk.Tasks
	}
	src.Walk = func(tasks []*trace.Task, emit func(*trace.Event) error) error {
		walk := s.walk
		walk.Tasks = tasks
		end := func() error { return nil }
		emit = t.WithSwitchedOff(walk.From, s.calls.Match, emit)
		if !s.all() {
			f := show.New(s.calls, emit)
			emit, end = f.Event, f.Close
		}
		if err := t.Walk(walk, p.watch(emit)); err != nil {
			return err
		}
		return end()
	}
	src.Graph = func(o trace.GraphOptions) (*trace.Node, error) {
		o.Tasks, o.From, o.To, o.Calls = s.walk.Tasks, s.walk.From, s.walk.To, s.counted()
		return t.Graph(o)
	}
	return src
}

// write writes the file, or to standard output.
func (c *exportCmd) write(a *app, f *formats.Format, src *export.Source) (sum export.Summary, n uint64, err error) {
	if c.out == "-" {
		w := &counter{w: a.stdout}
		sum, err = f.Write(w, src)
		return sum, w.n, err
	}
	if f.WriteDir != nil {
		sum, err = writeDir(filepath.Clean(c.out), f, src)
		return sum, 0, err
	}
	err = atomicfile.Write(c.out, atomicfile.Options{Own: true, NoSync: true}, func(file *os.File) error {
		w := &counter{w: file}
		sum, err = f.Write(w, src)
		n = w.n
		return err
	})
	return sum, n, err
}

// A counter counts what is written.
type counter struct {
	w io.Writer
	n uint64
}

func (c *counter) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	c.n += uint64(n)
	return n, err
}
