package trace

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// processTrace opens a trace of what write writes and what the recorder says; time 0 is CLOCK_MONOTONIC 1 s.
func processTrace(t *testing.T, processes []InfoProcess, write func(w *Writer)) *Trace {
	t.Helper()
	dir := t.TempDir()
	var b bytes.Buffer
	w, err := NewWriter(&b, Header{Counter: 1 << 40, Monotonic: 1e9, CounterHz: 1e9})
	if err != nil {
		t.Fatal(err)
	}
	write(w)
	if err := os.WriteFile(filepath.Join(dir, EventsFile), b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := WriteInfo(dir, &Info{Clock: InfoClock{Hz: 1e9}, Processes: processes}); err != nil {
		t.Fatal(err)
	}
	tr, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tr.Close() })
	return tr
}

// A process has the arguments of the programs it ran, a forked child those of its parent then; titles and exits are
// those of the process that had the id at the time.
func TestProcesses(t *testing.T) {
	const start = 1 << 40
	tr := processTrace(t, []InfoProcess{
		{PID: 10, Parent: 1, Seen: 1e9 + 100, Ended: 1e9 + 9000, ExitStatus: 3, Source: ExitWaited},
		{PID: 11, Seen: 1e9 + 2500, Ended: 1e9 + 3600, ExitStatus: -1, Signal: 9, Source: ExitPidfd,
			Titles: []InfoTitle{{1e9 + 3000, "server: idle"}, {1e9 + 3400, "server: busy"}}},
		{PID: 12, Seen: 1e9 + 100}, // not in the trace
	}, func(w *Writer) {
		program := func(pid int, key, at uint64, parent int, args ...string) *TaskWriter {
			id := TaskID{PID: pid, TID: pid, Key: key, Image: 7}
			if err := w.WriteProgram(id, start+at, Image{ID: 7, Command: args, Parent: parent}); err != nil {
				t.Fatal(err)
			}
			k := w.Task(id)
			k.Start(start + at)
			k.Enter(start+at+10, 1)
			return k
		}
		shell := program(10, 1, 1000, 5, "sh", "-c", "x")
		child := w.Task(TaskID{PID: 11, TID: 11, Key: 2, Image: 7, ParentPID: 10, ParentTID: 10})
		child.Fork(start + 2000)
		child.Enter(start+3000, 1)
		thread := w.Task(TaskID{PID: 11, TID: 111, Key: 3, Image: 7})
		thread.Enter(start+3100, 1)
		executed := program(10, 4, 5000, 5, "server", "")
		again := program(11, 5, 6000, 10, "other")
		for _, k := range []*TaskWriter{shell, child, thread, executed, again} {
			if err := k.Flush(); err != nil {
				t.Fatal(err)
			}
		}
	})
	if len(tr.Processes) != 3 {
		t.Fatalf("%d processes", len(tr.Processes))
	}
	sh, child, again := tr.Processes[0], tr.Processes[1], tr.Processes[2]
	if len(sh.Tasks) != 2 || len(child.Tasks) != 2 || len(again.Tasks) != 1 {
		t.Errorf("%d, %d, %d tasks", len(sh.Tasks), len(child.Tasks), len(again.Tasks))
	}
	for _, k := range tr.Tasks {
		if k.Process.PID != k.PID {
			t.Errorf("task %v is of process %d", k, k.Process.PID)
		}
	}
	if sh.ParentPID != 5 || sh.Parent != nil || child.Parent != sh || again.Parent != sh || len(sh.Children) != 2 {
		t.Errorf("parents: %d %v, %v, %v; %d children", sh.ParentPID, sh.Parent, child.Parent, again.Parent, len(sh.Children))
	}
	for _, c := range []struct {
		p    *Process
		at   int64
		want string
	}{
		{sh, 0, "sh -c x"}, {sh, 4999, "sh -c x"}, {sh, 5000, "server ''"}, {sh, 1 << 40, "server ''"},
		{child, 2000, "sh -c x"}, {child, 3000, "server: idle"}, {child, 3399, "server: idle"}, {child, 9000, "server: busy"},
		{again, 6000, "other"}, {again, 9000, "other"},
	} {
		if got := c.p.CommandLine(c.at); got != c.want {
			t.Errorf("process %d at %d: %q, want %q", c.p.PID, c.at, got, c.want)
		}
	}
	exits := []*ProcessExit{sh.Exit, child.Exit, again.Exit}
	want := []*ProcessExit{{Time: 9000, Status: 3, Source: ExitWaited}, {Time: 3600, Status: -1, Signal: 9, Source: ExitPidfd}, nil}
	if d := cmp.Diff(want, exits); d != "" {
		t.Error(d)
	}
}

// Arguments are kept as far as the bounds go, however many programs there are.
func TestManyArguments(t *testing.T) {
	long := strings.Repeat("x", maxArgs-1)
	tr := processTrace(t, nil, func(w *Writer) {
		for pid := 1; pid <= maxAllArgs/maxArgs+10; pid++ {
			id := TaskID{PID: pid, TID: pid, Key: uint64(pid), Image: 7}
			if err := w.WriteProgram(id, 1<<40, Image{ID: 7, Command: []string{"a", long, "b"}}); err != nil {
				t.Fatal(err)
			}
			k := w.Task(id)
			k.Start(1 << 40)
			if err := k.Flush(); err != nil {
				t.Fatal(err)
			}
		}
	})
	sum := 0
	for _, p := range tr.Processes {
		g := p.Programs[0]
		for _, a := range g.Args {
			sum += len(a)
		}
		if !g.Cut || len(g.Args) > 2 || len(strings.Join(g.Args, " ")) >= maxArgs {
			t.Fatalf("process %d: %d arguments, cut %v", p.PID, len(g.Args), g.Cut)
		}
	}
	if sum > maxAllArgs || sum < maxAllArgs*9/10 {
		t.Errorf("%d bytes of arguments are kept", sum)
	}
}

// An image that joins a process is no program that it runs; its names come from the file that it was loaded from.
func TestJoinedImage(t *testing.T) {
	const start = 1 << 40
	tr := processTrace(t, nil, func(w *Writer) {
		id := TaskID{PID: 10, TID: 10, Key: 1, Image: 7}
		for i, im := range []Image{
			{ID: 7, Path: "/bin/prog", Exe: "/bin/prog", Command: []string{"prog", "-x"}},
			{ID: 9, Path: "/usr/lib/libz.so.1", Exe: "/bin/prog", File: "/tmp/libz.so.1", Home: 7},
		} {
			if err := w.WriteProgram(id, start+uint64(i), im); err != nil {
				t.Fatal(err)
			}
		}
		k := w.Task(id)
		k.Start(start)
		k.Enter(start+10, 1)
		if err := k.Flush(); err != nil {
			t.Fatal(err)
		}
	})
	if p := tr.Processes; len(p) != 1 || len(p[0].Programs) != 1 || p[0].CommandLine(1<<30) != "prog -x" {
		t.Fatalf("processes %+v", p)
	}
	if len(tr.Images) != 2 || tr.Images[1].File != "/tmp/libz.so.1" || tr.Images[1].Home != 0 {
		t.Fatalf("images %+v", tr.Images)
	}
	if d := cmp.Diff([]string{"/tmp/libz.so.1", "/usr/lib/libz.so.1"}, tr.Images[1].file().Paths); d != "" {
		t.Error(d)
	}
}
