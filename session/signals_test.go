//go:build linux

package session

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/fentry-dev/fentry/session/internal/launch"
	"github.com/fentry-dev/fentry/session/internal/procfs"
)

func TestInterrupts(t *testing.T) {
	type step struct {
		sig          syscall.Signal
		forward, end bool
	}
	for name, tt := range map[string]struct {
		gone, foreground bool
		steps            []step
	}{
		"^C twice":                 {steps: []step{{syscall.SIGINT, false, false}, {syscall.SIGINT, false, true}}},
		"^\\ then ^C":              {steps: []step{{syscall.SIGQUIT, false, false}, {syscall.SIGINT, false, true}}},
		"kill twice":               {steps: []step{{syscall.SIGTERM, true, false}, {syscall.SIGTERM, false, true}}},
		"hangup of the terminal":   {foreground: true, steps: []step{{syscall.SIGHUP, false, false}}},
		"hangup by kill":           {steps: []step{{syscall.SIGHUP, true, false}}},
		"^C when daemons are left": {gone: true, steps: []step{{syscall.SIGINT, false, true}}},
		"file size":                {steps: []step{{syscall.SIGXFSZ, false, false}, {syscall.SIGXFSZ, false, false}, {syscall.SIGINT, false, false}}},
	} {
		i := interrupts{leaderGone: tt.gone}
		for n, s := range tt.steps {
			if forward, end := i.got(s.sig, tt.foreground); forward != s.forward || end != s.end {
				t.Errorf("%s, signal %d: forward %t, end %t; want %t, %t", name, n+1, forward, end, s.forward, s.end)
			}
		}
	}
}

// The end of the context ends the session, not the program.
func TestContext(t *testing.T) {
	path, err := launch.LookPath("sleep")
	if err != nil {
		t.Skip("needs sleep (package coreutils)")
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		defer cancel()
		for deadline := time.Now().Add(time.Minute); len(asleep(t)) == 0 && time.Now().Before(deadline); {
			time.Sleep(time.Millisecond)
		}
	}()
	dir := filepath.Join(t.TempDir(), "d")
	began := time.Now()
	res, err := Run(ctx, Options{Path: path, Args: []string{"sleep", "1000"}, Dir: dir, Buffer: 1})
	if err != nil || res.Ended || !res.Started || res.Signal != 0 {
		t.Errorf("%+v, %v", res, err)
	}
	if d := time.Since(began); d > 900*time.Second {
		t.Errorf("ended after %v", d)
	}
	pids := asleep(t)
	for _, pid := range pids {
		syscall.Kill(pid, syscall.SIGKILL)
	}
	if len(pids) == 0 {
		t.Error("the program has ended")
	}
	if !res.Empty {
		t.Errorf("a program that nobody traced left a trace: %+v", res)
	}
}

// asleep are the children of this process that execute sleep.
func asleep(t *testing.T) (pids []int) {
	for _, p := range children(t, syscall.Getpid()) {
		if b, err := procfs.ReadStat(fmt.Sprintf("/proc/%d/stat", p)); err == nil && !b.Dead() && b.Name == "sleep" {
			pids = append(pids, p)
		}
	}
	return pids
}

// What cannot run leaves no directory and says why.
func TestCannotRun(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "d")
	for path, want := range map[string]error{
		filepath.Join(t.TempDir(), "nothing"): launch.ErrNotFound,
		"/etc/passwd":                         launch.ErrNotExecutable,
		"/":                                   launch.ErrNotExecutable,
	} {
		_, err := Run(context.Background(), Options{Path: path, Dir: dir})
		if !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", path, err, want)
		}
		if _, err := os.Lstat(dir); err == nil {
			t.Errorf("%s: a directory is left", path)
		}
	}
}
