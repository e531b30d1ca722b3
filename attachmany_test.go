//go:build linux

package fentry_test

import (
	"bytes"
	"context"
	"debug/elf"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fentry-dev/fentry"
	"github.com/fentry-dev/fentry/internal/testtool"
	"github.com/fentry-dev/fentry/session"
	"github.com/fentry-dev/fentry/trace"
)

// code returns a section of a program: in its file, and in a process that has the program's addresses at base.
func code(t *testing.T, program string, pid int, name string, base int64) (file, memory []byte) {
	t.Helper()
	f, err := elf.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	mem, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Close()
	section := f.Section(name)
	if file, err = section.Data(); err != nil {
		t.Fatal(err)
	}
	memory = make([]byte, len(file))
	if _, err := mem.ReadAt(memory, base+int64(section.Addr)); err != nil {
		t.Fatal(err)
	}
	return file, memory
}

// A large program is changed in several stops, between which it runs: all its functions are recorded, and all are as
// before in the end.
func TestAttachMany(t *testing.T) {
	program := buildFile(t, "testdata/attachmany.c", "-no-pie")
	r := start(t, program)
	before, files, _ := state(t, r.cmd.Process.Pid)
	o := fentry.Options{Dir: filepath.Join(t.TempDir(), "fentry.data")}
	attachUntil(t, r.cmd.Process.Pid, o, 100*time.Millisecond, "f0", "f1", "f10000", "f19999")
	if maps, fds, _ := state(t, r.cmd.Process.Pid); maps != before || fds != files {
		t.Errorf("it has changed: %d descriptors, %d before\n%s\n%s", fds, files, before, maps)
	}
	if file, memory := code(t, program, r.cmd.Process.Pid, ".text", 0); !bytes.Equal(file, memory) {
		t.Error("its code has changed")
	}
	r.end(t, 7, "right\n")
}

// A process with thousands of threads is attached to like others: those that are stopped do not wait until all have been
// asked for their children.
func TestAttachThreads(t *testing.T) {
	const threads = 3000
	r := start(t, buildFile(t, "testdata/manythreads.c"), fmt.Sprint(threads))
	tasks := func() int {
		all, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", r.cmd.Process.Pid))
		return len(all)
	}
	for deadline := time.Now().Add(time.Minute); tasks() <= threads; time.Sleep(time.Millisecond) {
		if s := stateOf(t, r.cmd.Process.Pid, 'S'); s == 'Z' || time.Now().After(deadline) {
			t.Skipf("%d threads, state %c", tasks(), s)
		}
	}
	dir := filepath.Join(t.TempDir(), "fentry.data")
	for range 2 {
		attachUntil(t, r.cmd.Process.Pid, fentry.Options{Dir: dir}, 50*time.Millisecond, "sum")
	}
	r.end(t, 7, "")
}

// Functions in two pages of memory are recorded if their jump is in one, and else left alone, and not said to be traced.
func TestAttachTwoPages(t *testing.T) {
	program := buildFile(t, "testdata/twopages.c", "-no-pie")
	r := start(t, program)
	dir := filepath.Join(t.TempDir(), "fentry.data")
	for range 3 {
		attachUntil(t, r.cmd.Process.Pid, fentry.Options{Dir: dir}, 20*time.Millisecond, "g5", "g6", "g7", "g8", "g9")
		if file, memory := code(t, program, r.cmd.Process.Pid, ".text", 0); !bytes.Equal(file, memory) {
			t.Error("its code has changed")
		}
	}
	tr, err := trace.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	rows, err := tr.Report(trace.ReportOptions{})
	if err != nil {
		t.Fatal(err)
	}
	never, err := tr.Never(rows)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range slices.Concat(rows, never) {
		if slices.Contains([]string{"g1", "g2", "g3", "g4"}, f.Name) {
			t.Errorf("%s: traced, %d calls", f.Name, f.Calls)
		}
	}
	r.end(t, 7, "")
}

