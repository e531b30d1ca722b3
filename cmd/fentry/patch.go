package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry"
	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/internal/atomicfile"
	"github.com/fentry-dev/fentry/internal/machine"
	"github.com/fentry-dev/fentry/internal/mapped"
	"github.com/fentry-dev/fentry/internal/safetext"
	"github.com/fentry-dev/fentry/internal/syscalls"
	"github.com/fentry-dev/fentry/patch"
	"github.com/fentry-dev/fentry/record"
	"github.com/fentry-dev/fentry/symbol"
	"github.com/fentry-dev/fentry/trace"
)

// traceFlags are the options that say what is traced; record and patch share them.
type traceFlags struct {
	filter, notrace, graph []string
	available              []string // what -F leaves out and can be switched on
	minSize                uint64
	without                []string
	depth                  uint32
	threshold              time.Duration
	tracer, clock          string
	plain                  plainFlag
	libcalls, goRuntime    bool
	syscalls               string
	triggers, stacks       []string
	slow                   []string // triggers of other flags
	stackAt                string
	nothing                bool // -F none is meant so, without system calls
	told                   bool // which patterns match nothing
	captureFlags
}

// clocks are the values of --clock, the default first.
var clocks = []string{"counter", trace.ClockNone}

func (t *traceFlags) add(cmd *cobra.Command) {
	f := cmd.Flags()
	addPatternFlags(cmd, &t.filter, &t.notrace, "trace")
	f.StringArrayVarP(&t.graph, "graph", "G", nil, "record only inside functions that match `PAT` (repeatable)")
	f.Uint64VarP(&t.minSize, "min-size", "Z", 0, "leave out functions of fewer than `BYTES` bytes of code")
	f.StringArrayVar(&t.without, "graph-notrace", nil, "leave out functions that match `PAT`, and everything inside them "+
		"(repeatable)")
	f.Uint32VarP(&t.depth, "depth", "D", 0, "record only the first `N` levels of nested calls; 0: all")
	f.VarP((*durationFlag)(&t.threshold), "threshold", "t", "leave out calls shorter than `TIME`, such as 10us or 1.5ms")
	t.plain.add(cmd, "trace")
	addLibraryCalls(cmd, &t.libcalls, "trace")
	addRuntime(cmd, &t.goRuntime, "trace")
	f.StringVar(&t.syscalls, "syscalls", "no", "record system calls: all (as without `WHICH`), no, or a list of names, "+
		"strace's classes such as %file, /regular expressions/ and !negations; with -F none, no function is traced")
	f.Lookup("syscalls").NoOptDefVal = "all"
	addTriggers(cmd, &t.triggers)
	addStack(cmd, &t.stacks, &t.stackAt)
	t.captureFlags.add(cmd)
	f.StringVarP(&t.tracer, "tracer", "T", patch.FunctionGraph.String(),
		"use `TRACER`: "+strings.Join(patch.Tracers(), ", ")+"; "+bothTracers+" begins with the first, and can become the other "+
			"while it runs")
	f.StringVar(&t.clock, "clock", clocks[0],
		"take the time of events from `CLOCK`: "+strings.Join(clocks, ", ")+" (nesting and order only)")
}

// plainFlag is the value of --plain.
type plainFlag struct{ record.Plain }

func (p *plainFlag) Set(s string) (err error) {
	p.Plain, err = record.ParsePlain(s)
	return err
}

func (p *plainFlag) Type() string { return "WHEN" }

// add adds --plain; verb is what happens to the functions.
func (p *plainFlag) add(cmd *cobra.Command, verb string) {
	f := cmd.Flags().VarPF(p, "plain", "", verb+" functions that no compiler has prepared, too, by moving their first "+
		"instructions: all (as without `WHEN`), no, or auto (if there are no others)")
	f.NoOptDefVal = record.PlainAll.String()
}

// addRuntime adds --runtime; verb is what happens to the functions.
func addRuntime(cmd *cobra.Command, to *bool, verb string) {
	cmd.Flags().BoolVar(to, "runtime", false, verb+" the functions of a Go program's runtime, too, where that is safe")
}

// addLibraryCalls adds --libcalls; verb is what happens to the calls.
func addLibraryCalls(cmd *cobra.Command, to *bool, verb string) {
	cmd.Flags().BoolVar(to, "libcalls", false,
		verb+" calls of libraries' functions, too, as strlen@plt; a pattern that ends with @plt implies it")
}

