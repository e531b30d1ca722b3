package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fentry-dev/fentry/record"
	"github.com/fentry-dev/fentry/session"
	"github.com/fentry-dev/fentry/trace"
)

// inputFlags name the trace a command reads, and how its names are shown.
type inputFlags struct {
	dir   string
	tids  []int
	pids  []int
	gs    []uint
	names nameFlags
}

func (in *inputFlags) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVarP(&in.dir, "input", "i", "", "read the trace in `DIR` (default $FENTRY_DATA or fentry.data)")
	f.IntSliceVar(&in.tids, "tid", nil, "read only the threads `TID`[,TID...]")
	f.UintSliceVar(&in.gs, "goroutine", nil, "read only the goroutines `N`[,N...] of Go programs")
	f.IntSliceVar(&in.pids, "pid", nil, "read only the processes `PID`[,PID...]; with --tid, also these threads")
	in.names.add(cmd)
	cmd.ValidArgsFunction = completeTraceDir
}

// completeTraceDir completes the operand of commands that read a trace.
func completeTraceDir(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return nil, cobra.ShellCompDirectiveFilterDirs
}

// open opens the trace and says on stderr what is wrong with it.
func (in *inputFlags) open(a *app, cmd *cobra.Command, args []string) (*trace.Trace, error) {
	dir := in.dir
	switch {
	case dir != "" && len(args) > 0:
		return nil, usagef(cmd, "two traces given: -i %s and %s", dir, args[0])
	case len(args) > 0:
		dir = args[0]
	case dir == "":
		dir = a.dataDir()
	}
	t, err := trace.OpenWith(dir, in.names.options())
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%s: no trace there; make one with: fentry record PROGRAM", dir)
		}
		if fi, e := os.Stat(dir); e == nil && !fi.IsDir() {
			return nil, notDirectory(dir)
		}
		return nil, pathError(err)
	}
	reportEnding(a, t)
	for i, p := range t.Problems {
		if i == 3 && a.verbose == 0 {
			more := plural(uint64(len(t.Problems)-i+t.Unlisted), "more problem", "more problems")
			a.notef("fentry: %s: %s, -v shows them", dir, more)
			break
		}
		a.notef("fentry: %s: %s", dir, oneLine(p.Error()))
	}
	if t.Unlisted > 0 && a.verbose > 0 {
		a.notef("fentry: %s: %s, not listed", dir, plural(uint64(t.Unlisted), "more problem", "more problems"))
	}
	return t, nil
}

// notDirectory explains a file in the place of a trace directory: some tracers'
// commands for reading take a program.
func notDirectory(path string) error {
	if isProgram(path) {
		prog := path
		if !strings.Contains(prog, "/") {
			prog = "./" + prog
		}
		return fmt.Errorf("%s: a program, not a trace directory; trace it first: fentry record %s", path, prog)
	}
	return fmt.Errorf("%s: not a trace directory", path)
}

// dataDir is the trace directory that is written and read by default.
func (a *app) dataDir() string {
	if d := a.getenv("FENTRY_DATA"); d != "" {
		return d
	}
	return session.DefaultDir
}

// tasks returns the tasks chosen with --tid, --pid and --goroutine; nil means all.
func (in *inputFlags) tasks(t *trace.Trace) ([]*trace.Task, error) {
	if len(in.tids)+len(in.pids)+len(in.gs) == 0 {
		return nil, nil
	}
	var ks []*trace.Task
	for _, pid := range in.pids {
		n := len(ks)
		for _, p := range t.Processes {
			if p.PID == pid {
				ks = append(ks, p.Tasks...)
			}
		}
		if len(ks) == n {
			return nil, fmt.Errorf("%s: no process %d in this trace", t.Dir, pid)
		}
	}
	for _, tid := range in.tids {
		k := t.TaskByTID(tid)
		if len(k) == 0 {
			return nil, fmt.Errorf("%s: no thread %d in this trace", t.Dir, tid)
		}
		ks = append(ks, k...)
	}
	for _, number := range in.gs {
		k := t.Goroutines(uint64(number))
		if len(k) == 0 {
			return nil, fmt.Errorf("%s: no goroutine %d in this trace", t.Dir, number)
		}
		ks = append(ks, k...)
	}
	slices.SortFunc(ks, func(a, b *trace.Task) int { return a.Index - b.Index })
	return slices.Compact(ks), nil
}

// reportEnding says that a trace has no end, always: so it looks like a shorter run.
func reportEnding(a *app, t *trace.Trace) {
	what := ""
	switch t.Ending {
	case trace.EndWritten:
		if t.Info != nil && t.Info.Killed {
			what = "fentry was killed; what was recorded until then is complete"
		}
	case trace.EndPending:
		what = "still being recorded; what follows is incomplete"
	case trace.EndMissing:
		what = "recording did not end: fentry was killed"
		if t.Header.Layout == trace.LayoutPacked {
			what += "; what was in memory is lost"
		}
	}
	if what != "" {
		a.sayf("fentry: %s: %s", t.Dir, what)
	}
}

// matcher returns a test of functions by name, nil when no pattern was given.
func matcher(
	cmd *cobra.Command, t *trace.Trace, filter, notrace []string,
) (func(trace.FuncID) bool, *record.Filter, error) {
	if len(filter)+len(notrace) == 0 {
		return nil, nil, nil
	}
	f, err := record.NewFilter(filter, notrace)
	if err != nil {
		return nil, nil, usagef(cmd, "%v", err)
	}
	return trace.Remember(func(id trace.FuncID) bool {
		fn := t.Func(id)
		if id.Image == trace.SyscallImage {
			return f.In(trace.SyscallName).Match(fn.Display(), strings.TrimPrefix(fn.Name, "sys_"))
		}
		path := ""
		if int(id.Image) < len(t.Images) {
			path = t.Images[id.Image].Path
		}
		return f.In(path).Match(fn.Display(), otherNames(t, int(id.Image), fn)...)
	}), f, nil
}

// otherNames are those of a function by which patterns know it, too.
func otherNames(t *trace.Trace, image int, fn trace.Func) []string {
	aliases := t.Aliases(image, fn)
	if t.IsOwn(image, fn) {
		return append(slices.Clip(aliases), record.Own)
	}
	return aliases
}

// misses are patterns that fitted none of a trace's calls that were read, and those of them that fit no function at all.
func misses(t *trace.Trace, f *record.Filter) (uncalled, unknown []string) {
	if uncalled = f.Unmatched(); len(uncalled) == 0 {
		return nil, nil
	}
	for i := range t.Images {
		in := f.In(t.Images[i].Path)
		for fn := range t.FunctionsOf(i) {
			in.Match(fn.Display(), otherNames(t, i, fn)...)
		}
	}
	return uncalled, f.Unmatched()
}

// warnUnmatched names the patterns that fitted none of the calls that were read,
// and tells those that fit no function at all from those whose functions were not
// called, or only outside of what was read.
func warnUnmatched(a *app, t *trace.Trace, f *record.Filter) {
	uncalled, unknown := misses(t, f)
	for _, p := range uncalled {
		warnMiss(a, p, "trace", slices.Contains(unknown, p))
	}
}

func warnMiss(a *app, pattern, what string, unknown bool) {
	if unknown {
		a.notef("fentry: warning: pattern %q matches no function of the %s", pattern, what)
	} else {
		a.notef("fentry: warning: pattern %q matches functions that were traced, but none of the calls read", pattern)
	}
}
