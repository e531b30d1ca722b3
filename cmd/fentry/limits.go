package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"

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

const (
	// threadsToRecord is how many threads and processes a recorder starts at most beside those that Go has for processors, and
	// the program: the runtime of Go ends the process, with a dump, if one cannot be started, and what the recorder has put
	// into processes would stay there.
	threadsToRecord = 12
	// manyThreads is a limit at which nobody counts.
	manyThreads = 4096
)

// checkThreads returns an error if too few threads can be started for a command that records.
func checkThreads(command string) error {
	status := exitFailed
	switch command {
	case "record":
		status = exitRecord
	case "demo", "live", "mount", "top":
	default:
		return nil
	}
	var lim unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NPROC, &lim) != nil || lim.Cur > manyThreads || unlimitedThreads() {
		return nil
	}
	if err := enoughThreads(lim.Cur, threadsOf(unix.Getuid())); err != nil {
		return &exitError{status, err}
	}
	return nil
}

// enoughThreads returns an error if a user who may have so many threads, and has some, may not have as many more as a recorder
// needs.
func enoughThreads(limit, used uint64) error {
	need := uint64(threadsToRecord + runtime.GOMAXPROCS(0))
	if used+need <= limit {
		return nil
	}
	return fmt.Errorf("this user may have %d processes and threads (ulimit -u) and has %d: %d more are needed", limit, used, need)
}

// unlimitedThreads tells whether the limit does not hold for this process (setrlimit(2), RLIMIT_NPROC).
func unlimitedThreads() bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	return unix.Getuid() == 0 || unix.Capget(&header, &data[0]) == nil &&
		data[0].Effective&(1<<unix.CAP_SYS_ADMIN|1<<unix.CAP_SYS_RESOURCE) != 0
}

// threadsOf counts the threads of a user's processes, as far as /proc shows them.
func threadsOf(uid int) (n uint64) {
	paths, _ := filepath.Glob("/proc/[0-9]*/status") // the pattern is right
	for _, path := range paths {
		b, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		field := func(name string) string {
			_, rest, _ := bytes.Cut(b, []byte("\n"+name+":"))
			if f := bytes.Fields(rest); len(f) > 0 {
				return string(f[0])
			}
			return ""
		}
		if field("Uid") != strconv.Itoa(uid) {
			continue
		}
		threads, _ := strconv.ParseUint(field("Threads"), 10, 32) // 0: it is no number
		n += threads
	}
	return n
}
