package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fentry-dev/fentry"
	"github.com/fentry-dev/fentry/internal/heap"
	"github.com/fentry-dev/fentry/internal/osthread"
	"github.com/fentry-dev/fentry/internal/parallel"
	"github.com/fentry-dev/fentry/patch"
	"github.com/fentry-dev/fentry/session"
	"github.com/fentry-dev/fentry/trace"
)

// The exit statuses of "fentry record" when the program did not run, as of env,
// nice and timeout.
const (
	exitRecord        = 125
	exitNotExecutable = 126
	exitNotFound      = 127
)

type recordCmd struct {
	traceFlags
	out      string
	buffer   string
	policy   string
	flight   flightFlags
	noPtrace bool
	overhead overheadFlag
	emulator string
	library  []string

	noSwitches bool
	compress   string
	noInherit  bool

	every time.Duration

	stackMode string
	mode      fentry.StackMode
	attach    []string
	usual     func() // ends the hurry before processes are attached to
	forTime   time.Duration
	control   string
}

func newRecordCmd(a *app) *cobra.Command {
	var c recordCmd
	cmd := &cobra.Command{
		Use:   "record [options] {[--] PROGRAM [args...] | -p PROCESS}",
		Short: "run a program traced",
		Long: `record runs a program, traces its functions and writes the trace to the
directory fentry.data, which replay, report and graph read. An existing trace is
kept as fentry.data.old; if it is still being recorded, record refuses to run.

The program's file is not changed, and the program runs from its own path with
its own arguments and environment: it is stopped once, before its first
instruction, while the tracer is put into its memory. Programs that it
executes are traced in the same way, all of a build, a script or a test run,
unless --no-inherit is given; -v says which ones were, and why others were
not. In PID namespaces that it makes they have the ids that are seen there.
Only those made by "fentry patch" are traced in any case. Recording ends when
the program and the traced processes it leaves behind have ended; a second ^C
ends it at once.

With -L, shared libraries are traced, too, whether they are loaded with the
program or later, and those of programs that it executes. They are named with
or without versions, libz or libz.so.1; a pattern with a slash is one of
paths. Patched copies take their place. Libraries of other users are left
alone, and so are all libraries of set-ID programs. Patched copies and lists
of functions and system calls are kept in $XDG_CACHE_HOME/fentry and can be
deleted at any time.

A program for another machine runs under an emulator, which is detected
automatically (qemu-aarch64, with the libraries of Debian's cross compilers or
those below $QEMU_LD_PREFIX). The emulator is given a copy of the program with
the tracer in it; with -L, the libraries that are loaded with it are traced,
those that it loads later are not.

With --flight, fentry is a flight recorder: tracing costs the same, and the
newest events stay in memory. They are written when the program has ended, or
only if it ended as --dump-on says; and to DIR.1, DIR.2 and so on each time
"fentry dump" asks for it, or the signal SIGUSR2, while the program goes on.
So do calls: with --dump-on 'FUNC>TIME' those that took longer, with the
trigger FUNC@snapshot all; within a second of another they are only counted, and use
up nothing of a COUNT, which is one of dumps.

A trigger with time>T is looked at when a call ends: FUNC@time>10ms,stacktrace
shows who made those that took longer. A call that ends by a jump out of it, or
to another function, is not looked at, nor one that began while tracing paused.

With -p, processes are recorded that run already, the children that they fork,
and programs that they execute. They are stopped for a few milliseconds, at the
beginning and at the end, when all is put back; in between they run on. ^C ends
the recording, and so does --for. With -L, libraries are recorded that they have
loaded, or load later; --flight and --dump-on mean how the processes end, which
recent kernels tell. The few functions that begin with a call are not recorded,
nor are system calls of programs that can cancel threads (pthread_cancel).
Processes of other users, and those that a debugger traces, are left alone. If
the recorder is killed, the next one, or fentry detach, takes the tracer out.

Options go before PROGRAM: everything after it belongs to the program. The exit
status is the program's; a signal that kills it kills fentry too. If the program
could not be run, the status is 127 if it was not found, 126 if it is not
executable, and 125 otherwise. If nothing in the program can be traced, it runs
all the same, because it may start programs that can be; if none was traced in
the end, fentry says so, and an existing trace stays where it is.`,
		Example: `  fentry record ./prog input.txt              then: fentry replay, fentry report
  fentry record -F 'parse_*' ./prog           some functions only
  fentry record -G handle_request ./server    only what happens inside one function
  fentry record --graph-notrace log_message ./prog   nothing of that function, nor inside it
  fentry record -t 10us ./prog                calls of at least 10us
  fentry record -D 3 ./prog                   three levels of nested calls
  fentry record python3 script.py             an installed program: no compiler has prepared it
  fentry record -F 'cc1:parse_*' make         make and what it executes; functions of cc1 only
  fentry record --no-inherit make             make alone
  fentry record -L 'libssl*' -L libz curl https://example.org   functions of shared libraries, too
  fentry record --libcalls -F '*@plt' ls      what it calls in libraries, as ltrace shows
  fentry record --stack malloc ./prog   who calls malloc: the whole stack, traced or not
  fentry record --stack-at=futex,read -F none ./prog   who makes these system calls
  fentry record -F none --stack-every 1ms ./prog   a profile: stacks on a timer; then fentry report --stacks '*'
  fentry record --syscalls ./prog             system calls inside the functions that make them
  fentry record --syscalls -F none ls         system calls only, as strace shows
  fentry record --syscalls=%file,futex ./prog   some of them
  fentry record --trigger 'commit@traceoff,stacktrace:3' --trigger begin@traceon ./prog   only between two functions
  fentry record -A 'parse_*' -R 'parse_*' ./prog   arguments and results by their types
  fentry record -A 'get@n>100' ./prog              only calls with such an argument
  fentry record -A 'f@req->path,req->hdr.len' ./prog   ... members of what they point to
  fentry record -A 'f@arg1/s,arg2->16/x' ./prog   ... as you say, without debug information
  fentry record --args=auto ./prog            ... of all functions
  fentry record -F '*@plt' --args=auto ls     calls of the C library with arguments, as ltrace shows
  fentry record --overhead no perl script.pl  ... all of its calls, whatever that costs
  fentry record -T profile ./prog             counts and times, no events: a small trace
  fentry record -T count ./prog               counts only: next to no cost
  fentry record --clock none ./prog           nesting and order, no times
  fentry record --compress auto ./prog        a trace of a tenth of the size
  fentry record --policy drop ./prog          never wait for the disk
  fentry record --policy overwrite -b 16M ./prog   the newest 16 MiB of events
  fentry record --flight 64M --dump-on signal --dump-on exit!=0 ./server   ... if it ends badly; fentry dump PID: now
  fentry record --flight 64M --dump-on 'handle>10ms:5' ./server   ... when a request has taken long, five times at most
  fentry record --trigger 'handle@time>10ms,stacktrace' ./server   who makes calls that take long
  go test -exec "fentry record -o $PWD/traces/%n" ./...   a trace of each package's tests, in traces
  fentry record -p 1234 --for 5s              a process that runs, for five seconds
  fentry record -p redis-server -F 'aof*'     by name; until ^C
  fentry record -p redis-server -L libc       with a library that it has loaded
  fentry record -p nginx --syscalls           all processes of that name, with system calls
  fentry record -p 1234 -F none --stack-every 1ms --for 10s   a profile of it; nothing is put into it
  fentry record --emulator 'qemu-aarch64 -cpu cortex-a53' ./prog-arm64`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(c.attach) > 0 && len(args) > 0 {
				return usagef(cmd, "-p records processes that run, not %s", args[0])
			}
			if len(args) == 0 && len(c.attach) == 0 {
				return usagef(cmd, "no program given")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return c.run(a, cmd, args) },
	}
	c.traceFlags.add(cmd)
	c.addAvailableFlag(cmd)
	f := cmd.Flags()
	f.SetInterspersed(false)
	f.StringVarP(&c.out, "output", "o", "", "write the trace to `DIR`, with %n for the program's name and %p for the "+
		"recorder's process (default $FENTRY_DATA or fentry.data)")
	f.StringVarP(&c.buffer, "buffer", "b", "64M", "buffer events on their way to disk in `SIZE` of memory, with K, M or G")
	f.StringVar(&c.policy, "policy", "block", "use `POLICY` when the disk is too slow: "+
		"block (the program waits), drop (events are lost and counted) or overwrite (only the newest are kept)")
	c.flight.add(cmd)
	f.Var(&c.overhead, "overhead", "let tracing add at most `PERCENT` to the time that the program takes without, by "+
		"switching off functions that are called too often for what they tell; no: keep all; @FILE: keep all but those "+
		"that FILE lists, as info --switched-off writes it (default: 50 for programs that no compiler has prepared, if "+
		"no -F chooses functions; else no)")
	f.StringVar(&c.compress, "compress", compressNone, "compress the trace as it is written, `WHEN`: auto, a processor has "+
		"nothing else to do; zstd, in any case; none. The program never waits for it")
	f.BoolVar(&c.noSwitches, "no-switches", false, "do not record when threads are off a processor (report -f cpu,wait)")
	f.BoolVar(&c.noInherit, "no-inherit", false, "leave programs alone that the program executes")
	f.StringArrayVarP(&c.attach, "pid", "p", nil, "record `PROCESS`, which runs already: its id, several with commas, or "+
		"the name of a program (repeatable)")
	addAllThreads(f)
	f.DurationVar(&c.forTime, "for", 0, "end the recording after `TIME`, such as 5s; the program goes on")
	f.StringVar(&c.control, "control", "", "take commands from FIFOs, `fifo:COMMANDS[,ANSWERS]`, or fd: and their "+
		"descriptors, as perf has it: enable, disable, evlist, snapshot, stop, ping, and those of fentry control, a line each; "+
		"the answer is ack, or why not")
	f.DurationVar(&c.every, "stack-every", 0, "record the whole stack of each thread, and of all that the program starts, "+
		"whenever it has run for `TIME`, such as 1ms: at its next call or return that is traced, or with -F none at once, by "+
		"the kernel's perf events")
	f.StringVar(&c.stackMode, "stack-mode", "", "how --stack-every takes stacks, `MODE`: full, from all registers; partial, from "+
		"the stack pointer alone; deferred, at the thread's next event (default: full with -F none, else deferred)")
	f.BoolVar(&c.noPtrace, "no-ptrace", false, "run a patched copy instead of changing the program's memory; "+
		"programs that it executes are not traced")
	f.StringArrayVarP(&c.library, "library", "L", nil, "trace shared libraries, too, whose names match `PAT`: libz, "+
		"'libssl*', '*' (repeatable)")
	f.StringVar(&c.emulator, "emulator", "", "run the program under `COMMAND`, split into words as by a shell "+
		"(default for programs for another machine: qemu-aarch64 or qemu-x86_64)")
	cmd.ValidArgsFunction = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return nil, cobra.ShellCompDirectiveDefault
	}
	return cmd
}

