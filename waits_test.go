//go:build linux

package fentry_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fentry-dev/fentry"
	"github.com/fentry-dev/fentry/internal/testtool"
	"github.com/fentry-dev/fentry/patch"
	"github.com/fentry-dev/fentry/trace"
)

// recordWaits runs testdata/waits.c and returns the rows of its report, and how long its calls of take lasted at least.
func recordWaits(t *testing.T, program string, o fentry.Options) (map[string]trace.FuncStat, trace.Waiting, time.Duration) {
	t.Helper()
	o.Dir, o.Logf = filepath.Join(t.TempDir(), "fentry.data"), t.Logf
	var said strings.Builder
	cmd := exec.Command(program)
	cmd.Stdout = &said
	res, err := fentry.Run(context.Background(), cmd, o)
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
	taken, err := strconv.ParseInt(strings.TrimSpace(said.String()), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return stats, tr.Waiting(), time.Duration(taken)
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
		stats, w, _ := recordWaits(t, program, o)
		if s := stats["spin"]; w.Source != "" || w.Reason == "" || s.CPU != -1 || s.Wait != -1 || s.Unknown != -1 {
			t.Errorf("%+v: %+v, %+v", o, w, s)
		}
	}
	stats, w, taken := recordWaits(t, program, fentry.Options{})
	if w.Source == "" {
		if s := stats["spin"]; w.Reason == "" || s.CPU != -1 {
			t.Errorf("%+v, %+v", w, s)
		}
		t.Skipf("needs a kernel that tells of task switches: %s", w.Reason)
	}
	const ms = time.Millisecond
	for name, want := range map[string]struct {
		calls            uint64
		cpu, slack, wait time.Duration
	}{
		"doze":  {2 + 3, 0, 20 * ms, 5 * 20 * ms},                 // one after another
		"spin":  {2, 2 * 50 * ms, 20 * ms, 0},                     // 50 ms of processor time in both processes
		"take":  {3, 0, 20 * ms, taken},                           // the second thread waits for the first, the third for both
		"main":  {1, 2 * 50 * ms, 40 * ms, (20 + 3*20 + 20) * ms}, // in the child, too
		"child": {1, 50 * ms, 20 * ms, 20 * ms},                   // another process
		"lazy":  {3, 0, 40 * ms, taken + 3*20*ms},                 // take and doze
	} {
		s := stats[name]
		total, cpu, wait := time.Duration(s.Total), time.Duration(s.CPU), time.Duration(s.Wait)
		t.Logf("%-6s %v = %v + %v", name, total, cpu, wait)
		// What the thread's clock counts begins before the switch to it, of which the kernel tells behind it: tens of
		// microseconds each time where the machine is loaded.
		least := want.cpu - want.cpu/10 - ms
		if s.Calls != want.calls || cpu+wait != total || s.Unknown != 0 || cpu < least ||
			cpu > want.cpu+want.slack || wait < want.wait-want.slack || total < want.cpu+want.wait-ms {
			t.Errorf("%s: %d calls, %v on a processor and %v off it, %v unknown, of %v; want %v and %v", name,
				s.Calls, cpu, wait, time.Duration(s.Unknown), total, want.cpu, want.wait)
		}
	}
}

// What runs already is followed from now on: all threads of all processes that are attached to, in other PID namespaces, too.
func TestAttachWaits(t *testing.T) {
	program := buildFile(t, "testdata/attachwaits.c")
	for name, flags := range map[string]uintptr{"here": 0, "namespace": syscall.CLONE_NEWPID} {
		t.Run(name, func(t *testing.T) {
			if flags != 0 && os.Getuid() != 0 {
				t.Skip("root makes PID namespaces")
			}
			cmd := exec.Command(program)
			cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags}
			c := startTold(t, cmd)
			t.Cleanup(func() { c.in.Close(); cmd.Wait() })
			c.line() // both are there
			attachWaits(t, cmd.Process.Pid)
		})
	}
}

