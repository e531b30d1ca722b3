package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fentry-dev/fentry/cmd/fentry/internal/show"
	"github.com/fentry-dev/fentry/record"
	"github.com/fentry-dev/fentry/trace"
)

// filterFlags choose what of a trace a command shows: replay, report and graph have
// them in common, so that what one of them shows can be asked of the others. A new
// filter of calls belongs here, in show.Options, and nowhere else.
type filterFlags struct {
	inputFlags
	filter    []string
	notrace   []string
	roots     []string
	without   []string
	tails     string
	threshold string
	time      string
}

func (c *filterFlags) add(cmd *cobra.Command) {
	c.inputFlags.add(cmd)
	addPatternFlags(cmd, &c.filter, &c.notrace, "show")
	f := cmd.Flags()
	f.StringArrayVarP(&c.roots, "graph", "G", nil, "show only what happens in functions that match `PAT` (repeatable)")
	f.StringArrayVar(&c.without, "graph-notrace", nil,
		"leave out functions that match `PAT` with everything inside them (repeatable)")
	f.StringVar(&c.tails, "tail-calls", "sibling", "show what a function ends by jumping to as its `PLACE`: "+
		"sibling (another call of the same caller) or nest (a call inside the function)")
	cmd.RegisterFlagCompletionFunc("tail-calls", cobra.FixedCompletions(tailCalls, cobra.ShellCompDirectiveNoFileComp))
	f.StringVarP(&c.threshold, "threshold", "t", "", "leave out calls shorter than `TIME`, such as 10us or 1.5ms")
	f.StringVar(&c.time, "time", "", "show only what lies between the times `START,STOP`, counted from the beginning; "+
		"either may be empty")
}

// tailCalls are the values of --tail-calls.
var tailCalls = []string{"sibling", "nest"}

// A selection is what filterFlags chose.
type selection struct {
	walk  trace.WalkOptions
	calls show.Options
	named []*record.Filter // the patterns in calls

	counts bool // single calls are not asked for
}

// parse translates the flags that need no trace.
func (c *filterFlags) parse(cmd *cobra.Command) (s selection, err error) {
	if s.walk.From, s.walk.To, err = parseTimes(c.time); err != nil {
		return s, usagef(cmd, "--time %v", err)
	}
	s.walk.Open, s.calls.End = s.walk.From > 0, s.walk.To
	if !slices.Contains(tailCalls, c.tails) {
		return s, usagef(cmd, "--tail-calls: no place %q; there are %s", c.tails, strings.Join(tailCalls, ", "))
	}
	s.calls.Nest = c.tails == "nest"
	if c.threshold != "" {
		min, err := parseDuration(c.threshold)
		if err != nil {
			return s, usagef(cmd, "--threshold %s: %v", c.threshold, err)
		}
		s.calls.Threshold = int64(min)
	}
	return s, nil
}

// resolve looks up in the trace what the flags name.
func (c *filterFlags) resolve(cmd *cobra.Command, t *trace.Trace, s *selection) (err error) {
	if t.Clockless() && (c.threshold != "" || c.time != "") {
		return fmt.Errorf("%s: recorded with --clock none: there are no times for --threshold and --time", t.Dir)
	}
	if s.walk.Tasks, err = c.tasks(t); err != nil {
		return err
	}
	match, named, err := matcher(cmd, t, c.filter, c.notrace)
	if err != nil {
		return err
	}
	roots, rootsNamed, err := matcher(cmd, t, c.roots, nil)
	if err != nil {
		return err
	}
	without, withoutNamed, err := matcher(cmd, t, c.without, nil)
	if err != nil {
		return err
	}
	s.calls.Match, s.calls.Roots, s.calls.Without = match, roots, without
	s.walk.Calls = s.counted()
	s.named = []*record.Filter{named, rootsNamed, withoutNamed}
	return nil
}

// prepare sees to it that a trace has an index if the selection can do with parts of it: those of a window, those that
// have the calls, those of tasks that were forked from others. Who counts calls can do without them, too, but only an
// index that is there, or nearly so, is worth it.
func (s *selection) prepare(t *trace.Trace) error {
	o := &s.walk.Calls
	parts := s.walk.From > 0 || o.Match != nil || o.Roots != nil || o.Threshold > 0 ||
		slices.ContainsFunc(s.walk.Tasks, func(k *trace.Task) bool { return k.Parent != nil })
	if !parts && !s.counts || t.Bytes < trace.WorthIndex {
		return nil
	}
	_, err := t.MakeIndex(trace.IndexOptions{File: true, Begun: !parts})
	return err
}

// counted is which calls reports and graphs count.
func (s *selection) counted() trace.Calls {
	o := &s.calls
	return trace.Calls{Match: o.Match, Roots: o.Roots, Without: o.Without, Nest: o.Nest, Threshold: o.Threshold}
}

// check says what cannot be asked of a report of the trace.
func (s *selection) check(t *trace.Trace) error {
	nested := s.calls.Roots != nil || s.calls.Without != nil || s.calls.Nest || s.calls.Threshold > 0
	switch tracer := tracerOf(t); {
	case tracer == "profile" && (nested || s.walk.From > 0 || s.walk.To > 0):
		return fmt.Errorf("%s: a profile has counts and times, but no single calls", t.Dir)
	case tracer == "count" && (nested || s.walk.From > 0 || s.walk.To > 0):
		return fmt.Errorf("%s: recorded with the count tracer: numbers of calls, no single calls", t.Dir)
	case tracer == "function" && nested:
		return fmt.Errorf("%s: recorded with the function tracer: only entries, no nesting and no durations", t.Dir)
	}
	return nil
}

// all says that no call is left out.
func (s *selection) all() bool {
	o := &s.calls
	return o.When == nil && o.Match == nil && o.Roots == nil && o.Without == nil && !o.Nest && o.Depth == 0 && o.Threshold == 0
}

// warn names the patterns that fitted nothing.
func (s *selection) warn(a *app, t *trace.Trace) {
	for _, f := range s.named {
		warnUnmatched(a, t, f)
	}
}

// parseTimes reads START,STOP, either of them empty. A number alone is seconds,
// as times are printed.
func parseTimes(s string) (from, to int64, err error) {
	if s == "" {
		return 0, 0, nil
	}
	a, b, ok := strings.Cut(s, ",")
	if !ok {
		return 0, 0, fmt.Errorf("%s: want START,STOP", s)
	}
	one := func(s string) (int64, error) {
		if s == "" {
			return 0, nil
		}
		if v, err := strconv.ParseFloat(s, 64); err == nil && v >= 0 && v < 1e9 {
			return int64(v * 1e9), nil
		}
		d, err := time.ParseDuration(s)
		if err != nil || d < 0 {
			return 0, fmt.Errorf("%s: not a time such as 1.5s or 20ms", s)
		}
		return int64(d), nil
	}
	if from, err = one(a); err != nil {
		return 0, 0, err
	}
	if to, err = one(b); err != nil {
		return 0, 0, err
	}
	if b != "" && to <= from {
		return 0, 0, fmt.Errorf("%s: STOP is not after START", s)
	}
	return from, to, nil
}