// bothTracers is what a recording can begin with that is to become one of function_graph while it runs.
const bothTracers = "function,function_graph"

// options translates the flags.
func (t *traceFlags) options(cmd *cobra.Command) (patch.Options, error) {
	var o patch.Options
	var err error
	if t.tracer == bothTracers {
		t.tracer, o.Flat = patch.FunctionGraph.String(), true
	}
	if o.Tracer, err = patch.ParseTracer(t.tracer); err != nil {
		return o, usagef(cmd, "--tracer: %v", err)
	}
	if o.Actions, err = triggerActions(cmd, slices.Concat(t.triggers, t.slow)); err != nil {
		return o, err
	}
	if o.Actions, err = addStacks(cmd, o.Actions, t.stacks); err != nil {
		return o, err
	}
	if o.Actions != nil && o.Tracer != patch.FunctionGraph && o.Tracer != patch.Function {
		return o, usagef(cmd, "--trigger and --stack require the tracer function_graph or function: there are no events with %s", o.Tracer)
	}
	selective := t.depth != 0 || t.threshold != 0 || len(t.graph)+len(t.without) > 0 || decides(o.Actions)
	if o.Tracer != patch.FunctionGraph && selective {
		return o, usagef(cmd, "--depth, --threshold, --graph, --graph-notrace and triggers with depth= or time> require the function_graph tracer")
	}
	if !slices.Contains(clocks, t.clock) {
		return o, usagef(cmd, "--clock: no clock %q; there are %s", t.clock, strings.Join(clocks, ", "))
	}
	if o.Flat && (selective || t.clock == trace.ClockNone) {
		return o, usagef(cmd, "--tracer %s requires a clock, and none of --depth, --threshold, --graph, --graph-notrace and "+
			"triggers with depth= or time>", bothTracers)
	}
	if o.NoClock = t.clock == trace.ClockNone; o.NoClock && (o.Tracer != patch.FunctionGraph || selective) {
		return o, usagef(cmd, "--clock none requires the function_graph tracer without --depth, --threshold, --graph, "+
			"--graph-notrace and triggers with depth= or time>")
	}
	if err := t.checkSyscalls(cmd, &o); err != nil {
		return o, err
	}
	selected, err := t.selects(cmd)
	if err != nil {
		return o, usagef(cmd, "%v", err)
	}
	if !o.NoFunctions {
		o.Select = selected
	}
	if len(t.graph) > 0 {
		if o.Roots, err = record.NewFilter(t.graph, nil); err != nil {
			return o, usagef(cmd, "%v", err)
		}
	}
	if len(t.without) > 0 {
		if o.Hide, err = record.NewFilter(t.without, nil); err != nil {
			return o, usagef(cmd, "%v", err)
		}
	}
	o.Depth, o.Threshold, o.MinSize = t.depth, t.threshold, t.minSize
	return o, nil
}

// checkSyscalls checks what --syscalls requires. With -F none no function is traced.
func (t *traceFlags) checkSyscalls(cmd *cobra.Command, o *patch.Options) error {
	if t.stackAt != "" && t.syscalls == "no" {
		t.syscalls = t.stackAt
	}
	switch {
	case t.syscalls == "no":
		o.NoFunctions = t.nothing
		return nil
	case o.Tracer != patch.FunctionGraph && o.Tracer != patch.Function:
		return usagef(cmd, "--syscalls requires the tracer function_graph or function: %s writes no events", o.Tracer)
	case t.threshold != 0:
		return usagef(cmd, "--syscalls does not go with --threshold, which writes a call when it has lasted that long: "+
			"system calls inside it would come first. replay, report and graph have -t, too")
	}
	if t.stackAt != "" {
		if err := syscallSets(cmd, "--stack-at", t.stackAt, &o.StackAt); err != nil {
			return err
		}
	}
	if t.syscalls != "all" {
		if err := syscallSets(cmd, "--syscalls", t.syscalls, &o.Only); err != nil {
			return err
		}
		for _, m := range machine.All { // stacks are those of calls that are recorded
			set := o.Only.Of(m.ELF)
			for i, w := range o.StackAt.Of(m.ELF) {
				set[i] |= w
			}
			o.Only.Set(m.ELF, set)
		}
	}
	o.NoFunctions = len(t.filter) == 1 && t.filter[0] == "none" && len(t.notrace) == 0
	return nil
}

