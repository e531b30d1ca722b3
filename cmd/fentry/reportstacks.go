package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fentry-dev/fentry/internal/safetext"
	"github.com/fentry-dev/fentry/symbol"
	"github.com/fentry-dev/fentry/trace"
)

// report --stacks merges the backtraces that record --stack has taken: one line a stack, as flame graphs' tools read them,
// the outermost function first and the number of calls at the end. A stack that did not reach the thread's first
// frame begins with the reason in brackets, so it is not taken for another.

// mergedStack is calls with one stack.
type mergedStack struct {
	Function string   `json:"function"`
	Frames   []string `json:"frames"` // its callers, innermost first
	End      string   `json:"end"`
	Calls    uint64   `json:"calls"`
}

// folded is the line of a stack without the number.
func (s *mergedStack) folded() string {
	var parts []string
	if s.End != "outermost" {
		parts = append(parts, "["+s.End+"]")
	}
	for _, name := range slices.Backward(s.Frames) {
		parts = append(parts, foldedName(name))
	}
	return strings.Join(append(parts, foldedName(s.Function)), ";")
}

// foldedName is a name without what separates names.
func foldedName(name string) string { return strings.ReplaceAll(name, ";", ":") }

// runStacks prints the merged stacks at calls of the functions that --stacks names.
func (c *reportCmd) runStacks(a *app, cmd *cobra.Command, t *trace.Trace, sel *selection) (err error) {
	if err := c.resolve(cmd, t, sel); err != nil {
		return err
	}
	if err := sel.check(t); err != nil {
		return err
	}
	patterns := []string{c.stacks}
	if plainName().MatchString(c.stacks) { // of a library's function there may be the calls only
		patterns = append(patterns, c.stacks+symbol.CallSuffix)
	}
	match, filter, err := matcher(cmd, t, patterns, nil)
	if err != nil {
		return err
	}
	merged := map[string]*mergedStack{}
	walk := sel.walk
	walk.Open, walk.Calls = false, trace.Calls{}
	err = t.Walk(walk, func(ev *trace.Event) error {
		if ev.Kind != trace.Stacktrace {
			return nil
		}
		if ev.Backtrace.Timer && filter.Match(t.StackLabels(ev)[0]) || !ev.Backtrace.Timer && match(ev.Func) {
			addStackOf(merged, t, ev)
		}
		return nil
	})
	if err != nil {
		return pathError(err)
	}
	if len(merged) == 0 {
		if slices.Contains(filter.Unmatched(), c.stacks) {
			a.notef("fentry: warning: pattern %q matches no function with a stack", c.stacks)
		}
		return fmt.Errorf("%s: no stacks of %s; record them with: fentry record --stack %s", t.Dir, c.stacks, c.stacks)
	}
	return c.writeStacks(a, merged)
}

// addStackOf counts the stack of an event.
func addStackOf(merged map[string]*mergedStack, t *trace.Trace, ev *trace.Event) {
	labels := t.StackLabels(ev)
	s := mergedStack{Function: labels[0], Frames: labels[1:], End: ev.Backtrace.End}
	key := s.folded()
	if merged[key] == nil {
		merged[key] = &s
	}
	merged[key].Calls++
}

// writeStacks prints stacks, the most frequent first.
func (c *reportCmd) writeStacks(a *app, merged map[string]*mergedStack) (err error) {
	keys := make([]string, 0, len(merged))
	for k := range merged {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(x, y string) int {
		return cmp.Or(cmp.Compare(merged[y].Calls, merged[x].Calls), strings.Compare(x, y))
	})
	if c.top > 0 && len(keys) > c.top {
		keys = keys[:c.top]
	}
	out, err := a.open()
	if err != nil {
		return err
	}
	defer func() { err = out.close(err) }()
	enc := json.NewEncoder(safetext.JSONWriter(out))
	for _, k := range keys {
		if c.json {
			err = enc.Encode(merged[k])
		} else {
			_, err = fmt.Fprintf(out, "%s %d\n", k, merged[k].Calls)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