// What is done at calls of all functions of a large program changes while threads call them, in several stops: it is done once for
// each function and set, none is recorded that is not to be, and all is as before in the end.
func TestControlMany(t *testing.T) {
	program := buildFile(t, "testdata/attachmany.c", "-no-pie")
	r := start(t, program)
	pid := r.cmd.Process.Pid
	before, _, _ := state(t, pid)
	o := fentry.Options{Dir: filepath.Join(t.TempDir(), "fentry.data"), Logf: t.Logf, Overhead: -1}
	var live *fentry.Live
	ready, ended := make(chan struct{}), make(chan error, 1)
	o.Live = func(l *fentry.Live) { live = l; close(ready) }
	go func() {
		_, err := fentry.Attach(context.Background(), []int{pid}, o)
		ended <- err
	}()
	select {
	case <-ready:
	case err := <-ended:
		t.Fatal(err)
	}
	set := func(line string) {
		t.Helper()
		if _, err := session.Control(pid, line); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
	}
	const functions, sets = 20000, 2
	copies := filepath.Join(t.TempDir(), "copy")
	set("set_ftrace_filter = f7")
	for n := 1; n <= sets; n++ {
		set("trigger = f*@stacktrace:1")
		for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
			if done := triggersIn(t, live, copies); len(done) == functions && slices.Min(slices.Collect(maps.Values(done))) >= n {
				break
			} else if time.Now().After(deadline) {
				t.Fatalf("set %d: done at %d functions", n, len(done))
			}
		}
		set("trigger =")
	}
	for name, n := range triggersIn(t, live, copies) {
		if n != sets {
			t.Errorf("done %d times at calls of %s", n, name)
		}
	}
	set("detach")
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if now, _, _ := state(t, pid); now != before {
		t.Errorf("it has changed:\n%s\n%s", before, now)
	}
	r.end(t, 7, "right\n")
}

// triggersIn is how often something was done at calls of functions, in a copy of what there is.
func triggersIn(t *testing.T, live *fentry.Live, dir string) map[string]int {
	t.Helper()
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	tr, err := live.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	done := make(map[string]int)
	err = tr.Walk(trace.WalkOptions{}, func(ev *trace.Event) error {
		if ev.Kind == trace.Trigger {
			done[tr.Name(ev.Func)]++
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return done
}

// Of several processes those that have ended are said together.
func TestAttachEnded(t *testing.T) {
	if !session.CanFollow() {
		t.Skip("processes are attached to on x86-64")
	}
	testtool.Need(t, "gcc")
	cmd := exec.Command(buildFile(t, "testdata/grows.c"))
	c := startTold(t, cmd)
	testtool.AwaitReady(t, cmd.Process.Pid)
	var ended []int
	for range 7 {
		other := exec.Command("true")
		if err := other.Run(); err != nil {
			t.Fatal(err)
		}
		ended = append(ended, other.Process.Pid)
	}
	var said messages
	o := fentry.Options{Dir: filepath.Join(t.TempDir(), "fentry.data"), Overhead: -1}
	o.Logf = said.logf
	o.For = 100 * time.Millisecond
	if _, err := fentry.Attach(t.Context(), append(ended[:1:1], append([]int{cmd.Process.Pid}, ended[1:]...)...), o); err != nil {
		t.Fatal(err)
	}
	e := ended
	want := fmt.Sprintf("7 processes are not recorded: they are not there, or have ended: %d, %d, %d, %d, %d, 2 more", e[0], e[1], e[2], e[3], e[4])
	if !slices.Contains(said.list, want) {
		t.Errorf("%q, want %q", said.list, want)
	}
	c.in.Close()
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 5 {
		t.Error(err)
	}
}

// A recording that is to end while processes are attached to leaves alone those that it has not come to.
func TestAttachInterrupted(t *testing.T) {
	if !session.CanFollow() {
		t.Skip("processes are attached to on x86-64")
	}
	testtool.Need(t, "gcc")
	program := buildFile(t, "testdata/becomes.c")
	const all = 5
	var cmds []*exec.Cmd
	var pids []int
	var started []*controlled
	for range all {
		cmd := exec.Command(program)
		started = append(started, startTold(t, cmd))
		testtool.AwaitReady(t, cmd.Process.Pid)
		cmds, pids = append(cmds, cmd), append(pids, cmd.Process.Pid)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var said messages
	o := fentry.Options{Dir: filepath.Join(t.TempDir(), "fentry.data"), Overhead: -1}
	o.Logf = func(format string, args ...any) {
		said.logf(format, args...)
		if strings.Contains(format, "as it runs already") {
			cancel() // the first one is being planned
		}
	}
	res, err := fentry.Attach(ctx, pids, o)
	if err != nil {
		t.Fatal(err)
	}
	const want = "4 of 5 processes are not recorded: the recording is to end before they were attached to"
	if !slices.Contains(said.list, want) || len(res.Stays) > 0 {
		t.Errorf("%q, want %q; %+v", said.list, want, res)
	}
	for i, cmd := range cmds {
		if maps, _, _ := state(t, cmd.Process.Pid); strings.Contains(maps, "fentry") {
			t.Errorf("process %d of %d:\n%s", i, all, maps)
		}
		started[i].in.Close()
		if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 1 {
			t.Error(err)
		}
	}
}
