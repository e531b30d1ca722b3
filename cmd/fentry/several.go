package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/fentry-dev/fentry/record"
	"github.com/fentry-dev/fentry/trace"
)

// report, graph and replay read several traces at once, such as those of go test -exec. Functions of one name are one
// function then (trace.Union).

// A reading is the traces that a command reads.
type reading struct {
	traces []*trace.Trace
	union  *trace.Union // whose ids functions have; nil: there is one trace, and they have its own
}

// one is the reading of a single trace.
func one(t *trace.Trace) reading { return reading{traces: []*trace.Trace{t}} }

// origin returns a trace that has a function, and its id there.
func (r reading) origin(id trace.FuncID) (*trace.Trace, trace.FuncID) {
	if r.union != nil {
		if t, fn := r.union.Origin(id); t != nil {
			return t, fn
		}
	}
	return r.traces[0], id
}

// of returns the trace that has a task.
func (r reading) of(k *trace.Task) *trace.Trace {
	for _, t := range r.traces {
		if k.Index < len(t.Tasks) && t.Tasks[k.Index] == k {
			return t
		}
	}
	return r.traces[0]
}

func (r reading) close() {
	for _, t := range r.traces {
		t.Close()
	}
}

// matcher returns a test of functions by name.
func (r reading) matcher(cmd *cobra.Command, pattern string) (func(trace.FuncID) bool, []selection, error) {
	matches := map[*trace.Trace]func(trace.FuncID) bool{}
	var named []selection
	for _, t := range r.traces {
		match, f, err := matcher(cmd, t, []string{pattern}, nil)
		if err != nil {
			return nil, nil, err
		}
		matches[t], named = match, append(named, selection{named: []*record.Filter{f}})
	}
	return func(id trace.FuncID) bool {
		t, fn := r.origin(id)
		return matches[t](fn)
	}, named, nil
}

// warnAll names the patterns that fitted nothing in any of the traces; the selections are in the same order.
func warnAll(a *app, r reading, sels []selection) {
	if len(r.traces) == 1 {
		sels[0].warn(a, r.traces[0])
		return
	}
	var uncalled, unknown []string // in all so far
	for i, t := range r.traces {
		var calls, functions []string
		for _, f := range sels[i].named {
			c, u := misses(t, f)
			calls, functions = append(calls, c...), append(functions, u...)
		}
		if i == 0 {
			uncalled, unknown = calls, functions
			continue
		}
		uncalled = slices.DeleteFunc(uncalled, func(p string) bool { return !slices.Contains(calls, p) })
		unknown = slices.DeleteFunc(unknown, func(p string) bool { return !slices.Contains(functions, p) })
	}
	for _, p := range uncalled {
		warnMiss(a, p, "traces", slices.Contains(unknown, p))
	}
}

// openAll opens the traces of the operands, at least one.
func (in *inputFlags) openAll(a *app, cmd *cobra.Command, args []string) (r reading, err error) {
	dirs, err := in.dirs(a, cmd, args)
	if err != nil {
		return r, err
	}
	defer func() {
		if err != nil {
			r.close()
		}
	}()
	for _, dir := range dirs {
		each := *in
		each.dir = dir
		t, err := each.open(a, cmd, nil)
		if err != nil {
			return r, err
		}
		r.traces = append(r.traces, t)
	}
	if len(dirs) > 1 {
		r.union = new(trace.Union)
	}
	return r, nil
}

// dirs are the directories of the traces that are to be read: what the operands name and, of a directory of traces, all
// that are below it.
func (in *inputFlags) dirs(a *app, cmd *cobra.Command, args []string) ([]string, error) {
	switch {
	case in.dir != "" && len(args) > 0:
		return nil, usagef(cmd, "two traces given: -i %s and %s", in.dir, args[0])
	case in.dir != "":
		args = []string{in.dir}
	case len(args) == 0:
		args = []string{a.dataDir()}
	}
	var dirs []string
	for _, arg := range args {
		below := tracesBelow(arg)
		if len(below) == 0 { // or it is a trace, or nothing, which is an error that opening it tells
			below = []string{arg}
		}
		for _, dir := range below {
			if !slices.Contains(dirs, dir) {
				dirs = append(dirs, dir)
			}
		}
	}
	return dirs, nil
}

// tracesBelow returns the traces in a directory that is none itself, in order.
func tracesBelow(dir string) (traces []string) {
	if isTrace(dir) {
		return nil
	}
	filepath.WalkDir(dir+"/.", func(path string, d fs.DirEntry, err error) error { // through a symbolic link, too
		switch {
		case err != nil || !d.IsDir():
			return nil
		case isTrace(path):
			traces = append(traces, path)
			return fs.SkipDir
		}
		return nil
	})
	return traces
}

// isTrace reports whether a directory has a trace.
func isTrace(dir string) bool {
	_, err := os.Lstat(filepath.Join(dir, trace.EventsFile))
	return err == nil || !errors.Is(err, fs.ErrNotExist)
}

// runSeveral reports several traces.
func (c *reportCmd) runSeveral(a *app, cmd *cobra.Command, read reading, shown *reportView) error {
	for _, name := range []string{"diff", "never", "histogram", "group-by", "stacks", "goroutines"} {
		if cmd.Flags().Changed(name) {
			return usagef(cmd, "--%s reads one trace", name)
		}
	}
	var rows []trace.FuncStat
	var sels []selection
	for _, t := range read.traces {
		sel, err := c.parse(cmd)
		if err != nil {
			return err
		}
		part, err := c.count(a, cmd, t, &sel, shown)
		if err != nil {
			return err
		}
		read.union.Rows(t, part)
		rows, sels = append(rows, part...), append(sels, sel)
	}
	warnAll(a, read, sels)
	if !c.task && !c.process {
		rows = trace.JoinRows(rows)
	}
	if err := c.write(a, read, rows, shown); err != nil {
		return err
	}
	for _, t := range read.traces {
		c.explain(a, t, rows)
	}
	return nil
}
