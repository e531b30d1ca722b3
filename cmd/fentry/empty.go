package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/fentry-dev/fentry/patch"
	"github.com/fentry-dev/fentry/trace"
)

// errCall ends a walk at the first call.
var errCall = errors.New("a call")

// hasCalls tells whether there is any call in a trace.
func hasCalls(t *trace.Trace) bool {
	if tabled(t) {
		rows, err := t.Report(trace.ReportOptions{})
		return err != nil || len(rows) > 0
	}
	err := t.Walk(trace.WalkOptions{}, func(ev *trace.Event) error {
		switch ev.Kind {
		case trace.Entry, trace.Exit, trace.Unwound, trace.Unfinished:
			return errCall
		}
		return nil
	})
	return err != nil // another error has been told
}

// tabled tells whether a trace has tables of counts, and no single calls.
func tabled(t *trace.Trace) bool {
	k, err := patch.ParseTracer(tracerOf(t))
	return err == nil && k.ChunkSize() != 0
}

// reportEmpty says why a trace has no calls, if it has none: an empty table looks
// like a mistake in reading it.
func reportEmpty(a *app, t *trace.Trace) {
	if hasCalls(t) {
		return
	}
	functions := 0
	for i := range t.Images {
		functions += t.Images[i].Sites
	}
	why, lost := "", t.Lost > 0 || t.Header.Uncounted != 0
	switch {
	case t.Ending == trace.EndPending:
		why = "none has been written yet"
	case t.Ending == trace.EndMissing:
		why = "they were still in memory when fentry was killed, if there were any"
	case lost:
		why = "all events were lost"
	case len(t.Images) == 0:
		why = "no program that was traced has begun to run"
	case functions == 1:
		why = "the function that was traced was not called"
	case functions > 1:
		why = fmt.Sprintf("none of the %s functions that were traced was called", grouped(uint64(functions)))
	default:
		why = "no function that was traced was called"
	}
	if o := leavingOut(t); len(o) > 0 && !lost && t.Ending == trace.EndWritten {
		why += ", or its calls were left out by " + strings.Join(o, ", ")
	}
	if t.Info != nil && t.Info.Signal != 0 {
		why += fmt.Sprintf("; the program was killed by signal %d", t.Info.Signal)
	}
	a.notef("fentry: %s: no calls in this trace: %s", t.Dir, why)
}

// recordedWith returns what follows a prefix in the options that a trace was recorded with.
func recordedWith(t *trace.Trace, prefix string) (values []string) {
	if t.Info == nil {
		return nil
	}
	for _, o := range t.Info.Options {
		if v, ok := strings.CutPrefix(o, prefix); ok {
			values = append(values, v)
		}
	}
	return values
}

// leavingOut returns the options a trace was recorded with that leave out calls of
// traced functions.
func leavingOut(t *trace.Trace) (options []string) {
	if t.Info == nil {
		return nil
	}
	for _, o := range t.Info.Options {
		name, _, _ := strings.Cut(o, "=")
		if slices.Contains([]string{"--graph", "--graph-notrace", "--depth", "--threshold", "--trigger", "--stack"}, name) {
			options = append(options, o)
		}
	}
	return options
}
