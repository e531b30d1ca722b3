package main

import (
	"github.com/spf13/cobra"

	"github.com/fentry-dev/fentry/patch"
	"github.com/fentry-dev/fentry/record"
	"github.com/fentry-dev/fentry/stub"
)

// addStack adds --stack and --stack-at.
func addStack(cmd *cobra.Command, to *[]string, at *string) {
	cmd.Flags().StringVar(at, "stack-at", "", "record the whole stack at system calls: `WHICH` as for --syscalls, which it "+
		"implies for them (x86-64)")
	cmd.Flags().StringArrayVar(to, "stack", nil, "record the whole stack at calls of functions that match `PAT`, through "+
		"functions that are not traced (repeatable; x86-64)")
}

// addStacks adds what --stack asks for to the actions of functions.
func addStacks(cmd *cobra.Command, to *patch.Actions, patterns []string) (*patch.Actions, error) {
	if len(patterns) == 0 {
		return to, nil
	}
	functions, err := record.NewFilter(patterns, nil)
	if err != nil {
		return nil, usagef(cmd, "--stack: %v", err)
	}
	if to == nil {
		to = &patch.Actions{}
	}
	to.Rules = append(to.Rules, patch.ActRule{Functions: functions, Acts: []patch.Act{{Kind: stub.ActStack}}})
	return to, nil
}
