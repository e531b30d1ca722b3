//go:build linux

package fentry_test

import (
	"context"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/fentry-dev/fentry"
	"github.com/fentry-dev/fentry/internal/testtool"
	"github.com/fentry-dev/fentry/patch"
	"github.com/fentry-dev/fentry/trace"
)

// recordWaits runs testdata/waits.c and returns the rows of its report.
func recordWaits(t *testing.T, program string, o fentry.Options) (map[string]trace.FuncStat, trace.Waiting) {
	t.Helper()
	o.Dir, o.Logf = filepath.Join(t.TempDir(), "fentry.data"), t.Logf
	res, err := fentry.Run(context.Background(), exec.Command(program), o)
	if err != nil || !res.Status.Exited() || res.Status.ExitStatus() != 0 || res.Lost != 0 {
		t.Fatalf("%+v, %v", res, err)
	}
	tr, err := trace.Open(o.Dir)
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	if len(tr.Problems) > 0 || tr.Unknown > 0 || uint64(tr.Chunks) != tr.Info.Totals.Chunks {
		t.Errorf("%v, %d of %d chunks unknown, %d written", tr.Problems, tr.Unknown, tr.Chunks, tr.Info.Totals.Chunks)
	}
	rows, err := tr.Report(trace.ReportOptions{Waits: true})
	if err != nil {
		t.Fatal(err)
	}
	stats := map[string]trace.FuncStat{}
	for _, s := range rows {
		stats[s.Name] = s
	}
	return stats, tr.Waiting()
}

// What a function works and what it waits for is told apart: sleeping, spinning, waiting for a lock, in threads and
// forked processes. Both add up to the total, whatever else the machine does.
func TestWaits(t *testing.T) {
	testtool.Need(t, "gcc")
	program := filepath.Join(t.TempDir(), "waits")
	build := exec.Command("gcc", "-O2", "-pthread", "-fpatchable-function-entry=5", "-o", program, "testdata/waits.c")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, o := range []fentry.Options{{NoSwitches: true}, {Plan: patch.Options{NoClock: true}}} {
		stats, w := recordWaits(t, program, o)
		if s := stats["spin"]; w.Source != "" || w.Reason == "" || s.CPU != -1 || s.Wait != -1 || s.Unknown != -1 {
			t.Errorf("%+v: %+v, %+v", o, w, s)
		}
	}
	stats, w := recordWaits(t, program, fentry.Options{})
	if w.Source == "" {
		if s := stats["spin"]; w.Reason == "" || s.CPU != -1 {
			t.Errorf("%+v, %+v", w, s)
		}
		t.Skipf("needs a kernel that tells of task switches: %s", w.Reason)
	}
	for name, want := range map[string]struct{ calls, cpu, slack, wait time.Duration }{
		"doze":  {2 + 3, 0, 20, 5 * 20},               // one after another
		"spin":  {2, 2 * 50, 20, 0},                   // 50 ms of processor time in both processes
		"take":  {3, 0, 20, 20 + 2*20},                // the second thread waits for the first, the third for both
		"main":  {1, 2 * 50, 40, 20 + 3*20 + 70 + 20}, // in the child, too
		"child": {1, 50, 20, 20},                      // another process
		"lazy":  {3, 0, 40, 20 + 40 + 3*20},           // take and doze
	} {
		s := stats[name]
		t.Logf("%-6s %v = %v + %v", name, time.Duration(s.Total), time.Duration(s.CPU), time.Duration(s.Wait))
		cpu, wait := want.cpu*time.Millisecond, want.wait*time.Millisecond
		if s.Calls != uint64(want.calls) || s.CPU+s.Wait != s.Total || s.Unknown != 0 || time.Duration(s.CPU) < cpu-time.Millisecond ||
			time.Duration(s.CPU) > cpu+want.slack*time.Millisecond || time.Duration(s.Wait) < wait-time.Millisecond {
			t.Errorf("%s: %d calls, %v on a processor and %v off it, %v unknown, of %v; want %v and at least %v", name,
				s.Calls, time.Duration(s.CPU), time.Duration(s.Wait), time.Duration(s.Unknown), time.Duration(s.Total), cpu, wait)
		}
	}
}
