package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/fentry-dev/fentry/internal/buildstep"
	"github.com/fentry-dev/fentry/record/objects"
)

type mcountCmd struct {
	compat, allExec bool
	keepLinks       bool
	keepTime, sync  bool
}

func newMcountCmd(a *app) *cobra.Command {
	var c mcountCmd
	cmd := &cobra.Command{
		Use:   "mcount [options] FILE...",
		Short: "add tables of call sites to objects",
		Long: `mcount is a build step: it finds the calls of profiling functions (-pg, with or
without -mfentry) in object files and adds the table __mcount_loc that lists
them, in place. The linker makes one table of all, so that tracers need not
search the program.`,
		Example: `  gcc -pg -mfentry -c foo.c && fentry mcount foo.o`,
		Args:    cobra.MinimumNArgs(1),
		RunE:    func(cmd *cobra.Command, args []string) error { return c.run(a, args) },
	}
	f := cmd.Flags()
	f.BoolVar(&c.compat, "compat", false, "one table laid out as recordmcount does")
	f.BoolVar(&c.allExec, "all-exec", false, "record every executable section")
	f.BoolVar(&c.keepLinks, "keep-links", false, "keep hard links (not atomic)")
	f.BoolVar(&c.keepTime, "keep-time", false, "keep modification times")
	f.BoolVar(&c.sync, "sync", false, "flush to disk before a file is replaced")
	return cmd
}

func (c *mcountCmd) run(a *app, files []string) error {
	o := buildstep.Options{
		Objects:   objects.Options{Compat: c.compat, AllExec: c.allExec},
		KeepLinks: c.keepLinks, KeepTime: c.keepTime, Sync: c.sync,
	}
	failed := false
	for _, f := range files {
		if _, err := buildstep.File(f, o); err != nil {
			fmt.Fprintf(a.stderr, "fentry: %s\n", oneLine(err.Error()))
			failed = true
		}
	}
	if failed {
		return &exitError{Code: exitFailed}
	}
	return nil
}
