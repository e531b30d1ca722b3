//go:build linux

package fentry_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry"
	"github.com/fentry-dev/fentry/internal/testtool"
	"github.com/fentry-dev/fentry/session"
	"github.com/fentry-dev/fentry/trace"
)

// memoryGroup makes a control group whose processes have so much memory, puts one into it, and skips the test where that
// cannot be done.
func memoryGroup(t *testing.T, pid, bytes int) {
	t.Helper()
	limit, swap, dir := "memory.max", "memory.swap.max", "/sys/fs/cgroup/fentry-test-"+strconv.Itoa(pid)
	if _, err := os.Stat("/sys/fs/cgroup/memory/memory.limit_in_bytes"); err == nil {
		limit, swap, dir = "memory.limit_in_bytes", "memory.memsw.limit_in_bytes", "/sys/fs/cgroup/memory/fentry-test-"+strconv.Itoa(pid)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() {
		for deadline := time.Now().Add(10 * time.Second); os.Remove(dir) != nil && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		}
	})
	if err := os.WriteFile(filepath.Join(dir, limit), []byte(strconv.Itoa(bytes)), 0); err != nil {
		t.Skip(err)
	}
	_ = os.WriteFile(filepath.Join(dir, swap), []byte("0"), 0) // without it there may be swap, and it takes longer
	if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0); err != nil {
		t.Skip(err)
	}
}

// A flight recorder keeps what a process did until the kernel has killed it because its control group has no memory left,
// whether the recorder has started it or not.
func TestFlightOutOfMemory(t *testing.T) {
	const more = `
static void eats(void)
{
	for (;;) {
		volatile char *p = malloc(1 << 20);
		for (int i = 0; i < 1 << 20; i += 4096)
			p[i] = 1;
	}
}
`
	text := strings.Replace(flightProgram, "static volatile long done", more+"static volatile long done", 1)
	text = strings.Replace(text, "\tover = 1;\n", "\teats();\n\tover = 1;\n", 1)
	source := filepath.Join(t.TempDir(), "flight.c")
	if err := os.WriteFile(source, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	r := start(t, buildFile(t, source, "-fpatchable-function-entry=5"))
	pid := r.cmd.Process.Pid
	memoryGroup(t, pid, 64<<20)
	o := fentry.Options{Dir: filepath.Join(t.TempDir(), "fentry.data"), Logf: t.Logf, Policy: trace.PolicyOverwrite,
		Buffer: 16 << 20, Overhead: -1}
	o.Flight = &session.Flight{Keep: func(s syscall.WaitStatus) bool { return s.Signaled() }}
	type result struct {
		res *fentry.Result
		err error
	}
	ended := make(chan result, 1)
	go func() {
		res, err := fentry.Attach(context.Background(), []int{pid}, o)
		ended <- result{res, err}
	}()
	for deadline, steps := time.Now().Add(time.Minute), 0; steps == 0; time.Sleep(10 * time.Millisecond) {
		dir, err := session.Control(pid, "dump")
		switch {
		case err == nil:
			steps = checkFrom(t, dir, "step")
		case len(ended) > 0:
			if got := <-ended; got.err != nil && strings.Contains(got.err.Error(), "not permitted") {
				t.Skip(got.err)
			} else {
				t.Fatalf("%+v", got)
			}
		case !errors.Is(err, session.ErrNotRecorded) || time.Now().After(deadline):
			t.Fatal(err)
		}
	}
	r.in.Close()
	got := <-ended
	_ = r.cmd.Wait()
	if got.err != nil || !got.res.Ended || got.res.Unwanted || got.res.Status != r.cmd.ProcessState.Sys() ||
		got.res.Status.Signal() != syscall.SIGKILL {
		t.Fatalf("%+v, %v; %v, %s", got.res, got.err, r.cmd.ProcessState, r.out.String())
	}
	if steps := checkFrom(t, o.Dir, "step"); steps == 0 {
		t.Error("what it did last is not there")
	}
}

// A process whose control group has no memory left for the tracer is refused: the kernel would kill it. A buffer is as large as the
// group allows.
func TestAttachNoRoom(t *testing.T) {
	if !session.CanFollow() {
		t.Skip("processes are attached to on x86-64")
	}
	if b, err := os.ReadFile("/proc/meminfo"); err != nil || !regexp.MustCompile(`(?m)^SwapTotal: +0 kB$`).Match(b) {
		t.Skip("there is swap")
	}
	program := buildFile(t, "testdata/grows.c")
	for _, c := range []struct {
		room int
		want string
	}{
		{1 << 20, "KiB of its memory, and "},
		{16 << 20, ""},
	} {
		cmd := exec.Command(program)
		r := startTold(t, cmd)
		testtool.AwaitReady(t, cmd.Process.Pid)
		r.line()
		memoryGroup(t, cmd.Process.Pid, c.room)
		var said messages
		o := fentry.Options{Dir: filepath.Join(t.TempDir(), "fentry.data"), Buffer: 64 << 20, Policy: trace.PolicyDrop, Overhead: -1,
			For: 100 * time.Millisecond}
		o.Logf = said.logf
		_, err := fentry.Attach(t.Context(), []int{cmd.Process.Pid}, o)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%v, want %q", err, c.want)
		}
		if !slices.ContainsFunc(said.list, func(s string) bool { return strings.HasPrefix(s, "limited to ") }) {
			t.Errorf("%q", said.list)
		}
		r.do("1")
		r.in.Close()
		if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 5 {
			t.Error(err)
		}
	}
}

