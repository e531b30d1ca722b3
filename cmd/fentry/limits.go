package main

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// How many open files a command needs: with fewer, Go's runtime may be the first to miss one, and ends the process
// with a dump. It has raised the soft limit to the hard one by the time this is asked.
const (
	filesToRead   = 12
	filesToRecord = 24
)

// checkFiles returns an error if too few files can be open for a command.
func checkFiles(command string) error {
	need, status := uint64(filesToRead), exitFailed
	switch command {
	case "record":
		need, status = filesToRecord, exitRecord
	case "demo":
		need = filesToRecord
	}
	var lim unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &lim) != nil || lim.Cur >= need {
		return nil
	}
	return &exitError{status, fmt.Errorf("at most %d files can be open here (ulimit -n); %d are needed", lim.Cur, need)}
}
