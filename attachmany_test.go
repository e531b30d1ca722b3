//go:build linux

package fentry_test

import (
	"bytes"
	"debug/elf"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/fentry-dev/fentry"
	"github.com/fentry-dev/fentry/trace"
)

// code returns the text of a fixed program: in its file, and in a process that runs it.
func code(t *testing.T, program string, pid int) (file, memory []byte) {
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
	text := f.Section(".text")
	if file, err = text.Data(); err != nil {
		t.Fatal(err)
	}
	memory = make([]byte, len(file))
	if _, err := mem.ReadAt(memory, int64(text.Addr)); err != nil {
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
	if file, memory := code(t, program, r.cmd.Process.Pid); !bytes.Equal(file, memory) {
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
		if file, memory := code(t, program, r.cmd.Process.Pid); !bytes.Equal(file, memory) {
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