// syscallSets sets the system calls that a flag's value names, of each machine. A set is never empty, which has another
// meaning.
func syscallSets(cmd *cobra.Command, flag, value string, to *patch.SyscallSets) error {
	filter, err := syscalls.ParseFilter(value)
	if err != nil {
		return usagef(cmd, "%s: %v", flag, err)
	}
	some := false
	for _, m := range machine.All {
		var set patch.SyscallSet
		calls := syscalls.MachineOf(m.Go)
		for _, c := range calls.Calls() {
			if filter.Match(calls, uint64(c.Number)) {
				set.Add(uint64(c.Number))
			}
		}
		if some = some || !set.All(); set.All() {
			set.Add(patch.NoSyscall)
		}
		to.Set(m.ELF, set)
	}
	if !some {
		return usagef(cmd, "%s: %q leaves no system call", flag, value)
	}
	return nil
}

// tellUnmatched has a run tell which patterns match nothing before the program begins, if that is known then. Else (told) it is to
// be told when it is over.
func (t *traceFlags) tellUnmatched(a *app, o *fentry.Options) {
	if plan := o.Plan; len(o.Libraries) == 0 && !t.choosesImages(&plan) {
		o.Chosen = func() {
			t.told = true
			t.unmatched(a, &plan)
		}
	}
}

// unmatched tells which patterns have matched nothing.
func (t *traceFlags) unmatched(a *app, o *patch.Options) {
	a.unmatched("", o.Select.Unmatched())
	a.unmatched("--graph: ", o.Roots.Unmatched())
	a.unmatched("--graph-notrace: ", o.Hide.Unmatched())
	if o.Actions != nil {
		for i, r := range o.Actions.Rules {
			a.unmatched(t.ruleOption(i, len(o.Actions.Rules))+": ", r.Functions.Unmatched())
		}
	}
	arguments, results := t.captured.Unmatched()
	a.unmatched("--argument: ", arguments)
	a.unmatched("--retval: ", results)
}

// unmatched warns of patterns that have matched nothing; option is where they were given.
func (a *app) unmatched(option string, patterns []string) {
	for _, p := range patterns {
		hint := ""
		if plainName().MatchString(p) {
			hint = fmt.Sprintf("; if a library has it: %s%s, its calls, or -L", p, symbol.CallSuffix)
		}
		a.notef("fentry: warning: %spattern %q matches no traceable function%s", option, p, hint)
	}
}

// ruleOption is the option that has made one of so many rules of actions: they are in the order of options.
func (t *traceFlags) ruleOption(i, n int) string {
	if len(t.stacks) > 0 {
		if n--; i == n {
			return "--stack"
		}
	}
	if i >= n-len(t.slow) {
		return "--dump-on"
	}
	return "--trigger"
}

// choosesImages tells whether patterns are for functions of some images: what they match is known when all are.
func (t *traceFlags) choosesImages(o *patch.Options) bool {
	return o.Select.ChoosesImages() || t.captured.ChoosesImages()
}

// plainName is a pattern that is just the name of a function in C.
var plainName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z_]\w*$`) })

type patchCmd struct {
	traceFlags
	out                  string
	inPlace              bool
	undo, verify, plan   bool
	json, keep, keepLink bool
	force                bool
	dir                  string
}

func newPatchCmd(a *app) *cobra.Command {
	var c patchCmd
	cmd := &cobra.Command{
		Use:   "patch [options] -o OUT PROGRAM",
		Short: "make a program that traces itself",
		Long: `patch writes a copy of a program that traces itself wherever it runs, without
fentry, root, ptrace or a preloaded library. When run, it writes the directory
fentry.data (or $FENTRY_DATA), which replay, report and graph read. With
FENTRY_OFF=1 in its environment it runs untraced.

PROGRAM can be a shared library: every program that loads the copy is traced in
it.

