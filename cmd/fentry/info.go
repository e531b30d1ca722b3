package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/fentry-dev/fentry/internal/machine"
	"github.com/fentry-dev/fentry/names"
	"github.com/fentry-dev/fentry/patch"
	"github.com/fentry-dev/fentry/record"
	"github.com/fentry-dev/fentry/trace"
)

type infoCmd struct {
	inputFlags
	tree    bool
	json    bool
	machine bool
	off     bool
}

func newInfoCmd(a *app) *cobra.Command {
	var c infoCmd
	cmd := &cobra.Command{
		Use:   "info [options] [DIR|PROGRAM]",
		Short: "print what is known about a trace or a patched program",
		Long: `info prints how a trace was made, its processes, threads and program images, its
clock, its size and how much was lost. For a program, it prints what fentry patch
has put into it. With --machine, it measures for a moment what reading this
machine's clock and tracing a call cost.`,
		Example: `  fentry info                 the trace in fentry.data
  fentry info --tree          who started whom
  fentry info ./prog.traced   a patched program
  fentry info --machine       what tracing costs here
  fentry info --switched-off > off; fentry record --overhead @off ./prog
                              record again, without what cost too much
  fentry info --json | jq .tasks`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return c.run(a, cmd, args) },
	}
	cmd.Flags().BoolVar(&c.tree, "tree", false, "print only the processes, as a tree")
	cmd.Flags().BoolVar(&c.json, "json", false, "print one JSON object")
	cmd.Flags().BoolVar(&c.machine, "machine", false, "measure what reading the clock and tracing a call cost here")
	cmd.Flags().BoolVar(&c.off, "switched-off", false,
		"list only the functions that record switched off, for record --overhead @FILE")
	c.inputFlags.add(cmd)
	for _, name := range []string{"tid", "goroutine", "pid", "demangle", "image"} {
		cmd.Flags().Lookup(name).Hidden = true
	}
	cmd.ValidArgsFunction = nil
	return cmd
}

func (c *infoCmd) run(a *app, cmd *cobra.Command, args []string) error {
	if c.machine {
		if len(args) > 0 || c.dir != "" || c.tree {
			return usagef(cmd, "--machine is about no trace")
		}
		out, err := a.open()
		if err != nil {
			return err
		}
		return out.close(infoMachine(out, c.json))
	}
	if len(args) == 1 && c.dir == "" {
		if fi, err := os.Stat(args[0]); err == nil && !fi.IsDir() {
			return c.program(a, args[0])
		}
	}
	t, err := c.open(a, cmd, args)
	if err != nil {
		return err
	}
	defer t.Close()
	out, err := a.open()
	if err != nil {
		return err
	}
	if c.off {
		return out.close(writeSwitchedOff(out, t))
	}
	in := traceInfo(t)
	switch {
	case c.json:
		err = writeJSON(out, in)
	case c.tree:
		tree := processTree{out, out.paint, t}
		tree.write()
	default:
		in.write(out, out.paint)
	}
	return out.close(err)
}