func (c *recordCmd) run(a *app, cmd *cobra.Command, args []string) error {
	var err error
	if c.slow, err = c.flight.triggers(cmd); err != nil {
		return err
	}
	if err := c.checkEvery(cmd); err != nil {
		return err
	}
	heap.Generous()
	parallel.Waiters()
	if len(c.attach) > 0 {
		// What runs can leave others little time. The recording itself does without.
		c.usual = osthread.Hurry()
		defer c.usual()
	}
	o, err := c.runOptions(a, cmd)
	if err != nil {
		return err
	}
	opts := o.Plan
	o.Libraries, o.Dir, o.For = c.library, c.out, c.forTime
	o.Hurry = len(c.attach) > 0
	o.NoPtrace, o.NoSwitches, o.NoInherit = c.noPtrace, c.noSwitches, c.noInherit
	o.StackEvery, o.StackMode = c.every, c.mode
	if o.Dir == "" {
		o.Dir = a.dataDir()
	}
	if o.Overhead, err = c.overhead.limit(cmd, &c.traceFlags); err != nil {
		return err
	}
	if o.Plan.Without, err = c.overhead.leftOut(); err != nil {
		return recordError(err)
	}
	if o.Policy, err = parsePolicy(c.policy); err != nil {
		return usagef(cmd, "--policy: %v", err)
	}
	if o.Compress, err = parseCompress(c.compress); err != nil {
		return usagef(cmd, "--compress: %v", err)
	}
	if o.Buffer, err = parseSize(c.buffer); err != nil {
		return usagef(cmd, "--buffer: %v", err)
	}
	if err := c.flight.apply(cmd, &o); err != nil {
		return err
	}
	if o.Emulator, err = c.emulatorWords(cmd); err != nil {
		return err
	}
	o.Keeper = "/proc/self/exe"
	if o.Pipe, err = openControlPipe(c.control); err != nil {
		return usagef(cmd, "--control: %v", err)
	}
	o.Preparing = a.preparing()
	o.Info = trace.Info{Writer: "fentry " + version, Options: given(cmd)}
	c.tellUnmatched(a, &o)
	if len(c.library) == 0 && o.Plan.Without != nil {
		o.Planned = func(p *patch.Plan) { checkLeftOut(a, p, c.overhead.file) }
	}
	if len(c.attach) > 0 {
		return c.runAttached(a, o)
	}
	path, err := findRecorded(args[0])
	if err != nil {
		return recordError(err)
	}
	if o.Dir, err = tracePlace(o.Dir, path); err != nil {
		return recordError(pathError(err))
	}
	program := &exec.Cmd{Path: path, Args: args, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}
	res, err := fentry.Run(context.Background(), program, o)
	if err != nil {
		return recordError(pathError(err))
	}
	if res.Injected && res.Traced > 0 && a.verbose > 0 {
		held := res.Setup.Round(10 * time.Microsecond)
		a.notef("fentry: %s traced, the program was held for %v", plural(uint64(res.Traced), "function", "functions"), held)
	}
	if res.Kept && a.verbose > 0 {
		a.notef("fentry: %s: its functions are those that an earlier run has found", path)
	}
	if res.Way != "" && res.Traced > 0 && a.verbose > 0 {
		a.notef("fentry: %s: traced %s", path, res.Way)
	}
	c.libraries(a, res, opts)
	c.executed(a, res, opts)
	switch {
	case res.Empty:
		reportNothing(a, o.Dir)
	case res.Unwanted:
		reportUnwanted(a, &res.Result, c.flight.on)
	default:
		c.summary(a, &res.Result)
	}
	if res.Ended {
		return endLike(res.Status)
	}
	if res.Signal != 0 {
		dieOf(res.Signal)
		return &exitError{Code: 128 + int(res.Signal)}
	}
	return nil
}