The original bytes are kept inside: --undo restores the file, byte for byte.`,
		Example: `  fentry patch -o prog.traced prog && ./prog.traced && fentry replay
  fentry patch -F 'parse_*' -F '/^lex/' -o prog.traced prog   some functions only
  fentry patch -o lib/libz.so.1 /usr/lib/x86_64-linux-gnu/libz.so.1 &&
    LD_LIBRARY_PATH=lib prog                                  a library, in any program
  fentry patch -A 'parse_*' -R 'parse_*' -o prog.traced prog  arguments and results, too
  fentry patch --plan prog                                    show what would change
  fentry patch --verify prog.traced                           check a patched program
  fentry patch --undo -o prog prog.traced                     restore the original
  fentry patch --in-place prog                                replace the file itself`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return c.run(a, cmd, args[0]) },
	}
	c.traceFlags.add(cmd)
	f := cmd.Flags()
	f.StringVarP(&c.out, "output", "o", "", "write to `OUT` (- for standard output)")
	f.BoolVarP(&c.inPlace, "in-place", "w", false, "replace PROGRAM itself, atomically")
	f.BoolVar(&c.keepLink, "keep-links", false, "with --in-place: keep hard links (not atomic)")
	f.BoolVar(&c.undo, "undo", false, "restore the original of a patched program")
	f.BoolVar(&c.verify, "verify", false, "check a patched program; write nothing")
	f.BoolVarP(&c.plan, "plan", "n", false, "print what would be changed; write nothing")
	f.BoolVar(&c.json, "json", false, "with --plan: print JSON")
	f.BoolVar(&c.keep, "keep-calls", false,
		"leave the profiling calls of untraced functions (default: turn them into nops)")
	f.BoolVar(&c.force, "force", false, "patch a program that has data appended to it, such as a self-extracting archive")
	f.StringVar(&c.dir, "data", "",
		"`DIR` to which the patched program writes (default fentry.data in its working directory)")
	return cmd
}

func (c *patchCmd) run(a *app, cmd *cobra.Command, path string) error {
	modes := 0
	for _, m := range []bool{c.undo, c.verify, c.plan} {
		if m {
			modes++
		}
	}
	switch {
	case modes > 1:
		return usagef(cmd, "--undo, --verify and --plan are mutually exclusive")
	case c.out != "" && (c.inPlace || c.verify || c.plan):
		return usagef(cmd, "-o cannot be used with --in-place, --verify or --plan")
	case c.out == "" && !c.inPlace && !c.verify && !c.plan:
		return usagef(cmd, "say where to write: -o OUT, or --in-place")
	case c.json && !c.plan:
		return usagef(cmd, "--json requires --plan")
	}
	opts, err := c.options(cmd)
	if err != nil {
		return err
	}
	captures, err := c.captures(cmd, &opts)
	if err != nil {
		return err
	}
	captures.Logf = func(format string, args ...any) { a.notef("fentry: "+format, args...) }
	// Little of what planning allocates becomes garbage before it ends.
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(2 << 30)
	if sameFile(path, c.out) {
		return usagef(cmd, "-o %s is PROGRAM itself; --in-place replaces it", c.out)
	}
	file, err := mapped.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	image := file.Data
	if c.verify {
		in, err := patch.Verify(image)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		functions := plural(uint64(len(in.Sites)), "function", "functions")
		a.notef("%s: %s traced with %s, the original can be restored", path, functions, in.Tracer)
		return nil
	}
	if c.undo {
		orig, err := patch.Undo(image)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		return c.write(a, path, func(w io.Writer) error {
			if _, err := w.Write(orig); err != nil {
				return err
			}
			return file.Changed()
		})
	}
	opts.Keep, opts.Dir, opts.Path, opts.Overlay = c.keep, c.dir, path, c.force
	find := record.Options{Plain: c.plain.Plain, LibraryCalls: c.libcalls, Syscalls: c.syscalls != "no",
		Named: opts.Select.In(path), GoRuntime: c.goRuntime}
	p, orig, err := planFile(image, opts, a.symbols(), find, captures)
	if errors.Is(err, patch.ErrOverlay) {
		return fmt.Errorf("%s: %w; use --force to patch it anyway, or fentry record, which does not change the file",
			path, err)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, withTracer(err))
	}
	c.unmatched(a, &opts)
	if c.plan {
		if c.json {
			return writeJSON(a.stdout, p)
		}
		return p.WriteText(a.stdout)
	}
	out, err := p.Output()
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	source := path
	if &orig[0] != &image[0] {
		source = "" // the original is in memory only
	}
	err = c.write(a, path, func(w io.Writer) error {
		if err := writeOutput(w, source, out); err != nil {
			return err
		}
		return file.Changed()
	})
	if err != nil {
		return err
	}
	a.notef("%s: %s of %s traced", path, grouped(uint64(p.Traced())), plural(uint64(p.Total()), "function", "functions"))
	return nil
}

// planFile plans the patched copy of an image. A patched image is planned as if
// it had been undone before; orig is the image the plan is for. Names of a separate debug file stay mapped.
func planFile(image []byte, o patch.Options, so symbol.Options, find record.Options, captures fentry.Captures) (p *patch.Plan,
	orig []byte, err error) {
	f, err := elfio.Parse(image)
	if err != nil {
		return nil, nil, err
	}
	if _, err := patch.Inspect(f); err == nil {
		if image, err = patch.Undo(image); err != nil {
			return nil, nil, fmt.Errorf("already patched, and cannot be undone: %w", err)
		}
		if f, err = elfio.Parse(image); err != nil {
			return nil, nil, err
		}
	} else if !errors.Is(err, patch.ErrNotPatched) {
		return nil, nil, err
	}
	so.Path = o.Path
	if find.Symbols, err = symbol.NewWith(f, so); err != nil {
		return nil, nil, err
	}
	if find.Syscalls {
		calls, err := record.Syscalls(f, find.Symbols)
		if err != nil {
			return nil, nil, err
		}
		o.Syscalls = &calls
	}
	sites, err := record.Find(f, find)
	if err != nil {
		return nil, nil, err
	}
	if err := fentry.PlanCaptures(f, sites, find.Symbols, &o, captures); err != nil {
		return nil, nil, err
	}
	p, err = patch.New(f, sites, o)
	return p, image, err
}

// writeOutput writes a patched file. A copy that shares its blocks with the original, the file orig ("" when there is
// none), is changed where it has to be, if that is in few places; else all is written.
func writeOutput(w io.Writer, orig string, out *elfio.Output) error {
	if f, ok := w.(*os.File); ok {
		const page = 4096
		if orig != "" && int64(len(out.Edits))*2*page < out.Size() {
			if done, err := cloneOutput(f, orig, out); done || err != nil {
				return err
			}
		}
		// Blocks that are there already are cheaper to write to, and a full disk is noticed at once.
		switch err := unix.Fallocate(int(f.Fd()), 0, 0, out.Size()); err {
		case unix.ENOSPC, unix.EFBIG, unix.EDQUOT:
			return err
		}
	}
	_, err := out.WriteTo(w)
	return err
}

// cloneOutput writes a patched file on file systems that can share blocks between files; done is false on others.
func cloneOutput(f *os.File, orig string, out *elfio.Output) (done bool, err error) {
	src, err := os.Open(orig)
	if err != nil {
		return false, pathError(err)
	}
	defer src.Close()
	if unix.IoctlFileClone(int(f.Fd()), int(src.Fd())) != nil {
		return false, nil
	}
	fi, err := f.Stat()
	if err != nil {
		return false, err
	}
	if fi.Size() != out.OriginalSize() {
		return false, fmt.Errorf("%s changed while it was read", orig)
	}
	return true, out.ApplyTo(f)
}

// write replaces the output file. The result of patching keeps mode, owner and
// attributes of the input, but not its set-ID bits or capabilities unless it
// replaces the input: a second program with privileges is not what was asked for.
func (c *patchCmd) write(a *app, in string, body func(io.Writer) error) error {
	if c.out == "-" {
		// Not as a file: standard output may be a pipe, or a file that is appended to.
		return body(struct{ io.Writer }{a.stdout})
	}
	// A new file can be made again, and is not flushed to disk, as with linkers.
	o := atomicfile.Options{Like: in, DropSetID: true, NoSync: true}
	out := c.out
	if c.inPlace {
		out = in
		o = atomicfile.Options{KeepLinks: c.keepLink}
	}
	return atomicfile.Write(out, o, func(w *os.File) error { return body(w) })
}

func writeJSON(w io.Writer, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	var buf bytes.Buffer
	if err := json.Indent(&buf, safetext.JSON(b), "", "  "); err != nil {
		return err
	}
	buf.WriteByte('\n')
	_, err = buf.WriteTo(w)
	return err
}

// sameFile tells whether both names lead to one existing file.
func sameFile(a, b string) bool {
	if b == "" || b == "-" {
		return false
	}
	ai, err := os.Stat(a)
	if err != nil {
		return false
	}
	bi, err := os.Stat(b)
	return err == nil && os.SameFile(ai, bi)
}

// pathError puts the path first, as in all messages of fentry.
func pathError(err error) error {
	var pe *os.PathError
	if errors.As(err, &pe) {
		return fmt.Errorf("%s: %w", pe.Path, pe.Err)
	}
	return err
}