// What a process that runs already calls too often for what it tells is switched off, until tracing costs no more than it
// may, and the trace says so.
func TestAttachOverhead(t *testing.T) {
	r := start(t, buildStates(t))
	for long := 200 * time.Millisecond; ; long *= 2 {
		o := fentry.Options{Dir: filepath.Join(t.TempDir(), "fentry.data"), Logf: t.Logf, Policy: trace.PolicyDrop,
			Overhead: 0.02, For: long}
		res, err := fentry.Attach(context.Background(), []int{r.cmd.Process.Pid}, o)
		if err != nil && strings.Contains(err.Error(), "not permitted") {
			t.Skip(err)
		}
		if err != nil {
			t.Fatal(err)
		}
		tr, err := trace.Open(o.Dir)
		if err != nil {
			t.Fatal(err)
		}
		off := tr.SwitchedOff
		name := ""
		if len(off) > 0 {
			name = tr.Name(off[0].Func)
		}
		tr.Close()
		if res.SwitchedOff > 0 && len(off) == res.SwitchedOff && name == "sum" {
			break
		}
		if long > time.Minute || res.SwitchedOff != len(off) {
			t.Fatalf("%d switched off, the trace says %+v, %q", res.SwitchedOff, off, name)
		}
	}
	r.end(t, 7, "right\n")
}

// What is switched off because it costs too much has the program's own code again some time later, while it is recorded.
func TestAttachOverheadCode(t *testing.T) {
	r := start(t, buildStates(t))
	c := &controlled{t: t, pid: r.cmd.Process.Pid}
	code := func() string { return string(c.code("sum")) }
	own := code()
	ctx, detach := context.WithCancel(context.Background())
	defer detach()
	o := fentry.Options{Dir: filepath.Join(t.TempDir(), "fentry.data"), Logf: t.Logf, Policy: trace.PolicyDrop, Overhead: 0.02}
	ended := make(chan error, 1)
	go func() {
		_, err := fentry.Attach(ctx, []int{c.pid}, o)
		ended <- err
	}()
	for _, what := range []struct {
		is  string
		own bool
	}{{"traced", false}, {"switched off", true}} {
		for deadline := time.Now().Add(time.Minute); (code() == own) != what.own; time.Sleep(time.Millisecond) {
			if len(ended) > 0 {
				err := <-ended
				if err != nil && strings.Contains(err.Error(), "not permitted") {
					t.Skip(err)
				}
				t.Fatal(err)
			}
			if time.Now().After(deadline) {
				t.Fatalf("sum is not %s: it is %x, was %x", what.is, code(), own)
			}
		}
	}
	detach()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	tr, err := trace.Open(o.Dir)
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	if !slices.ContainsFunc(tr.SwitchedOff, func(s trace.SwitchedOff) bool { return tr.Name(s.Func) == "sum" }) {
		t.Errorf("switched off: %+v", tr.SwitchedOff)
	}
	r.end(t, 7, "right\n")
}

// Whatever stands against attaching to a process, everything is undone that was done before: here memory and descriptors
// that it may not have, at each step.
func TestAttachUndone(t *testing.T) {
	r := start(t, buildStates(t))
	pid := r.cmd.Process.Pid
	before, files, _ := state(t, pid)
	var size uint64
	for line := range strings.Lines(before) {
		var lo, hi uint64
		if n, _ := fmt.Sscanf(line, "%x-%x", &lo, &hi); n == 2 && hi < 1<<47 {
			size += hi - lo
		}
	}
	failed, worked := map[string]int{}, 0
	try := func(resource int, limit uint64) {
		t.Helper()
		var old unix.Rlimit
		if err := unix.Prlimit(pid, resource, nil, &old); err != nil {
			t.Skip(err)
		}
		low := unix.Rlimit{Cur: limit, Max: old.Max}
		if err := unix.Prlimit(pid, resource, &low, nil); err != nil {
			t.Skip(err)
		}
		o := fentry.Options{Dir: filepath.Join(t.TempDir(), "fentry.data"), Policy: trace.PolicyDrop, Overhead: -1,
			For: 10 * time.Millisecond}
		_, err := fentry.Attach(context.Background(), []int{pid}, o)
		if err != nil && strings.Contains(err.Error(), "not permitted") {
			t.Skip(err)
		}
		if err == nil {
			worked++
		} else {
			failed[err.Error()]++
		}
		if err := unix.Prlimit(pid, resource, &old, nil); err != nil {
			t.Fatal(err)
		}
		if maps, fds, _ := state(t, pid); maps != before || fds != files {
			t.Fatalf("%v: it has changed: %d descriptors, %d before\n%s\n%s", err, fds, files, before, maps)
		}
	}
	for n := range 5 {
		try(unix.RLIMIT_NOFILE, uint64(files+n))
	}
	const page = 4096
	for more := uint64(0); more < 256<<20; more = max(2*more, more+8*page) &^ (page - 1) {
		try(unix.RLIMIT_AS, size+more)
	}
	if len(failed) < 3 || worked == 0 {
		t.Errorf("it worked %d times; %v", worked, failed)
	}
	t.Logf("it worked %d times; %v", worked, failed)
	r.end(t, 7, "right\n")
}