// infoTrace is info --json of a trace.
type infoTrace struct {
	Dir        string     `json:"dir"`
	Writer     string     `json:"writer,omitempty"`
	Command    []string   `json:"command,omitempty"`
	Cwd        string     `json:"cwd,omitempty"`
	Options    []string   `json:"options,omitempty"`
	Tracer     string     `json:"tracer,omitempty"`
	Start      *time.Time `json:"start,omitempty"`
	Duration   int64      `json:"duration_ns,omitempty"`
	ExitStatus *int       `json:"exit_status,omitempty"`
	Signal     int        `json:"signal,omitempty"`
	Killed     bool       `json:"killed,omitempty"` // fentry was

	Dump *trace.InfoDump `json:"dump,omitempty"` // a flight recorder wrote it while the program ran

	Host      string     `json:"host,omitempty"`
	Kernel    string     `json:"kernel,omitempty"`
	Machine   string     `json:"machine,omitempty"`
	CPU       string     `json:"cpu,omitempty"`
	CPUs      int        `json:"cpus,omitempty"`
	ClockHz   float64    `json:"clock_hz"`
	ClockFrom string     `json:"clock_source"`
	Clock     string     `json:"clock,omitempty"` // none: events are numbered
	Switches  *infoWaits `json:"switches"`        // null: they would mean nothing
	Bytes     int64      `json:"bytes"`
	Chunks    int        `json:"chunks"`
	// Of chunks that are compressed, Bytes has what they are when they are not.
	Compressed int    `json:"compressed"`
	Stored     int64  `json:"stored_bytes"`
	Events     uint64 `json:"events,omitempty"`
	infoLosses
	SwitchedOff []infoOff `json:"switched_off,omitempty"`

	Images    []infoImage   `json:"images"`
	Processes []infoProcess `json:"processes"`
	Tasks     []infoTask    `json:"tasks"`
}

type infoImage struct {
	ID      trace.ImageID `json:"id"`
	Path    string        `json:"path,omitempty"`
	BuildID string        `json:"build_id,omitempty"`
	Sites   int           `json:"functions"`
	goKnown
	linked bool
}

// infoOff is a function that the recorder has switched off.
type infoOff struct {
	Name  string `json:"name"`
	Image string `json:"image,omitempty"`
	From  int64  `json:"from_ns"` // calls from then on may be missing
	Rate  uint32 `json:"rate"`    // calls a second before, estimated
}

type infoTask struct {
	PID    int    `json:"pid"`
	TID    int    `json:"tid"`
	number string // as people read it
	Comm   string `json:"comm"`
	Parent int    `json:"parent_tid,omitempty"`
	Start  int64  `json:"start_ns"`
	Lost   uint64 `json:"lost"`
	Gaps   int    `json:"gaps"`
}

func traceInfo(t *trace.Trace) *infoTrace {
	in := &infoTrace{
		Dir: t.Dir, ClockHz: t.Clock.Hz, ClockFrom: t.Clock.Source,
		Bytes: t.Bytes, Chunks: t.Chunks, Compressed: t.Compressed, Stored: t.Stored,
		infoLosses: newInfoLosses(t), Images: []infoImage{}, Tasks: []infoTask{},
		Processes: []infoProcess{},
	}
	if t.Clockless() {
		in.Clock = trace.ClockNone
	}
	in.Switches = newInfoWaits(t)
	if i := t.Info; i != nil {
		in.Writer, in.Command, in.Cwd, in.Options, in.Tracer = i.Writer, i.Command, i.Dir, i.Options, i.Tracer
		in.Duration, in.Signal, in.Events = int64(i.Duration), i.Signal, i.Totals.Events
		in.Dump, in.Killed = i.Dump, i.Killed
		in.Host, in.Kernel, in.Machine, in.CPU, in.CPUs = i.Host, i.Kernel, i.Machine, i.CPU, i.CPUs
		if !i.Start.IsZero() {
			in.Start = &i.Start
		}
		if i.Signal == 0 && i.ExitStatus >= 0 {
			in.ExitStatus = &i.ExitStatus
		}
	}
	for i, im := range t.Images {
		in.Images = append(in.Images, infoImage{
			im.ID, im.Path, im.BuildID, im.Sites, newGoKnown(t.GoRuntime(i)), im.IDs == trace.OffsetIDs,
		})
		if in.Tracer == "" {
			in.Tracer = im.Mode
		}
	}
	for _, p := range t.Processes {
		in.Processes = append(in.Processes, newInfoProcess(p))
	}
	for _, s := range t.SwitchedOff {
		in.SwitchedOff = append(in.SwitchedOff, infoOff{t.Name(s.Func), t.Images[s.Func.Image].Path, s.From, s.Rate})
	}
	for _, k := range t.Tasks {
		in.Tasks = append(in.Tasks, infoTask{k.PID, k.TID, k.Number(), k.Comm, k.ParentTID, k.Start, k.Lost, k.Gaps})
	}
	return in
}

