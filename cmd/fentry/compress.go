package main

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/spf13/cobra"

	"github.com/fentry-dev/fentry/trace"
)

func newCompressCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "compress [DIR]...",
		Short: "make a trace smaller, which all commands read as before",
		Long: `compress makes the file of events in a trace directory (default $FENTRY_DATA or
fentry.data) smaller, to a tenth or less, as "fentry record --compress" does
while it records. All commands read it as before. The file is replaced in one
step, and keeps its owner and permissions; what is compressed is compared with
what was there, so nothing is lost. It takes all processors, and as much room on
the disk as the smaller file.

A trace that a patched program has written by itself cannot be compressed.`,
		Example: `  fentry compress                        the trace in fentry.data
  fentry compress server.data*           dumps of a flight recorder`,
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveFilterDirs
		},
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				args = []string{a.dataDir()}
			}
			var all error
			for _, dir := range args {
				all = errors.Join(all, compress(a, dir))
			}
			return all
		},
	}
	return cmd
}

// compress compresses a trace and says what it is then.
func compress(a *app, dir string) error {
	s, err := trace.Compress(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s: no trace there; make one with: fentry record PROGRAM", dir)
	case err != nil:
		return pathError(err)
	}
	a.notef("[ fentry: %s: %s -> %s ]", printable(dir), size(uint64(s.Before)), size(uint64(s.After)))
	return nil
}
