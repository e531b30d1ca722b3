//go:build linux

package fentry

// A run is one session of one program, and its plan is made when the session's buffers are there, because the plan's
// configuration says where they are. A second plan, for a patched copy, is made only if the program cannot be changed
// in memory. Symbols are written as images announce themselves: those of the program from its plan, which knows them,
// those of patched programs that it starts from their files.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/arguments"
	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/internal/mapped"
	"github.com/fentry-dev/fentry/internal/safefile"
	"github.com/fentry-dev/fentry/names"
	"github.com/fentry-dev/fentry/patch"
	"github.com/fentry-dev/fentry/record"
	"github.com/fentry-dev/fentry/session"
	"github.com/fentry-dev/fentry/symbol"
	"github.com/fentry-dev/fentry/trace"
)

// Options are the options of [Run]. The zero value traces every traceable function with the function_graph tracer, to
// fentry.data.
type Options struct {
	// Plan says what to trace, and how. Run sets Target, Session, Policy and Path.
	Plan patch.Options
	// Plain says which functions that no compiler has prepared are traced. 0: all that can be if there are no others, and
	// those that a pattern of Plan.Select names.
	Plain record.Plain
	// Libraries are the shared libraries to be traced, loaded with the program or later: names, with or without
	// versions (libz, libz.so.1), or patterns of names such as libssl* or *, or of paths. nil: none. The same functions
	// are chosen as in the program. Patched copies take their place, which are kept in the user's cache directory.
	Libraries []string
	// GoRuntime adds the functions of the runtime of a Go program, as far as they can be traced.
	GoRuntime bool
	// LibraryCalls adds calls of libraries' functions, which are named function@plt. So does a pattern of Plan.Select that
	// ends with @plt.
	LibraryCalls bool
	// Syscalls records the program's system calls, and those of its libraries, which are patched for that whatever
	// Libraries says. Only for the tracers function_graph and function, without a threshold.
	Syscalls bool
	// Arguments and Results say of which functions arguments and results are captured, and which; AutoArguments captures
	// those of all functions that are traced and have debug information. Not with Profile, Count or a threshold. Functions
	// that Plan.Select does not choose are traced as well, in libraries if Libraries names them.
	Arguments, Results []arguments.Spec
	AutoArguments      bool
	// Conditions say which calls of functions whose arguments are captured are recorded: those that meet all that are
	// about an argument of the function. Specs can have more, for their own functions.
	Conditions []arguments.Condition
	// Captured, if not nil, tells which of Arguments and Results have matched functions.
	Captured *Captured
	// StackEvery takes the stacks of all threads, of what the program starts, too, each time that one has run for so long: at
	// the next event of functions that are traced, or with Plan.NoFunctions by the kernel's perf events, or, where those are
	// not allowed, at system calls, with a message to Logf. 0: none are taken.
	StackEvery time.Duration
	// StackMode says how: StackFull, StackPartial or StackDeferred. 0: StackFull where it can be.
	StackMode StackMode
	// Symbols says where names of functions come from; the zero value: from the program, or from its separate debug
	// file if that is installed.
	Symbols symbol.Options
	// Dir is the trace directory; "": fentry.data. An existing trace is renamed to Dir with ".old" appended, unless
	// it is still being written ([session.ErrRecording]).
	Dir string
	// Buffer is the size in bytes of the memory for events on their way to disk; 0: [session.DefaultBuffer].
	Buffer int64
	// Policy says what to do while the buffer is full; 0: the program waits.
	Policy trace.Policy
	// Flight makes the run a flight recorder, which needs trace.PolicyOverwrite; nil: it is none.
	Flight *session.Flight
	// NoInherit leaves programs alone that traced ones execute, unless fentry has patched them. Otherwise they are traced
	// like the program itself, where ptrace can be used and the trace holds events, not counts.
	NoInherit bool
	// NoPtrace runs a patched copy without trying ptrace. Otherwise a copy is run only if ptrace is refused.
	NoPtrace bool
	// Overhead bounds what tracing adds to the time that the program's threads take without, as a part of it: functions
	// are switched off that are called too often for what they tell, and the trace says which, and when. 0: to
	// DefaultOverhead, but only in images with functions that no compiler has prepared for tracing, and only if no
	// pattern of Plan.Select chooses functions. Less than 0: nothing is switched off, nor is it for profiles, without a
	// clock, with trace.PolicyOverwrite and under an emulator.
	Overhead float64
	// For ends the recording so long after the program has begun, or since processes are attached to; it goes on. 0: the
	// recording ends with the program.
	For time.Duration
	// Hurry has this process take precedence, where it may (CAP_SYS_NICE), while it attaches to processes and detaches from them:
	// hundreds of threads of theirs that all want to run would let it wait. Its own other threads are as urgent for that time.
	Hurry bool
	// NoSwitches does not record when threads were off a processor. Otherwise the function_graph tracer does, if it has a
	// clock and the kernel tells (trace.Info.Switches).
	NoSwitches bool
	// Compress says when events are compressed before they are written.
	Compress session.Compression
	// Emulator is the command that runs programs of another machine. nil: it is detected automatically
	// ([session.FindEmulator]).
	Emulator []string

	// Live is called when the program has begun, or the processes of Attach are recorded, and has the recording from then
	// on. The newest events are kept then, whatever Policy says. nil: nobody wants it.
	Live func(*Live)

	// Keeper is the path of an executable that keeps what is recorded if this process is killed ([session.Options].Keeper); "":
	// nothing does.
	Keeper string
	// Pipe controls the recording while it goes on, beside [session.Control]; nil: nothing does.
	Pipe *session.ControlPipe

	// Info gives Writer and Options of the trace's info.json.
	Info trace.Info
	// Planned, if not nil, is called with the plan before the program runs.
	Planned func(*patch.Plan)
	// Chosen, if not nil, is called before the program runs, when it is known which functions of it the patterns of Plan match.
	Chosen func()
	// Preparing, if not nil, is called with the path of a program or library before what can be traced in it is looked
	// for, and with "" when that is done: it can take seconds, and the program waits. There can be several calls at once.
	Preparing func(file string)
	// Logf receives messages for people, one line each without a newline; nil: they are discarded.
	Logf func(format string, args ...any)
}