func (in *infoTrace) write(w io.Writer, p paint) {
	f := fieldWriter{w, p}
	f.field("trace", in.Dir)
	f.field("written by", in.Writer)
	f.field("command", trace.QuoteArgs(in.Command))
	f.field("in", in.Cwd)
	f.field("options", trace.QuoteArgs(in.Options))
	f.field("tracer", in.Tracer)
	if in.Start != nil {
		f.field("start", in.Start.Local().Format("2006-01-02 15:04:05.000 -0700"))
	}
	if in.Duration > 0 {
		f.field("duration", duration(uint64(in.Duration)))
	}
	switch {
	case in.Signal != 0:
		f.field("ended by", fmt.Sprintf("signal %d (%s)", in.Signal, syscall.Signal(in.Signal)))
	case in.Killed:
		f.field("ended by", "the end of fentry, which was killed")
	case in.Dump != nil:
		f.field("written", dumpText(in.Dump))
	case in.ExitStatus != nil:
		f.field("exit status", fmt.Sprint(*in.ExitStatus))
	}
	host := in.Host
	for _, s := range []string{in.Kernel, in.Machine, in.CPU} {
		if s != "" {
			host += ", " + s
		}
	}
	if in.CPUs > 0 {
		host += fmt.Sprintf(", %d CPUs", in.CPUs)
	}
	f.field("host", strings.TrimPrefix(host, ", "))
	if in.Clock == trace.ClockNone {
		f.field("clock", "none: events are numbered")
	} else {
		f.field("clock", fmt.Sprintf("%.3f MHz (from %s)", in.ClockHz/1e6, in.ClockFrom))
	}
	f.field("size", fmt.Sprintf("%s in %s", size(uint64(in.Bytes)), plural(uint64(in.Chunks), "chunk", "chunks")))
	if in.Compressed > 0 {
		f.field("compressed", fmt.Sprintf("%s, to %s in all", plural(uint64(in.Compressed), "chunk", "chunks"),
			size(uint64(in.Stored))))
	}
	if in.Events > 0 {
		f.field("events", grouped(in.Events))
	}
	f.field("lost", in.infoLosses.String())
	if n := uint64(len(in.SwitchedOff)); n > 0 {
		f.field("switched off", plural(n, "function", "functions"))
	}
	f.field("cpu, wait", in.Switches.String())
	for _, im := range in.Images {
		f.field("go", im.goKnown.String())
	}
	var images table
	for _, h := range []string{"IMAGE", "BUILD-ID", "FUNCTIONS", "PATH"} {
		images.column(h, h == "FUNCTIONS")
	}
	for _, im := range in.Images {
		if im.ID == 0 && im.Path == "" {
			continue // what the recorder's samples belong to
		}
		sites := grouped(uint64(im.Sites))
		if im.linked {
			sites = "-" // its ids are not dense
		}
		images.row(im.ID.String(), im.BuildID, sites, im.Path)
	}
	fmt.Fprintln(w)
	images.write(w, p)
	if len(in.Processes) > 0 {
		fmt.Fprintln(w)
		writeProcesses(w, p, in.Processes)
	}
	var tasks table
	for _, h := range []string{"PID", "TID", "START", "LOST", "THREAD"} {
		tasks.column(h, h != "THREAD")
	}
	for _, k := range in.Tasks {
		tasks.row(fmt.Sprint(k.PID), k.number, durationCell(k.Start), grouped(k.Lost), k.Comm)
	}
	fmt.Fprintln(w)
	tasks.write(w, p)
	if len(in.SwitchedOff) == 0 {
		return
	}
	var off table
	for _, h := range []string{"OFF FROM", "CALLS/S", "FUNCTION"} {
		off.column(h, h != "FUNCTION")
	}
	for _, s := range in.SwitchedOff {
		off.row(durationCell(s.From), grouped(uint64(s.Rate)), s.Name)
	}
	fmt.Fprintln(w)
	off.write(w, p)
}