// findRecorded finds the program to run, as a shell does.
func findRecorded(name string) (string, error) {
	path, err := session.LookPath(name)
	if here := "./" + name; errors.Is(err, session.ErrNotFound) && isProgram(here) {
		err = fmt.Errorf("%w; there is %s here", err, here)
	}
	return path, err
}

// emulatorWords is the command given with --emulator, nil if there is none.
func (c *recordCmd) emulatorWords(cmd *cobra.Command) ([]string, error) {
	if !cmd.Flags().Changed("emulator") {
		return nil, nil
	}
	words, err := splitWords(c.emulator)
	if err == nil && len(words) == 0 {
		err = errors.New("no command given")
	}
	if err != nil {
		return nil, usagef(cmd, "--emulator: %v", err)
	}
	return words, nil
}

// given returns the options as the user gave them, by name: those that say what is recorded, not where it goes or what
// fentry says of it.
func given(cmd *cobra.Command) (opts []string) {
	aside := []string{"all-threads", "color", "control", "no-pager", "output", "pid", "quiet", "verbose"}
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if slices.Contains(aside, f.Name) {
			return
		}
		values := []string{f.Value.String()}
		if several, ok := f.Value.(pflag.SliceValue); ok {
			values = several.GetSlice()
		}
		for _, v := range values {
			opts = append(opts, "--"+f.Name+"="+v)
		}
	})
	return opts
}

