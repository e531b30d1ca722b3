package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"github.com/fentry-dev/fentry/export/formats"
	"github.com/fentry-dev/fentry/internal/sample"
	"github.com/fentry-dev/fentry/internal/testtool"
	"github.com/fentry-dev/fentry/names"
	"github.com/fentry-dev/fentry/trace"
)

// peakMain runs a command line and prints the most memory it has had, for peak.
func peakMain() int {
	a := &app{stdin: os.Stdin, stdout: io.Discard, stderr: os.Stderr, lookupEnv: os.LookupEnv}
	status := run(os.Args[1:], a)
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	os.Stdout.Write(b)
	return status
}

// peak returns the most memory that a command has had, in bytes.
func peak(t *testing.T, args ...string) int64 {
	t.Helper()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), "FENTRY_TEST_MAIN=peak")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%q: %v: %s", args, err, stderr.Bytes())
	}
	m := regexp.MustCompile(`VmHWM:\s*(\d+) kB`).FindSubmatch(out)
	if m == nil {
		t.Fatalf("%q: no VmHWM in %q", args, out)
	}
	kib, err := strconv.ParseInt(string(m[1]), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return kib << 10
}

// tasksTrace writes a trace of n tasks of one call each, one behind the other or all at once.
func tasksTrace(t *testing.T, n int, atOnce bool) string {
	t.Helper()
	dir := t.TempDir()
	var b bytes.Buffer
	w, err := trace.NewWriter(&b, trace.Header{Counter: 1000, Monotonic: 1000, CounterHz: 1e9, Closed: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.WriteImage(trace.Image{ID: testImage, Path: "/bin/prog", Sites: 1}); err != nil {
		t.Fatal(err)
	}
	for i := range uint64(n) {
		k := w.Task(trace.TaskID{PID: 1, TID: int(i) + 10, Key: i, Image: testImage, Comm: "task"})
		begin, end := 2000+10*i, 2005+10*i
		if atOnce {
			end += 10 * uint64(n)
		}
		k.Enter(begin, 1)
		k.Exit(end, 1)
		if err := k.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, trace.EventsFile), b.Bytes(), 0o666); err != nil {
		t.Fatal(err)
	}
	var sym bytes.Buffer
	tab := names.Table{Image: uint64(testImage), Funcs: []names.Func{{ID: 1, Addr: 0x401000, Kind: "plain", Name: "f"}}}
	if err := names.Write(&sym, &tab); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, testImage.String()+trace.SymExt), sym.Bytes(), 0o666); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestTasksMemory: memory that readers take for each task is bounded (docs/design.md, "Reading").
func TestTasksMemory(t *testing.T) {
	tasks := 20_000
	if testtool.Wide() {
		tasks = 500_000
	}
	one := tasksTrace(t, 1, false)
	for _, c := range []struct {
		what   string
		atOnce bool
		most   int64 // bytes a task: what readers take, and half as much for garbage that is collected late on a busy machine
	}{{"one behind the other", false, 3 << 10}, {"all at once", true, 6 << 10}} {
		dir := tasksTrace(t, tasks, c.atOnce)
		for _, args := range [][]string{
			{"replay"}, {"replay", "--format", "json"}, {"replay", "-t", "1ms"}, {"replay", "-F", "f"},
			{"report"}, {"graph"}, {"info"},
		} {
			empty, full := peak(t, append(args, "-i", one)...), peak(t, append(args, "-i", dir)...)
			each := (full - empty) / int64(tasks)
			t.Logf("%s: %q: %d bytes a task", c.what, args, each)
			if each > c.most {
				t.Errorf("%s: %q: %d bytes a task, at most %d", c.what, args, each, c.most)
			}
		}
	}
}

// TestExportMemory: the memory that an export takes does not grow with the trace, whatever the format.
func TestExportMemory(t *testing.T) {
	long := func(calls int) string {
		return sample.Build(t, []string{"main", "handle", "parse"}, func(w *trace.Writer) {
			for i := range 2 {
				k := w.Task(trace.TaskID{PID: 7, TID: 7 + i, Image: sample.Image, Comm: "prog"})
				now := uint64(2000)
				k.Enter(now, 1)
				for range calls / 4 {
					k.Enter(now+10, 2)
					k.Enter(now+20, 3)
					k.Exit(now+30, 3)
					k.Exit(now+50, 2)
					now += 100
				}
				k.Exit(now, 1)
				if err := k.Flush(); err != nil {
					t.Fatal(err)
				}
			}
		}).Dir
	}
	const calls = 2_000_000
	small, large := long(calls/50), long(calls)
	for _, f := range formats.All {
		taken := func(dir string) int64 {
			out := "-"
			if f.WriteDir != nil {
				out = filepath.Join(t.TempDir(), "out")
			}
			return peak(t, "export", "-q", "-f", f.Name, "-o", out, "-i", dir)
		}
		few, many := taken(small), taken(large)
		t.Logf("%s: %d and %d MiB", f.Name, few>>20, many>>20)
		if each := float64(many-few) / calls; each > 8 { // half of what the call takes in the trace
			t.Errorf("%s: %.1f bytes a call", f.Name, each)
		}
	}
}
