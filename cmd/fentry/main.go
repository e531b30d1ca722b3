// Go's runtime would start a goroutine, and a thread for it, that looks every second whether the processors that the
// process may use have changed. It takes 3 % of fentry mcount of one object; how many there are at the start counts still.
//
//go:debug updatemaxprocs=0

// Command fentry is ftrace for any program: it lists the functions of a
// program that can be traced, runs the program traced, and shows what it did.
//
// Every subcommand has a file of its own, named for it, with a constructor
// newXxxCmd(*app) that is in the command table of root.go. The commands only
// translate between the terminal and the library packages of this module.
package main

import (
	"os"

	"github.com/fentry-dev/fentry/cmd/fentry/internal/mcount"
	"github.com/fentry-dev/fentry/internal/mapped"
	"github.com/fentry-dev/fentry/internal/osthread"
	"github.com/fentry-dev/fentry/session"
)

// keep is what a process does that fentry record has started in case it is killed. Nobody is there to be told of errors.
func keep() {
	if mapped.Guard(func() error { return session.Keep(os.Args) }) != nil {
		os.Exit(exitFailed)
	}
	os.Exit(exitOK)
}

func main() {
	if status, ok := mcount.Main(os.Args, os.LookupEnv, os.Stdout, os.Stderr, largeObjects()); ok {
		os.Exit(status)
	}
	if os.Args[0] == session.KeeperName {
		keep()
	}
	_ = osthread.QuietStops() // or stops take longer
	os.Exit(run(reportArgs(mcountArgs(os.Args[1:])), &app{
		stdin:     os.Stdin,
		stdout:    os.Stdout,
		stderr:    os.Stderr,
		lookupEnv: os.LookupEnv,
	}))
}
