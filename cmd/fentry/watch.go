package main

// What live and top have in common: a program that is run, or processes that run already, recorded in memory, and a
// stream of what happens, visited while it goes on.

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry"
	"github.com/fentry-dev/fentry/internal/parallel"
	"github.com/fentry-dev/fentry/patch"
	"github.com/fentry-dev/fentry/record"
	"github.com/fentry-dev/fentry/session"
	"github.com/fentry-dev/fentry/trace"
)

// watchFlags are the options of both.
type watchFlags struct {
	traceFlags
	attach    []string
	library   []string
	buffer    string
	forTime   time.Duration
	noInherit bool
	names     nameFlags
}

// add adds them; short is the letter of --buffer.
func (c *watchFlags) add(cmd *cobra.Command, short string) {
	c.traceFlags.add(cmd)
	c.addAvailableFlag(cmd)
	f := cmd.Flags()
	f.SetInterspersed(false)
	f.StringArrayVarP(&c.attach, "pid", "p", nil, "watch `PROCESS`, which runs already: its id, several with commas, or the "+
		"name of a program (repeatable)")
	addAllThreads(f)
	f.StringArrayVarP(&c.library, "library", "L", nil, "shared libraries, too, whose names match `PAT`: libz, 'libssl*', "+
		"'*' (repeatable)")
	f.StringVarP(&c.buffer, "buffer", short, "16M", "keep what is not shown yet in `SIZE` of memory, with K, M or G")
	f.Var((*durationFlag)(&c.forTime), "for", "end after `TIME`, such as 5s; the program goes on")
	f.BoolVar(&c.noInherit, "no-inherit", false, "leave programs alone that the program executes")
	c.names.add(cmd)
	cmd.ValidArgsFunction = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return nil, cobra.ShellCompDirectiveDefault
	}
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(c.attach) > 0 && len(args) > 0 {
			return usagef(cmd, "-p is for processes that run, not %s", args[0])
		}
		if len(args) == 0 && len(c.attach) == 0 {
			return usagef(cmd, "no program given")
		}
		return nil
	}
}

// runOptions translates the flags that say what is recorded of a run.
func (t *traceFlags) runOptions(a *app, cmd *cobra.Command) (o fentry.Options, err error) {
	if o.Plan, err = t.options(cmd); err != nil {
		return o, err
	}
	if err := t.addAvailable(cmd, &o.Plan); err != nil {
		return o, err
	}
	captures, err := t.captures(cmd, &o.Plan)
	if err != nil {
		return o, err
	}
	o.Plain, o.LibraryCalls, o.Syscalls, o.Symbols = t.plain.Plain, t.libcalls, t.syscalls != "no", a.symbols()
	o.GoRuntime = t.goRuntime
	o.Captured = captures.Captured
	o.Arguments, o.Results, o.AutoArguments, o.Conditions = captures.Arguments, captures.Results, captures.Auto, captures.Conditions
	o.Logf = func(format string, args ...any) { a.notef("fentry: "+format, args...) }
	return o, nil
}

// addAvailableFlag adds --available.
func (t *traceFlags) addAvailableFlag(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&t.available, "available", nil, "with -F: prepare functions that match `PAT`, too, so that "+
		"fentry control can switch them on; '*' for all (repeatable)")
}

// addAvailable has a plan prepare functions that are off at first.
func (t *traceFlags) addAvailable(cmd *cobra.Command, o *patch.Options) (err error) {
	if len(t.available) == 0 {
		return nil
	}
	if len(t.filter) == 0 {
		return usagef(cmd, "--available is for functions that -F leaves out")
	}
	if o.First, err = record.NewFilter(t.filter, t.notrace); err != nil {
		return usagef(cmd, "%v", err)
	}
	all := slices.Concat(t.filter, t.available)
	if len(t.filter) == 1 && t.filter[0] == "none" {
		all = t.available
	}
	if o.Select, err = record.NewFilter(all, t.notrace); err != nil {
		return usagef(cmd, "%v", err)
	}
	o.NoFunctions = false
	return nil
}

// A watcher gets what a stream has. Errors of a closed pipe end the recording, and are none of the command's.
type watcher interface {
	begin(t *trace.Trace, until int64) // of a look, which has what happened until a time
	event(*trace.Event) error          //
	end(over bool) error               // of a look, or of none that would have seen nothing; over: it is the last
	due() bool                         // a look is, even if nothing has happened
	wait(done <-chan struct{})         // until it is worth to ask whether something has
}

// run records, has w watch, and ends as the program did that was started.
func (c *watchFlags) run(a *app, cmd *cobra.Command, args []string, w watcher) error {
	o, err := c.recordOptions(a, cmd)
	if err != nil {
		return err
	}
	res, err := c.watch(a, cmd, args, o, w)
	if err == nil && !c.told { // before, not all that they are for had been looked at
		c.unmatched(a, &o.Plan)
	}
	if err != nil || len(c.attach) > 0 {
		return err
	}
	switch {
	case res.Ended:
		return endLike(res.Status)
	case res.Signal != 0:
		dieOf(res.Signal)
		return &exitError{Code: 128 + int(res.Signal)}
	}
	return nil
}

