//go:build linux

package fentry_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry"
	"github.com/fentry-dev/fentry/internal/runfile"
	"github.com/fentry-dev/fentry/internal/testtool"
	"github.com/fentry-dev/fentry/session"
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
	recorder := buildRecorder(t)
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
		r := launch(t, nil, recorder, "record", "-q", "-o", dir, "--overhead", "no", "-F", "_Z*", "--", program)
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

// A recorder that is killed at any moment has recorded all that was done until then, in the trace or counted as lost: with a
// small buffer it is writing most of the time, and with a large one all is in memory.
func TestKillRecorderKeeps(t *testing.T) {
	program := buildFile(t, "testdata/control.c", "-fpatchable-function-entry=5")
	recorder := buildRecorder(t)
	const before, after = 50_000, 100_000
	run := func(t *testing.T, attached bool, options ...string) {
		dir := filepath.Join(t.TempDir(), "fentry.data")
		args := append([]string{"record", "-q", "-o", dir, "--overhead", "no"}, options...)
		cmd := exec.Command(recorder, append(args, "--", program)...)
		if attached {
			cmd = exec.Command(program)
		}
		c := startTold(t, cmd)
		t.Cleanup(func() { c.in.Close(); cmd.Wait() })
		if _, err := fmt.Sscan(c.line(), &c.pid); err != nil {
			t.Fatal(err)
		}
		killed := cmd
		if attached {
			killed = exec.Command(recorder, append(args, "-p", fmt.Sprint(c.pid))...)
			if err := killed.Start(); err != nil {
				t.Fatal(err)
			}
			defer killed.Wait()
		}
		c.control("status")
		keeper := waitFor(t, "a keeper", func() int { return keeperOf(killed.Process.Pid) })
		c.do("work %d", before)
		fmt.Fprintf(c.in, "work %d\n", after)
		time.Sleep(time.Duration(rand.IntN(20)) * time.Millisecond)
		if err := killed.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		if got := c.line(); got != "done" {
			t.Errorf("the program says %q", got)
		}
		c.do("thread 10")
		waitFor(t, "the end of the keeper", func() int {
			stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", keeper))
			if err != nil || strings.Contains(string(stat), ") Z ") { // nobody needs to wait for it
				return 1
			}
			return 0
		})
		tr, err := trace.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer tr.Close()
		if len(tr.Problems) > 0 || tr.Ending != trace.EndWritten || !tr.Info.Killed || tr.Header.Uncounted != 0 {
			t.Errorf("%v, ending %v, %+v", tr.Problems, tr.Ending, tr.Info)
		}
		for _, k := range tr.Tasks {
			if k.Gaps > 0 {
				t.Errorf("task %d has %d gaps", k.TID, k.Gaps)
			}
		}
		counts := map[string]uint64{}
		if err := tr.Walk(trace.WalkOptions{}, func(e *trace.Event) error {
			if e.Kind == trace.Entry {
				counts[tr.Name(e.Func)]++
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		// What is counted as lost can be a part of any call.
		n, lost := counts["outer"], tr.Lost
		if n+lost/12 < before || n > before+after+10 || counts["middle"] > n+lost || counts["middle"]+1+lost < n ||
			counts["leaf"]+3+lost < 3*n {
			t.Errorf("%d calls of %d and up to %d more, %d lost: %v", n, before, after, tr.Lost, counts)
		}
	}
	for name, attached := range map[string]bool{"started": false, "attached": true} {
		t.Run(name, func(t *testing.T) {
			for i, options := range [][]string{{"-b", "64M"}, {"-b", "512K"}, {"-b", "512K"}, {"-b", "512K", "--compress", "zstd"}, {"--flight", "64M"}} {
				t.Run(fmt.Sprint(i, options), func(t *testing.T) { run(t, attached, options...) })
			}
		})
	}
}

// waitFor asks until there is something.
func waitFor(t *testing.T, what string, ask func() int) int {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if n := ask(); n != 0 {
			return n
		}
		if time.Now().After(deadline) {
			t.Fatalf("there is no %s", what)
		}
	}
}

// keeperOf is the process that a recorder has started in case that it is killed; 0: there is none yet.
func keeperOf(recorder int) int {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", recorder))
	for _, children := range threads {
		b, _ := os.ReadFile(children)
		for _, pid := range strings.Fields(string(b)) {
			if line, _ := os.ReadFile("/proc/" + pid + "/cmdline"); strings.HasPrefix(string(line), session.KeeperName+"\x00") {
				n, _ := strconv.Atoi(pid)
				return n
			}
		}
	}
	return 0
}

// Wherever a recorder is killed that attaches to a program and detaches from it, the program goes on as if nothing had been:
// before each call by which it changes the program (testdata/killer.c). What it leaves there can be taken out.
func TestKillRecorderAnywhere(t *testing.T) {
	testtool.Long(t)
	program, killer, recorder := buildAttached(t), buildFile(t, "testdata/killer.c"), buildRecorder(t)
	dir := t.TempDir()
	for name, args := range map[string][]string{"one thread": {"one"}, "busy": nil} {
		t.Run(name, func(t *testing.T) {
			stride := 59 // of some 700 and 1500
			switch {
			case testtool.Wide():
				stride = 1
			case args == nil:
				stride = 149
			}
			for n, steps := 1, 1<<30; n <= steps; n += stride {
				r := start(t, program, args...)
				before, files, _ := state(t, r.cmd.Process.Pid)
				trace := filepath.Join(dir, fmt.Sprint("fentry.data", n))
				cmd := exec.Command(killer, fmt.Sprint(n), recorder, "record", "-q", "-o", trace, "--overhead", "no", "-F", "_Z*",
					"-p", fmt.Sprint(r.cmd.Process.Pid), "--for", "20ms")
				var message bytes.Buffer
				cmd.Stderr = &message
				out, _ := cmd.Output()
				if _, err := fmt.Sscan(string(out), &steps); err != nil || steps < n && message.Len() > 0 {
					t.Fatalf("the recorder: %v, %q, %s", err, out, &message)
				}
				if steps == n { // killed
					steps = 1 << 30
				}
				err := session.Release(r.cmd.Process.Pid)
				if err != nil && !errors.Is(err, session.ErrNoTracer) {
					t.Errorf("detach: %v", err)
				}
				// What was mapped a moment before may stay, and nothing leads there.
				after, fds, _ := state(t, r.cmd.Process.Pid)
				if args != nil && (hasTracer(after) || fds != files || ofFiles(after) != ofFiles(before)) {
					t.Errorf("%d descriptors, %d before\n%s\n%s", fds, files, before, after)
				}
				r.end(t, 7, "right\n")
				if t.Failed() {
					t.Fatalf("the recorder was killed at step %d", n)
				}
				os.RemoveAll(trace)
			}
		})
	}
}

// Wherever a recorder is killed that gives back what it has put into a process, as attaching to that has failed, the rest can be taken
// out: it fails where the process can have no more memory than what is put into it, without the recorder's buffer.
func TestKillRecorderFails(t *testing.T) {
	program, killer, recorder := buildAttached(t), buildFile(t, "testdata/killer.c"), buildRecorder(t)
	// run returns how many steps were made, and what is mapped then that was not before.
	run := func(n int) (steps int, more []string) {
		r := start(t, program, "one")
		defer r.end(t, 7, "right\n")
		pid := r.cmd.Process.Pid
		before, files, _ := state(t, pid)
		var most unix.Rlimit
		if err := unix.Prlimit(pid, unix.RLIMIT_AS, nil, &most); err != nil {
			t.Fatal(err)
		}
		const room = 2 << 20
		if err := unix.Prlimit(pid, unix.RLIMIT_AS, &unix.Rlimit{Cur: sizeOf(before) + room, Max: most.Max}, nil); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(killer, fmt.Sprint(n), recorder, "record", "-q", "-o", filepath.Join(t.TempDir(), "fentry.data"), "--overhead", "no",
			"--for", "10s", "-F", "_Z*", "-p", fmt.Sprint(pid))
		out, err := cmd.Output()
		if _, serr := fmt.Sscan(string(out), &steps); serr != nil || err == nil {
			t.Fatalf("the recorder: %v, %q", err, out)
		}
		if err := unix.Prlimit(pid, unix.RLIMIT_AS, &most, nil); err != nil { // which who takes it out needs some of
			t.Fatal(err)
		}
		if err := session.Release(pid); err != nil && !errors.Is(err, session.ErrNoTracer) {
			t.Errorf("detach: %v", err)
		}
		maps, fds, _ := state(t, pid)
		for line := range strings.Lines(maps) {
			if !strings.Contains(before, line) {
				more = append(more, line)
			}
		}
		if hasTracer(maps) || fds != files || ofFiles(maps) != ofFiles(before) {
			t.Errorf("%d descriptors, %d before\n%s\n%s", fds, files, before, maps)
		}
		return steps, more
	}
	all, _ := run(0)
	stride := 4 // of the last 32
	if testtool.Wide() {
		stride = 1
	}
	for n := all; n > max(0, all-32) && !t.Failed(); n -= stride {
		if steps, more := run(n); len(more) > 1 { // one that was struck out just then may stay
			t.Errorf("killed at step %d of %d:\n%s", steps, all, more)
		}
	}
}

// sizeOf is how much is mapped.
func sizeOf(maps string) (size uint64) {
	for line := range strings.Lines(maps) {
		var lo, hi uint64
		if n, _ := fmt.Sscanf(line, "%x-%x", &lo, &hi); n == 2 && lo < 1<<63 { // not the kernel's own
			size += hi - lo
		}
	}
	return size
}

// ofFiles are the lines of mappings that are of files.
func ofFiles(maps string) (files string) {
	for line := range strings.Lines(maps) {
		if strings.Contains(line, " /") {
			files += line
		}
	}
	return files
}

// So does a program that a recorded one executes in the moment in which its recorder is killed, wherever that is: it begins as
// without, with what it was given.
func TestKillRecorderExecutes(t *testing.T) {
	testtool.Long(t)
	program, killer, recorder := buildFile(t, "testdata/executing.c"), buildFile(t, "testdata/killer.c"), buildRecorder(t)
	stride := 7
	if testtool.Wide() {
		stride = 1
	}
	dir := t.TempDir()
	if err := runfile.WriteFile(filepath.Join(dir, "script"), []byte("#!"+program+" child\n")); err != nil {
		t.Fatal(err)
	}
	for n, steps := 1, 1<<30; n <= steps; n += stride {
		p := exec.Command(program)
		p.Dir = dir
		c := startTold(t, p)
		if got := c.line(); got != "ready" {
			t.Fatal(got)
		}
		trace := filepath.Join(t.TempDir(), "fentry.data")
		cmd := exec.Command(killer, fmt.Sprint("+", n), recorder, "record", "-q", "-o", trace, "--overhead", "no", "-p", fmt.Sprint(p.Process.Pid))
		var out, message bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &message
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		waitFor(t, "recorder", func() int {
			if _, err := session.Control(p.Process.Pid, "ping"); err != nil {
				return 0
			}
			return 1
		})
		if err := cmd.Process.Signal(syscall.SIGUSR1); err != nil {
			t.Fatal(err)
		}
		for _, line := range []string{"itself", "script"} {
			fmt.Fprintln(c.in, line)
			if got := c.line(); got != "ok" {
				t.Fatalf("the recorder was killed at step %d: %s", n, got)
			}
		}
		c.in.Close()
		_ = p.Wait()
		if p.ProcessState.ExitCode() != 7 {
			t.Fatalf("the recorder was killed at step %d: %v", n, p.ProcessState)
		}
		_ = cmd.Wait()
		if _, err := fmt.Sscan(out.String(), &steps); err != nil || steps < n && message.Len() > 0 {
			t.Fatalf("the recorder: %v, %q, %s", err, &out, &message)
		}
		if steps == n { // killed
			steps = 1 << 30
		}
	}
}
