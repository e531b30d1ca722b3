//go:build linux

package fentry_test

import (
	"fmt"
	"testing"

	"github.com/fentry-dev/fentry"
	"github.com/fentry-dev/fentry/record"
)

// ofFunctions are options that record some functions.
func ofFunctions(t *testing.T, patterns ...string) (o fentry.Options) {
	t.Helper()
	var err error
	if o.Plan.Select, err = record.NewFilter(patterns, nil); err != nil {
		t.Fatal(err)
	}
	o.Buffer = 32 << 20
	return o
}

// Functions that were not chosen when a recording began are recorded from the moment at which a filter or a root that has them is
// answered for, in the program, its threads and its children, and others still are not.
func TestControlAdded(t *testing.T) {
	for _, flags := range [][]string{{"-fpatchable-function-entry=5"}, {"-pg", "-mfentry"}} {
		t.Run(fmt.Sprint(flags), func(t *testing.T) {
			testSettingsOf(t, ofFunctions(t, "outer"), settingRounds{
				{"", 0, map[string]int{"outer": 1}},
				{"set_ftrace_filter += leaf", 0, map[string]int{"outer": 1, "leaf": 3}},
				{"set_ftrace_filter -= leaf", 0, map[string]int{"outer": 1}},
				{"set_ftrace_filter += l*f other", 0, map[string]int{"outer": 1, "leaf": 3, "other": 1}},
				{"set_ftrace_filter += nobody", 22, map[string]int{"outer": 1, "leaf": 3, "other": 1}},
				{"set_ftrace_filter = leaf", 0, map[string]int{"leaf": 3}},
				{"set_ftrace_filter =", 0, map[string]int{"outer": 1}},
				{"set_ftrace_filter = leaf, other; max_graph_depth = 1", 0, map[string]int{"leaf": 2, "other": 1}},
				{"set_ftrace_filter = outer leaf", 0, map[string]int{"outer": 1, "leaf": 1}},
				{"max_graph_depth = 0; set_graph_function = other", 0, nil},
				{"set_ftrace_filter =; set_graph_function = middle", 0, map[string]int{"middle": 1}},
			}, flags...)
		})
	}
	t.Run("plain", func(t *testing.T) {
		testSettingsOf(t, ofFunctions(t, "other"), settingRounds{
			{"", 0, map[string]int{"other": 1}},
			{"set_ftrace_filter += leaf", 0, map[string]int{"other": 1, "leaf": 3}},
			{"set_ftrace_filter += mid*", 0, map[string]int{"other": 1, "leaf": 3, "middle": 1}},
			{"set_ftrace_filter =", 0, map[string]int{"other": 1}},
		}, "-O0")
	})
}