// attachWaits attaches to testdata/attachwaits.c, and its child.
func attachWaits(t *testing.T, pid int) {
	t.Helper()
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		t.Fatal(err)
	}
	var child int
	if _, err := fmt.Sscan(string(children), &child); err != nil {
		t.Fatal(err)
	}
	o := fentry.Options{Dir: filepath.Join(t.TempDir(), "fentry.data"), Logf: t.Logf, For: 500 * time.Millisecond}
	res, err := fentry.Attach(context.Background(), []int{pid, child}, o)
	if err != nil && strings.Contains(err.Error(), "not permitted") {
		t.Skip(err)
	}
	if err != nil || res.Lost != 0 {
		t.Fatalf("%+v, %v", res, err)
	}
	tr, err := trace.Open(o.Dir)
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	w := tr.Waiting()
	if w.Source == "" {
		t.Skipf("needs a kernel that tells of task switches: %s", w.Reason)
	}
	rows, err := tr.Report(trace.ReportOptions{Waits: true, PerProcess: true})
	if err != nil {
		t.Fatal(err)
	}
	const ms = int64(time.Millisecond)
	seen := make(map[string]int)
	for _, s := range rows {
		t.Logf("%s: %d calls, %v = %v + %v", s.Name, s.Calls, time.Duration(s.Total), time.Duration(s.CPU), time.Duration(s.Wait))
		if s.Unknown != 0 || s.CPU+s.Wait != s.Total {
			t.Errorf("%s: %v are not known", s.Name, time.Duration(s.Unknown))
		}
		n := int64(s.Calls) - 1 // one can be open when the recording ends
		switch s.Name {
		case "doze":
			if s.Wait < 5*ms*n {
				t.Errorf("doze waits for %v in %d calls", time.Duration(s.Wait), s.Calls)
			}
		case "work":
			if s.CPU < 2*ms*n-2*ms*n/10-ms {
				t.Errorf("work works for %v in %d calls", time.Duration(s.CPU), s.Calls)
			}
		default:
			continue
		}
		seen[s.Name]++
	}
	if seen["doze"] != 2 || seen["work"] != 2 {
		t.Errorf("%v, of two processes", seen)
	}
}

// A program that begins a PID namespace is followed there, and so are its children.
func TestWaitsNamespace(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("root makes PID namespaces")
	}
	testtool.Need(t, "unshare")
	program := buildFile(t, "testdata/attachwaits.c")
	o := fentry.Options{Dir: filepath.Join(t.TempDir(), "fentry.data"), Logf: t.Logf}
	cmd := exec.Command("unshare", "-fp", program)
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	cmd.Stdin = in
	time.AfterFunc(2*time.Second, func() { out.Close() })
	if res, err := fentry.Run(context.Background(), cmd, o); err != nil || !res.Status.Exited() || res.Status.ExitStatus() != 0 {
		t.Fatalf("%+v, %v", res, err)
	}
	tr, err := trace.Open(o.Dir)
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	if w := tr.Waiting(); w.Source == "" {
		t.Skipf("needs a kernel that tells of task switches: %s", w.Reason)
	}
	rows, err := tr.Report(trace.ReportOptions{Waits: true, PerProcess: true})
	if err != nil {
		t.Fatal(err)
	}
	seen := make(map[string]int)
	for _, s := range rows {
		t.Logf("%s: %d calls, %v = %v + %v, %v", s.Name, s.Calls, time.Duration(s.Total), time.Duration(s.CPU), time.Duration(s.Wait), time.Duration(s.Unknown))
		if s.Name == "doze" || s.Name == "work" {
			seen[s.Name]++
			if s.CPU < 0 || s.Unknown > s.Total/10 {
				t.Errorf("%s: %v of %v are not known", s.Name, time.Duration(s.Unknown), time.Duration(s.Total))
			}
		}
	}
	if seen["doze"] != 2 || seen["work"] != 2 {
		t.Errorf("%v, of two processes", seen)
	}
}