// fieldWriter prints lines of a label and a value; empty values are left out.
type fieldWriter struct {
	w io.Writer
	p paint
}

func (f fieldWriter) field(label, value string) {
	if value != "" {
		fmt.Fprintf(f.w, "%s %s\n", f.p.with(sgrBold, fmt.Sprintf("%-12s", label)), printable(value))
	}
}

// infoProgram is info --json of a program.
type infoProgram struct {
	Path      string `json:"path"`
	Machine   string `json:"machine"`
	Type      string `json:"type"`
	BuildID   string `json:"build_id,omitempty"`
	Patched   bool   `json:"patched"`
	Image     string `json:"image,omitempty"`
	Tracer    string `json:"tracer,omitempty"`
	Functions int    `json:"functions"`
	OrigID    string `json:"original_build_id,omitempty"`
	Added     uint64 `json:"added_bytes"`
	goKnown
	GoRefusal string `json:"go_refusal,omitempty"`
}

// program prints what fentry put into a program.
func (c *infoCmd) program(a *app, path string) error {
	f, err := openImage(path)
	if err != nil {
		return err
	}
	defer f.close()
	in := infoProgram{
		Path: path, Machine: machine.Title(f.Header.Machine), Type: strings.TrimPrefix(f.Header.Type.String(), "ET_"),
		BuildID: fmt.Sprintf("%x", f.BuildID()),
	}
	in.goKnown = newGoKnown(record.GoVersion(f.File))
	pi, err := patch.Inspect(f.File)
	if err != nil {
		in.GoRefusal = record.GoRefusal(f.File)
	}
	switch {
	case err == nil:
		in.Patched, in.Image = true, trace.ImageID(pi.ImageID).String()
		in.Tracer, in.Functions = pi.Tracer.String(), len(pi.Sites)
		in.OrigID, in.Added = fmt.Sprintf("%x", pi.BuildID), pi.Added
	case !errors.Is(err, patch.ErrNotPatched):
		return fmt.Errorf("%s: %w", path, err)
	}
	if c.json {
		return writeJSON(a.stdout, in)
	}
	out, err := a.open()
	if err != nil {
		return err
	}
	in.write(fieldWriter{out, out.paint})
	return out.close(nil)
}

// goKnown is a version of Go that has linked an image, and where what is known of its runtime is from.
type goKnown struct {
	Go        string `json:"go,omitempty"`
	Described bool   `json:"go_described,omitempty"`
	Derived   bool   `json:"go_derived,omitempty"`
}

func newGoKnown(version string, from names.GoSource) goKnown {
	return goKnown{version, from == names.GoDescribed, from == names.GoDerived}
}

// String is what people read about it.
func (g goKnown) String() string {
	switch {
	case g.Described:
		return g.Go + ": not tried; what is known of its runtime is from the program's debug information"
	case g.Derived:
		return g.Go + ": not tried, and not described; what is known of its runtime is from the program's code, so fewer functions " +
			"are traced, and CPU profiles have their time elsewhere"
	}
	return g.Go
}

func (in *infoProgram) write(w fieldWriter) {
	w.field("program", in.Path)
	w.field("machine", in.Machine+", "+in.Type)
	w.field("build-id", in.BuildID)
	w.field("go", in.goKnown.String())
	w.field("not traced", in.GoRefusal)
	if !in.Patched {
		w.field("patched", "no")
		return
	}
	functions := plural(uint64(in.Functions), "function", "functions")
	w.field("patched", fmt.Sprintf("yes, %s traced with %s", functions, in.Tracer))
	w.field("image", in.Image)
	w.field("original", in.OrigID)
	w.field("added", size(in.Added))
}
