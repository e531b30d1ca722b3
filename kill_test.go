//go:build linux

package fentry_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/fentry-dev/fentry"
	"github.com/fentry-dev/fentry/trace"
)

// A program that is killed has recorded all that it did until then, whether it was started or attached to.
func TestKillProgram(t *testing.T) {
	const calls = 100_000
	for name, attached := range map[string]bool{"started": false, "attached": true} {
		t.Run(name, func(t *testing.T) {
			c := startControlled(t, attached, fentry.Options{Buffer: 64 << 20}, "-fpatchable-function-entry=5")
			c.do("work %d", calls)
			c.do("thread %d", calls)
			if err := syscall.Kill(c.pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			got := c.calls()
			for name, want := range map[string]uint64{"outer": 2 * calls, "leaf": 6 * calls} {
				if got[name] != want {
					t.Errorf("%s: %d calls, want %d", name, got[name], want)
				}
			}
		})
	}
}

// A recorder that is killed leaves a program that goes on as if nothing had been, and a trace of what it had written.
func TestKillRecorder(t *testing.T) {
	program := buildAttached(t)
	recorder := filepath.Join(t.TempDir(), "fentry")
	if out, err := exec.Command("go", "build", "-o", recorder, "./cmd/fentry").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	// killed ends a recorder when it has written something.
	killed := func(t *testing.T, cmd *exec.Cmd, dir string, then func()) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
			if st, err := os.Stat(filepath.Join(dir, trace.EventsFile)); err == nil && st.Size() > 1<<20 {
				break
			}
			if time.Now().After(deadline) {
				t.Fatal("nothing is recorded")
			}
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		then()
		cmd.Wait()
		tr, err := trace.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer tr.Close()
		if rows, err := tr.Report(trace.ReportOptions{}); err != nil || len(rows) == 0 {
			t.Errorf("%d functions in the trace, %v", len(rows), err)
		}
	}
	t.Run("started", func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "fentry.data")
		r := start(t, recorder, "record", "-q", "-o", dir, "--overhead", "no", "-F", "_Z*", "--", program)
		// Its output ends with the program, whose parent is gone: Wait waits for that.
		killed(t, r.cmd, dir, func() {
			time.Sleep(100 * time.Millisecond)
			r.in.Close()
		})
		if got := r.out.String(); got != "right\n" {
			t.Errorf("the program says %q", got)
		}
	})
	t.Run("attached", func(t *testing.T) {
		r := start(t, program)
		dir := filepath.Join(t.TempDir(), "fentry.data")
		cmd := exec.Command(recorder, "record", "-q", "-o", dir, "--overhead", "no", "-F", "_Z*", "-p", fmt.Sprint(r.cmd.Process.Pid))
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		killed(t, cmd, dir, func() {})
		r.end(t, 7, "right\n")
	})
}