// The tracer is also taken out of a process that has no descriptor left.
func TestAttachFull(t *testing.T) {
	r := start(t, buildStates(t))
	before, files, _ := state(t, r.cmd.Process.Pid)
	attachWhile(t, r.cmd.Process.Pid, fentry.Options{}, func() {
		const standard = 3 // that it has; others it has somewhere above these
		if err := unix.Prlimit(r.cmd.Process.Pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: standard, Max: standard}, nil); err != nil {
			t.Skip(err)
		}
	})
	if maps, fds, _ := state(t, r.cmd.Process.Pid); maps != before || fds != files {
		t.Errorf("it has changed: %d descriptors, %d before\n%s\n%s", fds, files, before, maps)
	}
	r.end(t, 7, "right\n")
}

// All of a buffer is unmapped that a process has used much of, which takes several stops.
func TestAttachMuch(t *testing.T) {
	r := start(t, buildStates(t))
	before, _, _ := state(t, r.cmd.Process.Pid)
	const pieces = 50
	attachWhile(t, r.cmd.Process.Pid, fentry.Options{Buffer: 64 << 20, Policy: trace.PolicyOverwrite}, func() {
		waitFor(t, "much that is recorded", func() int {
			maps, _, _ := state(t, r.cmd.Process.Pid)
			return strings.Count(maps, " rw-s ") / pieces
		})
	})
	if maps, _, _ := state(t, r.cmd.Process.Pid); maps != before {
		t.Errorf("it has changed:\n%s\n%s", before, maps)
	}
	r.end(t, 7, "right\n")
}

// attachWhile records a process while a function runs.
func attachWhile(t *testing.T, pid int, o fentry.Options, do func()) {
	t.Helper()
	ctx, end := context.WithCancel(context.Background())
	defer end()
	ended := make(chan error, 1)
	o.Dir, o.Overhead = filepath.Join(t.TempDir(), "fentry.data"), -1
	go func() {
		_, err := fentry.Attach(ctx, []int{pid}, o)
		ended <- err
	}()
	waitFor(t, "recording", func() int {
		if _, err := session.Control(pid, "status"); err == nil {
			return 1
		}
		select {
		case err := <-ended:
			if err != nil && strings.Contains(err.Error(), "not permitted") {
				t.Skip(err)
			}
			t.Fatal(err)
		default:
		}
		return 0
	})
	do()
	end()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// A program that has memory where the plan's usually is gets it elsewhere; also if it maps that while it is attached to.
func TestAttachTaken(t *testing.T) {
	programs := map[string]string{}
	for _, kind := range []string{"-pie", "-no-pie"} {
		programs[kind] = buildFile(t, "testdata/taken.c", kind)
	}
	for _, test := range []struct {
		kind   string
		heap   []string // MiB
		random bool     // where its heap begins
	}{
		{"-pie", []string{"1075"}, true}, {"-no-pie", []string{"1075"}, true}, {"-pie", []string{"1200"}, false},
		{"-no-pie", []string{"1000"}, false}, {"-pie", nil, true}, {"-no-pie", nil, true},
	} {
		t.Run(fmt.Sprintf("%s, heap of %v, random %v", test.kind, test.heap, test.random), func(t *testing.T) {
			var r *running
			inPersonality(t, test.random, func() { r = start(t, programs[test.kind], test.heap...) })
			dir := filepath.Join(t.TempDir(), "fentry.data")
			for range 5 {
				attachUntil(t, r.cmd.Process.Pid, fentry.Options{Dir: dir}, 20*time.Millisecond, "sum")
			}
			r.end(t, 7, "")
		})
	}
}

// inPersonality does something on a thread whose children have random addresses, or not.
func inPersonality(t *testing.T, random bool, do func()) {
	t.Helper()
	if random {
		do()
		return
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	const notRandom, query = 0x40000, 0xffffffff
	was, _, _ := unix.RawSyscall(unix.SYS_PERSONALITY, query, 0, 0)
	if _, _, errno := unix.RawSyscall(unix.SYS_PERSONALITY, was|notRandom, 0, 0); errno != 0 {
		t.Skip(errno)
	}
	defer unix.RawSyscall(unix.SYS_PERSONALITY, was, 0, 0)
	do()
}
