package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

func newManCmd(a *app) *cobra.Command {
	return &cobra.Command{
		Use:    "__man DIR",
		Short:  "write the manual pages into a directory",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return fmt.Errorf("%s: no pages", args[0])
		},
	}
}