// find is what is looked for in images.
func (o *Options) find() record.Options {
	calls := o.Syscalls || o.StackEvery > 0 && o.Plan.NoFunctions // where the kernel takes no stacks: sample
	return record.Options{Plain: o.Plain, LibraryCalls: o.LibraryCalls, Syscalls: calls, Named: o.Plan.Select,
		GoRuntime: o.GoRuntime, JumpsAway: o.Plan.Unwinders == patch.UnwindersBlind, Execs: !o.NoInherit && session.CanFollow()}
}

// DefaultOverhead is the bound of what tracing adds to a program of which somebody who wants to see what it does need
// not know anything: half of the time that it takes without.
const DefaultOverhead = 0.5

// overhead is the bound of a session.
func (o *Options) overhead() (limit float64, all bool) {
	switch {
	case o.Overhead != 0:
		return o.Overhead, true
	case o.Plan.Select.Chooses():
		return 0, false
	}
	return DefaultOverhead, false
}

// A Result describes a run.
type Result struct {
	session.Result
	// Traced is the number of functions traced in the program itself. It is 0 for one that fentry has patched, which
	// traces itself, and for one that ran untraced.
	Traced int
	// Untraced says why the program itself ran untraced; "" if it was traced.
	Untraced string
	// Kept: the program's functions are those that an earlier run has found.
	Kept bool
	// Libraries are those that Options.Libraries has named and that were loaded, in that order, and UnmatchedLibraries
	// the patterns that named none.
	Libraries          []Library
	UnmatchedLibraries []string

	// Executed are the programs that traced ones have executed, sorted by path.
	Executed []Executed
	// NotFollowed is why none of them could be traced; "": they could be, or were not to be (Options.NoInherit).
	NotFollowed string

	CopyError error // from copying the program's output to cmd.Stdout or cmd.Stderr; nil if all was copied
}

