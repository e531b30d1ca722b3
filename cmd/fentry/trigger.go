package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fentry-dev/fentry"
	"github.com/fentry-dev/fentry/internal/triggers"
	"github.com/fentry-dev/fentry/patch"
	"github.com/fentry-dev/fentry/trace"
)

// addTriggers adds --trigger.
func addTriggers(cmd *cobra.Command, to *[]string) {
	cmd.Flags().StringArrayVar(to, "trigger", nil, "do something at calls of functions: `FUNC@ACTION`[:COUNT][,ACTION...], "+
		"FUNC as for -F, ACTION one of "+strings.Join(triggers.Forms(), ", ")+" (repeatable)")
}

// triggerActions are what the runtime is to do for triggers; nil: nothing.
func triggerActions(cmd *cobra.Command, specs []string) (*patch.Actions, error) {
	a, err := fentry.Triggers(specs)
	if err != nil {
		return nil, usagef(cmd, "--trigger: %v", err)
	}
	return a, nil
}

// decides reports whether a trigger of the command line decides which calls are recorded, or looks at their times.
func decides(a *patch.Actions) bool {
	return a.Has(func(x patch.Act) bool { return x.Kind.Selective(x.Value) })
}

// triggerColors returns the escape sequences in front of the names of functions, as the triggers say that a trace was
// recorded with; nil: there are none.
func triggerColors(t *trace.Trace) func(trace.FuncID) string {
	type colored struct {
		match  func(trace.FuncID) bool
		number uint64
	}
	var all []colored
	for _, spec := range recordedWith(t, "--trigger=") {
		tr, err := triggers.Parse(spec)
		if err != nil {
			continue // a later version's
		}
		for _, a := range tr.Actions {
			if a.Kind != triggers.Color {
				continue
			}
			if match, _, err := matcher(nil, t, []string{tr.Functions}, nil); err == nil {
				all = append(all, colored{match, a.Value})
			}
		}
	}
	if all == nil {
		return nil
	}
	return func(id trace.FuncID) string {
		for i := len(all) - 1; i >= 0; i-- {
			if all[i].match(id) {
				return fmt.Sprintf("\x1b[%dm", all[i].number)
			}
		}
		return ""
	}
}
