package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version is the released version; builds from a checkout add the commit.
const (
	version     = "0.1.0"
	versionDate = "2026-11-20"
)

func newVersionCmd(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "print fentry's version",
		Long:  `version prints fentry's version, the commit it was built from, and the host.`,
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.printVersion()
		},
	}
}

// printVersion is what "fentry version" and "fentry --version" print.
func (a *app) printVersion() error {
	_, err := fmt.Fprintf(a.stdout, "fentry %s%s (%s %s/%s)\n",
		version, commit(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}

// commit is "+" and the start of the commit the binary was built from, if the
// build knew.
func commit() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	rev, dirty := "", ""
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			rev = s.Value
		case "vcs.modified":
			if s.Value == "true" {
				dirty = ".dirty"
			}
		}
	}
	if len(rev) < 12 {
		return ""
	}
	return "+" + rev[:12] + dirty
}