// Run runs a command traced, in place of cmd.Run, and returns when the program and all traced processes that it left
// behind have ended, or when ctx is done, which ends the tracing but no program. It uses Path, Args, Env, Dir, Stdin,
// Stdout, Stderr and ExtraFiles of cmd as cmd.Run does; SysProcAttr is refused.
//
// A program in which nothing can be traced runs untraced, with a message to Logf: it may be a script, or a program that
// starts others, which are traced if fentry has patched them. This is no error. [Result].Untraced says why, and if no
// program that it started was traced either, Result.Empty is set, no trace is made and an existing one stays in place.
//
// An error means that the program did not run. It wraps [session.ErrNotFound], [session.ErrNotExecutable],
// [session.ErrRecording] or an error of package patch, if that is the reason. Later errors are in the result.
func Run(ctx context.Context, cmd *exec.Cmd, o Options) (*Result, error) {
	if cmd.Err != nil {
		return nil, cmd.Err
	}
	path := cmd.Path
	if cmd.Dir != "" && !filepath.IsAbs(path) {
		path = filepath.Join(cmd.Dir, path)
	}
	if strings.Contains(path, "/") {
		if _, err := session.LookPath(path); err != nil {
			return nil, err
		}
	}
	session.Warm()
	o.Plan.RootsElsewhere = len(o.Libraries) > 0
	capturing, err := newCapturing(&o)
	if err != nil {
		return nil, err
	}
	plans := newPlans(&o, capturing)
	defer plans.close()
	p, kept := plans.openKept(path)
	if p == nil {
		if p, err = open(&Program{Path: path, symbols: o.Symbols, keeps: true, prepare: o.Preparing}, o.find()); err != nil {
			return nil, err
		}
	}
	defer p.Close()
	found := p.Kept && (kept != nil || p.traceable())
	res, err := p.run(ctx, cmd, o, capturing, plans, kept)
	if res != nil {
		res.Kept = found
	}
	return res, err
}

// [Run] is like the function Run, for a program that has been opened: cmd.Path and o.Symbols are not used.
func (p *Program) Run(ctx context.Context, cmd *exec.Cmd, o Options) (*Result, error) {
	o.Plan.RootsElsewhere = len(o.Libraries) > 0
	capturing, err := newCapturing(&o)
	if err != nil {
		return nil, err
	}
	return p.run(ctx, cmd, o, capturing, nil, nil)
}

// switches tells whether it is recorded when threads were off a processor.
func (o *Options) switches() bool {
	return !o.NoSwitches && o.Plan.Tracer == patch.FunctionGraph && !o.Plan.NoClock
}

