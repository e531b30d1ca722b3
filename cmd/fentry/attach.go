package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fentry-dev/fentry"
	"github.com/fentry-dev/fentry/internal/osthread"
	"github.com/fentry-dev/fentry/session"
)

// runAttached records processes that run already.
func (c *recordCmd) runAttached(a *app, o fentry.Options) error {
	pids, err := findProcesses(c.attach)
	if err != nil {
		return recordError(err)
	}
	c.usual() // Attach hurries where that is needed
	res, err := fentry.Attach(context.Background(), pids, o)
	defer osthread.Hurry()()
	if err != nil {
		return recordError(pathError(err))
	}
	if a.verbose > 0 {
		round := func(d time.Duration) time.Duration { return d.Round(10 * time.Microsecond) }
		a.notef("fentry: %d functions traced, a process was stopped for %v at most to attach, and for %v to detach",
			res.Traced, round(res.Setup), round(res.Held))
	}
	a.stays(&res.Result)
	if c.libraries(a, res, o.Plan); len(c.library) == 0 {
		c.unmatched(a, &o.Plan)
	}
	if a.verbose > 0 {
		c.executedOf(a, res)
	}
	if res.Unwanted {
		reportUnwanted(a, &res.Result, c.flight.on)
		return nil
	}
	c.summary(a, &res.Result)
	if res.WriteError != nil { // which has been told
		return &exitError{Code: exitFailed}
	}
	return nil
}

// findProcesses finds processes, each once: by ids, or by the name of the program, which is that of its file or what the kernel
// calls it.
func findProcesses(given []string) (pids []int, err error) {
	add := func(pid int) {
		if !slices.Contains(pids, pid) {
			pids = append(pids, pid)
		}
	}
	for _, g := range given {
		for _, what := range strings.Split(g, ",") {
			if pid, err := strconv.Atoi(what); err == nil {
				add(pid)
				continue
			}
			named := processesNamed(what)
			if len(named) == 0 {
				return nil, fmt.Errorf("-p %s: no process of that name", what)
			}
			for _, pid := range named {
				add(pid)
			}
		}
	}
	return pids, nil
}

// processesNamed finds all processes of a program, but for this one.
func processesNamed(name string) (pids []int) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		exe, _ := os.Readlink(filepath.Join("/proc", e.Name(), "exe"))
		if exe == "" { // its first thread can have ended
			exe, _ = os.Readlink(filepath.Join(session.ProcessDir(pid), "exe"))
		}
		if exe == "" {
			continue // a thread of the kernel, or one that this user cannot attach to
		}
		comm, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "comm"))
		if filepath.Base(strings.TrimSuffix(exe, " (deleted)")) == name || strings.TrimSpace(string(comm)) == name {
			pids = append(pids, pid)
		}
	}
	return pids
}
