package main

import (
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fentry-dev/fentry"
	"github.com/fentry-dev/fentry/patch"
	"github.com/fentry-dev/fentry/record"
	"github.com/fentry-dev/fentry/stub"
	"github.com/fentry-dev/fentry/symbol"
	"github.com/fentry-dev/fentry/trace"
)

// addStack adds --stack and --stack-at.
func addStack(cmd *cobra.Command, to *[]string, at *string) {
	cmd.Flags().StringVar(at, "stack-at", "", "record the whole stack at system calls: `WHICH` as for --syscalls, which it "+
		"implies for them")
	cmd.Flags().StringArrayVar(to, "stack", nil, "record the whole stack at calls of functions that match `PAT`, through "+
		"functions that are not traced, or of a library's function by its name, without -L (repeatable)")
}

// addStacks adds what --stack asks for to the actions of functions.
func addStacks(cmd *cobra.Command, to *patch.Actions, patterns []string) (*patch.Actions, error) {
	if len(patterns) == 0 {
		return to, nil
	}
	choose := func(p []string) (*record.Filter, error) { return record.NewFilter(p, nil) }
	if callsMeant(cmd) {
		choose = record.WithCalls
	}
	functions, err := choose(patterns)
	if err != nil {
		return nil, usagef(cmd, "--stack: %v", err)
	}
	if to == nil {
		to = &patch.Actions{}
	}
	to.Rules = append(to.Rules, patch.ActRule{Functions: functions, Acts: []patch.Act{{Kind: stub.ActStack}}})
	return to, nil
}

// callsMeant tells whether the name of a library's function means its calls: not if the libraries are recorded themselves.
func callsMeant(cmd *cobra.Command) bool { return !cmd.Flags().Changed("library") }

// selects returns which functions are recorded; nil: all. For --stack, calls of libraries' functions are looked for as
// with --libcalls, but those that it does not name are not recorded for that.
func (t *traceFlags) selects(cmd *cobra.Command) (*record.Filter, error) {
	quiet := !t.libcalls && slices.ContainsFunc(t.stacks, func(p string) bool {
		return strings.HasSuffix(p, symbol.CallSuffix) || callsMeant(cmd) && plainName().MatchString(p)
	})
	t.libcalls = t.libcalls || quiet
	if len(t.filter)+len(t.notrace) == 0 && !quiet {
		return nil, nil
	}
	f, err := record.NewFilter(t.filter, t.notrace)
	if err == nil && quiet {
		err = f.LeaveOutCalls()
	}
	return f, err
}

// leastEvery bounds how often stacks are taken.
const leastEvery = 50 * time.Microsecond

// checkEvery checks --stack-every.
func (c *recordCmd) checkEvery(cmd *cobra.Command) error {
	switch {
	case !cmd.Flags().Changed("stack-every") && c.stackMode != "":
		return usagef(cmd, "--stack-mode requires --stack-every")
	case !cmd.Flags().Changed("stack-every"):
		return nil
	case c.every < leastEvery:
		return usagef(cmd, "--stack-every: %v is less than %v", c.every, leastEvery)
	case c.tracer != patch.FunctionGraph.String() || c.clock == trace.ClockNone || c.depth > 0 || c.threshold > 0 ||
		len(c.graph)+len(c.without) > 0:
		return usagef(cmd, "--stack-every requires the tracer function_graph with a clock, without --depth, --threshold, --graph "+
			"and --graph-notrace")
	}
	mode, ok := map[string]fentry.StackMode{"": 0, "full": fentry.StackFull, "partial": fentry.StackPartial,
		"deferred": fentry.StackDeferred}[c.stackMode]
	none := len(c.filter) == 1 && c.filter[0] == "none" && len(c.notrace) == 0 && len(c.stacks) == 0
	switch {
	case len(c.attach) > 0 && (!none || mode == fentry.StackDeferred || cmd.Flags().Changed("syscalls")):
		return usagef(cmd, "--stack-every with -p requires -F none, without --syscalls")
	case !ok:
		return usagef(cmd, "--stack-mode: no mode %q; there are full, partial, deferred", c.stackMode)
	case !none && (mode == fentry.StackFull || mode == fentry.StackPartial):
		return usagef(cmd, "--stack-mode %s requires -F none: stacks of traced functions are taken at their events", c.stackMode)
	}
	c.mode = mode
	c.nothing = none
	return nil
}