// isProgram tells whether a file looks like one to run.
func isProgram(path string) bool {
	fi, err := os.Stat(path)
	return err == nil && fi.Mode().IsRegular() && fi.Mode()&0o111 != 0
}

// parsePolicy reads the name of a policy.
func parsePolicy(s string) (trace.Policy, error) {
	switch s {
	case "block":
		return trace.PolicyBlock, nil
	case "drop":
		return trace.PolicyDrop, nil
	case "overwrite":
		return trace.PolicyOverwrite, nil
	}
	return 0, fmt.Errorf("unknown policy %q: use block, drop or overwrite", s)
}

// Values of --compress.
const (
	compressAuto = "auto"
	compressZstd = "zstd"
	compressNone = "none"
)

// parseCompress reads when to compress.
func parseCompress(s string) (session.Compression, error) {
	switch s {
	case compressAuto:
		return session.CompressAuto, nil
	case compressZstd:
		return session.CompressZstd, nil
	case compressNone:
		return session.CompressNone, nil
	}
	return 0, fmt.Errorf("unknown value %q: use auto, zstd or none", s)
}

// parseSize reads a number of bytes with an optional K, M or G (powers of 1024).
func parseSize(s string) (int64, error) {
	num, shift := s, 0
	for unit, sh := range map[string]int{"K": 10, "M": 20, "G": 30} {
		for _, suffix := range []string{unit, strings.ToLower(unit), unit + "B", unit + "iB"} {
			if n, ok := strings.CutSuffix(s, suffix); ok {
				num, shift = n, sh
			}
		}
	}
	v, err := strconv.ParseFloat(num, 64)
	if v *= float64(int64(1) << shift); err == nil && v > 0 && v < 1<<63 { // NaN is not
		return int64(v), nil
	}
	return 0, fmt.Errorf("%q is not a size such as 64M", s)
}