// recordOptions says what is recorded.
func (c *watchFlags) recordOptions(a *app, cmd *cobra.Command) (o fentry.Options, err error) {
	if o, err = c.runOptions(a, cmd); err != nil {
		return o, err
	}
	if tracer := o.Plan.Tracer; tracer != patch.FunctionGraph && tracer != patch.Function || o.Plan.NoClock {
		return o, usagef(cmd, "%s requires the tracer function_graph or function, with a clock", cmd.Name())
	}
	o.Libraries, o.For, o.NoInherit, o.NoSwitches, o.Overhead = c.library, c.forTime, c.noInherit, true, -1
	if o.Buffer, err = parseSize(c.buffer); err != nil {
		return o, usagef(cmd, "--buffer: %v", err)
	}
	c.tellUnmatched(a, &o)
	o.Info = trace.Info{Writer: "fentry " + version}
	return o, nil
}

// watch records, and has w watch. Nothing of it is left behind.
func (c *watchFlags) watch(
	a *app, cmd *cobra.Command, args []string, o fentry.Options, w watcher,
) (*fentry.Result, error) {
	work, err := os.MkdirTemp("", "fentry-"+cmd.Name()+"-")
	if err != nil {
		return nil, pathError(err)
	}
	defer os.RemoveAll(work)
	looks := filepath.Join(work, "look")
	if err := os.Mkdir(looks, 0o700); err != nil {
		return nil, pathError(err)
	}
	o.Dir = filepath.Join(work, "trace")
	pipes := make(chan os.Signal, 1)
	signal.Notify(pipes, syscall.SIGPIPE) // a reader that has gone is an error of the write
	defer signal.Stop(pipes)

	f := &following{w: w, over: make(chan struct{}), done: make(chan error, 1)}
	o.Live = func(l *fentry.Live) {
		f.stream = l.Stream(looks, c.names.options())
		go func() { f.done <- f.follow(l) }()
	}
	res, err := c.record(a, args, o)
	if err != nil {
		return nil, recordError(pathError(err))
	}
	a.stays(&res.Result)
	return res, f.finish(a, res)
}

// record records until the program, the processes or the recording end.
func (c *watchFlags) record(a *app, args []string, o fentry.Options) (*fentry.Result, error) {
	parallel.Waiters()
	if len(c.attach) > 0 {
		pids, err := findProcesses(c.attach)
		if err != nil {
			return nil, err
		}
		o.Hurry = true
		return fentry.Attach(context.Background(), pids, o)
	}
	path, err := findRecorded(args[0])
	if err != nil {
		return nil, err
	}
	program := &exec.Cmd{Path: path, Args: args, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}
	return fentry.Run(context.Background(), program, o)
}

// errEnoughSeen is what a watcher ends a recording with that has seen enough.
var errEnoughSeen = errors.New("enough")

// following has a watcher follow a stream.
type following struct {
	w      watcher
	stream *fentry.Stream
	over   chan struct{} // closed when the recording has ended
	done   chan error    // what following it ended with
}

// follow has the watcher look until the recording is over, or nobody wants to see more.
func (f *following) follow(l *fentry.Live) error {
	for {
		err := f.look()
		if errors.Is(err, session.ErrOver) {
			return nil
		}
		if err == nil {
			err = f.w.end(false)
		}
		if err != nil {
			l.End()
			return err
		}
		f.w.wait(f.over)
	}
}

// look has the watcher look, unless it would see nothing.
func (f *following) look() error {
	waiting, err := f.stream.Waiting()
	if err != nil || !waiting && !f.w.due() {
		return err
	}
	return f.stream.Next(f.w.begin, f.w.event)
}

// finish shows the rest, and says what was not shown.
func (f *following) finish(a *app, res *fentry.Result) error {
	close(f.over)
	if f.stream == nil {
		return nil
	}
	err := <-f.done
	if err == nil && res.Dir != "" {
		if err = f.stream.End(res, f.w.begin, f.w.event); err == nil {
			err = f.w.end(true)
		}
	}
	switch {
	case errors.Is(err, syscall.EPIPE), errors.Is(err, errEnoughSeen):
		return nil
	case err != nil:
		return pathError(err)
	}
	if res.Empty {
		a.sayf("fentry: nothing was traced")
	}
	if n := f.stream.Skipped; n > 0 {
		a.sayf("fentry: %s of %s were skipped: they came too fast to be shown%s", grouped(n),
			plural(res.Events+res.Lost+res.Overwrote, "event", "events"), uncounted(res))
	}
	return nil
}

// uncounted says of events that nobody has counted.
func uncounted(res *fentry.Result) string {
	if res.Uncounted {
		return ", and more that nobody counted"
	}
	return ""
}

// pipeClosed tells whether a stream is a pipe that nobody reads any more.
func pipeClosed(stream any) bool {
	f, ok := stream.(*os.File)
	if !ok {
		return false
	}
	fds := []unix.PollFd{{Fd: int32(f.Fd())}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n > 0 && fds[0].Revents&unix.POLLERR != 0
}

// pause waits for some time.
func pause(d time.Duration, done <-chan struct{}) {
	select {
	case <-done:
	case <-time.After(d):
	}
}