// run is Run with what is captured, the plans that are kept, and that of the program; nil: none is.
func (p *Program) run(
	ctx context.Context, cmd *exec.Cmd, o Options, capturing *capturing, plans *plans, kept *keptPlan,
) (*Result, error) {
	if o.Live != nil {
		o.Policy = trace.PolicyOverwrite
	}
	r := run{p: p, o: o, capturing: capturing, plans: plans, kept: kept}
	so := session.Options{
		Path: p.Path, Args: cmd.Args, Env: cmd.Env, WorkDir: cmd.Dir, For: o.For,
		Dir: o.Dir, Buffer: o.Buffer, Policy: o.Policy, Flight: o.Flight, NoPtrace: o.NoPtrace, Emulator: o.Emulator,
		Profile: o.Plan.Tracer.ChunkSize() != 0, ChunkSize: o.Plan.Tracer.ChunkSize(), Info: o.Info, Logf: o.Logf,
		Prepare: r.memory, Symbols: r.symbols,
	}
	var err error
	if so.Emulator, err = p.emulator(o.Emulator); err != nil {
		return nil, err
	}
	r.emulated = len(so.Emulator) > 0
	r.sample(&so)
	o = r.o
	so.Untouched = r.untouched()
	so.Info.Tracer = o.Plan.Tracer.String()
	so.Overhead, so.OverheadAll = o.overhead()
	so.Compress = o.Compress
	so.Switches = o.switches()
	if cmd.SysProcAttr != nil {
		return nil, fmt.Errorf("%s: SysProcAttr is not supported", p.Path)
	}
	if cmd.Dir != "" {
		if so.Path, err = filepath.Abs(p.Path); err != nil {
			return nil, err
		}
	}
	if p.mapped != nil {
		so.File = p.mapped.Info
	}
	if r.planned() {
		so.PatchedCopy = r.copy
	}
	if !r.emulated && !o.NoPtrace && !r.untouched() {
		r.executed = newExecuted(&o)
		if r.executed != nil {
			r.executed.capturing, r.executed.plans = r.capturing, plans
		}
	}
	defer r.executed.close()
	defer func() { r.code.Close() }()
	defer r.added.close()
	if r.libraries, err = newLibraries(p, &o, r.executed != nil); err != nil {
		return nil, err
	}
	if r.libraries != nil {
		r.libraries.capturing = r.capturing
	}
	defer r.libraries.close()
	if r.libraries != nil {
		so.Library, so.OnlySwaps = r.libraries.open, o.onlySwaps()
		so.NoLoader = len(o.Libraries) == 0 && (p.File != nil && !p.loads() || p.unread()) || so.OnlySwaps && !p.loadsSwaps()
	}
	if p.Untraced != "" && o.Logf != nil && (r.executed == nil || p.File != nil || p.unread()) { // else it is said of what runs a script
		o.Logf("%s runs untraced: %s", p.Path, p.Untraced)
	}
	r.controlled(&so)
	if r.executed != nil {
		so.Follow = &session.Follow{Plan: r.executed.memory, Whole: r.executed.whole, Ahead: r.executed.ahead, Left: r.executed.leave, Loader: p.loader()}
	}
	r.o.Plan.Policy, r.o.Plan.Path = uint32(o.Policy), p.Path
	streams, err := openStreams(cmd)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.Path, err)
	}
	defer streams.close()
	select {
	case turn <- struct{}{}:
		defer func() { <-turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if so.Files, err = streams.fds(); err != nil {
		return nil, fmt.Errorf("%s: %w", p.Path, err)
	}
	out := &Result{Untraced: p.Untraced}
	if out.Result, err = session.Run(ctx, so); err != nil {
		return nil, err
	}
	streams.close()
	if out.Ended {
		// One that goes on running is served further on.
		out.CopyError = streams.wait()
	}
	switch {
	case r.kept != nil:
		out.Traced = r.kept.about.Traced
	case r.main != nil:
		out.Traced = r.main.Traced()
	case r.untraced != nil && p.Untraced == "":
		out.Untraced = strings.TrimPrefix(r.untraced.Error(), p.Path+": ")
		if out.Empty && o.Logf != nil {
			o.Logf("%s ran untraced: %s", p.Path, out.Untraced)
		}
	}
	out.Libraries, out.UnmatchedLibraries = r.libraries.results()
	out.Executed, out.NotFollowed = r.executed.results(), r.notFollowed()
	return out, nil
}

// notFollowed says why programs that it executes are not traced.
func (r *run) notFollowed() string {
	switch {
	case r.o.NoInherit || r.untouched():
		return ""
	case r.emulated:
		return "it runs under an emulator"
	case !session.CanFollow():
		return "not on this machine"
	case r.o.NoPtrace:
		return "that needs ptrace"
	case r.executed == nil:
		return "with this tracer they cannot be"
	}
	return ""
}

// emulator is the command that runs the program, if the kernel does not.
func (p *Program) emulator(given []string) ([]string, error) {
	switch {
	case p.File == nil:
		return nil, nil // a script's interpreter is this machine's
	case given != nil:
		return given, nil
	}
	var interpreter string
	err := mapped.Guard(func() error {
		interpreter = p.interpreter()
		return nil
	})
	if err != nil {
		return nil, err
	}
	found, err := session.FindEmulator(p.File.Header.Machine, interpreter)
	if err != nil {
		return nil, &emulatorError{p.Path, err}
	}
	return found, nil
}

// ErrEmulator is returned for a program of another machine for which no emulator is installed. The error that wraps
// it says what to install.
var ErrEmulator = errors.New("no emulator")

type emulatorError struct {
	path string
	err  error
}

func (e *emulatorError) Error() string   { return fmt.Sprintf("%s: %v", e.path, e.err) }
func (e *emulatorError) Unwrap() []error { return []error{ErrEmulator, e.err} }

// turn lets one run at a time: a session has descriptor 1000 of the process and its signals. Others wait, as parallel
// tests do.
var turn = make(chan struct{}, 1)

// run is a program being run.
type run struct {
	p    *Program
	o    Options
	main *patch.Plan // the plan that was applied last; nil: untraced

	plans *plans        // that are kept; nil: none are
	kept  *keptPlan     // the program's, in place of main until that is needed; nil: there is none
	full  sync.Once     // that was needed
	made  *patch.Memory // what it would have put into the program then
	as    planned       // how the program was planned last

	untraced error // why nothing is traced in the program; nil: something is, or it cannot be
	pool     string
	code     *os.File // the program with its code changed; nil: that is changed in place

	libraries *libraries // nil: none are traced
	executed  *executed  // nil: programs that it executes are left alone
	followed  *executed  // of processes that run already: programs that they execute; nil: these are left alone
	capturing *capturing
	doings    *doings // nil: nobody can change what is done at calls
	added     added   // functions that were not chosen in the beginning
	emulated  bool    // it runs under an emulator
}

// untouched tells whether programs are left as they are.
func (r *run) untouched() bool { return r.o.Plan.NoFunctions && !r.o.Syscalls }

// planned tells whether there is anything to plan.
func (r *run) planned() bool {
	return r.p.File != nil && r.p.Untraced == "" && !r.p.Patched && !r.untouched()
}

// plan plans tracing the program in a session.
func (r *run) plan(t patch.Target, pool string) error {
	if err := r.p.whole(); err != nil { // captures are decided by what is found
		return mapped.Named(r.p.Path, err)
	}
	o := r.o.Plan
	o.Target, o.Session = t, pool
	if r.executed != nil {
		o.Execs = r.p.tellingExecs()
	}
	var plan *patch.Plan
	made, typed := planned{program: r.p}, false
	err := mapped.Guard(func() (err error) {
		plan, made.noted, typed, err = planNoted(r.capturing, r.p, &o, func() (*patch.Plan, error) { return r.p.Plan(o) })
		return err
	})
	if err != nil {
		return err
	}
	made.untyped = !typed
	r.main, made.plan = plan, plan
	r.as = made
	return nil
}

// planBare plans a program in which nothing is traced, for its libraries.
func (r *run) planBare(pool string) error {
	o := r.o.Plan
	o.Target, o.Session = patch.Process, pool
	plan, err := r.p.Plan(bareOptions(o))
	if err == nil {
		r.main, r.as.untyped = plan, true // it is not kept
	}
	return err
}

// memory is what is put into the program at its exec stop.
func (r *run) memory(pool string) (*patch.Memory, error) {
	if r.pool = pool; r.executed != nil {
		r.executed.pool = pool
	}
	if r.emulated && r.o.Plan.Tracer.ChunkSize() != 0 {
		r.libraries.writeTo(pool)
	}
	if !r.planned() {
		return nil, nil
	}
	if r.kept != nil {
		if r.kept.memory.SetSession(pool) == nil && r.useKept() {
			r.chosen()
			r.loaderCalls(r.kept.memory)
			return r.kept.memory, nil
		}
		r.kept = nil
	}
	err := r.plan(patch.Process, pool)
	if errors.Is(err, patch.ErrNoSites) {
		r.untraced = err
	}
	if err == nil && r.emulated && r.libraries != nil && !r.main.Changes() {
		r.main = nil // a copy that is patched for nothing cannot be made
		return nil, nil
	}
	if errors.Is(err, patch.ErrNoSites) {
		if r.executed != nil || len(r.o.Libraries) == 0 || r.emulated {
			return nil, nil // what was chosen is in other images, or nowhere: it runs all the same
		}
		err = r.planBare(pool)
	}
	if err != nil {
		return nil, err
	}
	if r.o.Planned != nil {
		r.o.Planned(r.main)
	}
	r.chosen()
	var m *patch.Memory
	err = mapped.Guard(func() (err error) {
		m, err = r.main.Memory()
		return err
	})
	if err != nil {
		return nil, mapped.Named(r.p.Path, err)
	}
	if st, ok := statOf(r.p.mapped); ok && !r.emulated {
		key := ""
		_ = mapped.Guard(func() error { r.as.memory = m; key = r.plans.put(&r.as, &st, nil); return nil })
		if key != "" {
			if exe, st := r.exe(); exe != nil {
				r.plans.code(key, r.p.Path, exe, st, m)
				r.code = m.Code
				exe.Close()
			}
		}
	}
	r.loaderCalls(m)
	return m, nil
}

// chosen tells that it is known what patterns match in the program.
func (r *run) chosen() {
	if r.o.Chosen != nil {
		r.o.Chosen()
	}
}

// useKept is plans.use of the plan that is kept of the program.
func (r *run) useKept() bool {
	exe, st := r.exe()
	defer exe.Close()
	ok := r.plans.use(r.kept, r.p.Path, exe, st)
	r.code = r.kept.memory.Code
	return ok
}

// exe is the file of the program, as it was planned; nil: it cannot be opened, or is another one by now.
func (r *run) exe() (*os.File, *unix.Stat_t) {
	planned, ok := statOf(r.p.mapped)
	exe, err := safefile.Open(r.p.Path)
	st := new(unix.Stat_t)
	if err != nil || !ok || unix.Fstat(int(exe.Fd()), st) != nil || identity(st) != identity(&planned) {
		exe.Close()
		return nil, nil
	}
	return exe, st
}

// loaderCalls has the system calls of the program's dynamic loader recorded with its own.
func (r *run) loaderCalls(m *patch.Memory) {
	if !r.o.Syscalls || m.SyscallEnter == 0 || r.emulated {
		return
	}
	var err error
	if m.LoaderCalls, err = loaderCalls(r.p.loader(), r.o.Plan.Only.Of(r.p.File.Header.Machine)); err != nil && r.o.Logf != nil {
		r.o.Logf("%s: system calls of its dynamic loader are not recorded: %v", r.p.Path, err)
	}
}

// loaderCalls are the system calls of a dynamic loader; nil: there is none.
func loaderCalls(path string, only patch.SyscallSet) (calls *patch.LoaderCalls, err error) {
	if path == "" {
		return nil, nil
	}
	loader, err := open(&Program{Path: path, keeps: true}, record.Options{Plain: record.PlainNone, Syscalls: true})
	if err != nil {
		return nil, err
	}
	defer loader.Close()
	if loader.File == nil || loader.Syscalls == nil {
		return nil, fmt.Errorf("%s: %s", loader.Path, loader.Untraced)
	}
	err = mapped.Guard(func() error {
		calls, err = patch.NewLoaderCalls(loader.File, loader.Syscalls, only)
		return err
	})
	return calls, err
}

// planKept plans the program after all of which a plan was kept, as somebody wants more of it; nil: the file was changed.
func (r *run) planKept() *patch.Plan {
	r.full.Do(func() {
		err := r.plan(patch.Process, r.pool)
		if err == nil && r.main.ImageID == r.kept.about.Image {
			// It is made, as places come with that.
			err = mapped.Guard(func() (err error) { r.made, err = r.main.Memory(); return err })
		}
		if r.made == nil || err != nil {
			r.main = nil
		}
	})
	return r.main
}

// whole is what was put into the program, with what is not kept of it; nil: that cannot be had any more.
func (r *run) whole() *patch.Memory {
	if r.kept == nil || r.planKept() == nil {
		return nil
	}
	m := *r.made
	m.Code, m.CodeRX = r.kept.memory.Code, r.kept.memory.CodeRX
	return &m
}

// copy writes a patched copy of the program.
func (r *run) copy(pool string, f *os.File) error {
	if err := r.plan(patch.File, pool); err != nil {
		return err
	}
	return mapped.Guard(func() error {
		out, err := r.main.Output()
		if err != nil {
			return err
		}
		_, err = out.WriteTo(f)
		return err
	})
}

// symbols writes the .sym file of an image.
func (r *run) symbols(im session.Image, w io.Writer) error {
	if r.o.Live != nil {
		r.doings.l.table(im.ID) // which is asked for when all files have been closed, too
	}
	return mapped.Guard(func() error { return r.writeSymbols(im, w) })
}

// controlled lets a session be controlled while it runs.
func (r *run) controlled(so *session.Options) {
	t := &tables{of: r.names}
	so.Pipe, so.Keeper = r.o.Pipe, r.o.Keeper
	r.doings = &doings{r: r, l: t, notes: make(captureNotes), asked: make(captureNotes)}
	if !r.o.NoPtrace && !r.emulated {
		so.More, so.MoreOf = r.more, r.moreOf
	}
	so.Whole = r.whole
	so.Doing, so.Did = r.doings.understand, r.doings.did
	so.Match, so.Flat, so.Depth, so.Threshold = t.match, r.o.Plan.Flat, r.o.Plan.Depth, r.o.Plan.Threshold
	if first := r.o.Plan.First; first != nil {
		so.First, so.FirstText = r.first(t.matching(first)), first.String()
	}
	if r.o.Live != nil {
		so.Live = func(l *session.Live) { r.o.Live(&Live{Live: l, tables: t}) }
	}
}

// first is the functions of an image that are recorded from the beginning, by local id: as they were planned, or match.
func (r *run) first(match func(trace.ImageID) ([]uint32, error)) func(trace.ImageID) ([]uint32, error) {
	return func(image trace.ImageID) (ids []uint32, err error) {
		_, plan := r.planOf(image)
		if plan == nil {
			return match(image)
		}
		for i := range plan.Functions {
			if fn := &plan.Functions[i]; fn.ID != 0 && !fn.Off() {
				ids = append(ids, fn.ID)
			}
		}
		return ids, nil
	}
}

// names are the functions of an image that was planned; nil: it traces itself.
func (r *run) names(id trace.ImageID) (*names.Table, error) {
	if t := r.plannedNames(id); t != nil {
		return t, nil
	}
	t, err := r.libraries.names(id)
	if t != nil {
		t.Captures = r.doings.told(id, t.Captures)
	}
	return t, err
}

// plannedNames are the functions of a program that was planned; nil: it was not.
func (r *run) plannedNames(id trace.ImageID) *names.Table {
	p, plan := r.planOf(id)
	if plan == nil {
		return nil
	}
	t := planTable(p, plan)
	if plan.Options.Addition != nil { // the image that these are functions of names the others
		t.Funcs = slices.DeleteFunc(t.Funcs, func(f names.Func) bool { return f.ID == 0 })
	}
	t.Captures = r.doings.told(id, t.Captures)
	return t
}

func (r *run) writeSymbols(im session.Image, w io.Writer) error {
	if done, err := r.copyNames(im.ID, w); done {
		return err
	}
	if t := r.plannedNames(im.ID); t != nil {
		return names.Write(w, t)
	}
	if r.doings.tells(im.ID) { // more than the file that is kept
		if t, err := r.names(im.ID); t != nil || err != nil {
			if err != nil {
				return err
			}
			return names.Write(w, t)
		}
	}
	if done, err := r.libraries.writeNames(im.ID, w); done {
		return err
	}
	if im.IDs != "" {
		return session.ErrNoSymbols // numbers that need no table; readers look in the program
	}
	f, err := im.Open()
	if err != nil {
		return err
	}
	defer f.Close()
	m, err := mapped.Map(f, f.Name())
	if err != nil {
		return err
	}
	defer m.Close()
	ef, err := elfio.Parse(m.Data)
	if err != nil {
		return err
	}
	tab, err := names.From(ef, names.Image{ID: uint64(im.ID)})
	if err != nil {
		return err
	}
	tab.Path = im.Path
	return names.Write(w, tab)
}

// copyNames writes the symbol file of a program of which a plan was kept. done is false if it has none, or more is to be
// said.
func (r *run) copyNames(id trace.ImageID, w io.Writer) (done bool, err error) {
	kept := r.kept
	if !kept.is(id) {
		x := r.executed.fileOf(id)
		if x == nil || x.kept == nil {
			return false, nil
		}
		kept = x.kept
	}
	if r.doings.told(id, nil) != nil {
		return false, nil
	}
	return r.plans.copyNames(kept, w)
}

// kindOf is the kind of a function for readers.
func kindOf(fn *patch.Func) string {
	if fn.Silent() {
		return names.KindSilent
	}
	return fn.Kind.String()
}

// planTable is the functions of a program by its plan.
func planTable(p *Program, plan *patch.Plan) *names.Table {
	t := names.New(p.File)
	t.Path, t.BuildID, t.Image = p.Path, plan.BuildID, plan.ImageID
	t.Captures, t.Module, t.Go = plan.Notes(), plan.Module(), plan.GoRuntime()
	for i := range plan.Functions {
		fn := &plan.Functions[i]
		t.Funcs = append(t.Funcs, names.Func{
			ID: fn.ID, Addr: fn.Func, Size: fn.Size, Site: fn.Addr, Kind: kindOf(fn), Name: fn.Name,
		})
		for _, name := range fn.Aliases {
			t.Alias(fn.Func, name)
		}
	}
	return t
}
