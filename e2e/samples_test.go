package e2e

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fentry-dev/fentry/internal/testtool"
	"github.com/fentry-dev/fentry/session"
	"github.com/fentry-dev/fentry/trace"
)

// busy compiles testdata/stacks/busy.c.
func busy(t *testing.T, dir string, tg target, more ...string) string {
	t.Helper()
	needFentry(t)
	tg.need(t)
	prog := filepath.Join(dir, "busy")
	args := slices.Concat(tg.compiler(t, "gcc"), []string{"-O1", "-g", "-fno-optimize-sibling-calls", "-o", prog,
		"testdata/stacks/busy.c", "-lpthread"}, more)
	out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	return prog
}

// TestSamples records stacks on a timer of a program that is not traced: of a thread, a forked child and what that
// executes, as many as fit the processor time that they take, in the functions that take it, to the first one.
func TestSamples(t *testing.T) {
	if err := session.CanSample(time.Millisecond); err != nil {
		t.Skipf("needs perf events: %v", err)
	}
	dir := t.TempDir()
	prog, data := busy(t, dir, target{}), filepath.Join(dir, "data")
	const ms = 300
	oftenEnough(t, [][]string{nil, {"--syscalls"}, {"--stack-mode", "partial"}}, func(more []string) (enough bool) {
		argv := append([]string{fentry, "record", "-o", data, "--overhead", "no", "-F", "none", "--stack-every", "1ms"}, more...)
		run(t, command{argv: append(argv, prog, fmt.Sprint(ms))}).mustSucceed(t)
		tr, err := trace.Open(data)
		if err != nil {
			t.Fatal(err)
		}
		defer tr.Close()
		all, known := map[string]int{}, map[string]int{} // by task
		err = tr.Walk(trace.WalkOptions{}, func(ev *trace.Event) error {
			if ev.Kind != trace.Stacktrace {
				return nil
			}
			b, labels := ev.Backtrace, tr.StackLabels(ev)
			who := "main"
			switch {
			case ev.Task.PID != ev.Task.TID:
				who = "thread"
			case ev.Task.PID != tr.Info.PID:
				who = "child"
			}
			all[who]++
			mode := "full"
			if slices.Contains(more, "partial") {
				mode = "partial"
			}
			if !b.Timer || b.Mode != mode || b.Delay != 0 {
				t.Errorf("timer %v, mode %s, delay %d", b.Timer, b.Mode, b.Delay)
			}
			outer := "main"
			if who == "thread" {
				outer = "thread"
			}
			i := slices.Index(labels, "work")
			if b.End == "outermost" && i >= 0 && slices.Contains(labels[i:], outer) && inWorking(labels[:i]) {
				known[who]++
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%v: %v samples, %v in full", argv, all, known)
		lost := tr.Info.Samples.Lost // of whichever task: counted, where the recorder comes late
		enough = true
		for who, want := range map[string]int{"main": ms, "thread": ms, "child": ms} {
			n := all[who]
			// On a busy machine, the beginning of a program takes longer.
			if n > want*3/2 || known[who] < n*8/10 {
				t.Errorf("%v: %s: %d samples, %d in full, of about %d", argv, who, n, known[who], want)
			}
			enough = enough && n > 0 && n+int(lost) >= want/2
		}
		t.Logf("%d lost", lost)
		return enough
	})
}

// inWorking tells whether these functions, the innermost first, can be called by work of busy.c.
func inWorking(labels []string) bool {
	switch s := strings.Join(labels, " "); {
	case s == "ms", strings.HasSuffix(s, "clock_gettime ms"):
		return len(labels) <= 3 // and the vdso's
	default:
		return slices.Contains([]string{"", "inner", "rec", "rec rec", "rec rec rec", "rec rec rec rec", "inner rec rec rec rec"}, s)
	}
}

// oftenEnough does with each of the options what says whether there were enough samples: of that the best of some times
// counts, as the kernel's timers are late on a machine that is busy, or that another one runs on.
func oftenEnough(t *testing.T, options [][]string, sampled func(more []string) (enough bool)) {
	t.Helper()
	const most = 10
	for _, more := range options {
		n := 1
		for n <= most && !sampled(more) && !t.Failed() {
			n++
		}
		if n > most {
			t.Errorf("%v: %d times too few samples", more, most)
		}
	}
}

// TestSamplesRefused: where perf events are not allowed, stacks are taken at system calls, and fentry says so.
func TestSamplesRefused(t *testing.T) {
	dir := t.TempDir()
	prog, data, noperf := busy(t, dir, target{}), filepath.Join(dir, "data"), filepath.Join(dir, "noperf")
	if out, err := exec.Command("gcc", "-DFORBIDDEN=SYS_perf_event_open", "-o", noperf,
		"../session/testdata/noptrace.c").CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	r := run(t, command{argv: []string{noperf, fentry, "record", "-o", data, "-F", "none", "--stack-every", "1ms", prog, "100"}})
	if r.status == "exit 77" {
		t.Skip("needs seccomp filters")
	}
	r.mustSucceed(t)
	if !strings.Contains(r.stderr, "stacks are taken at system calls only: perf_event_open: operation not permitted") {
		t.Errorf("%s", r.stderr)
	}
	expectDeferred(t, data)
}

// expectDeferred expects stacks in a trace that a timer has asked for, taken at events.
func expectDeferred(t *testing.T, data string) {
	t.Helper()
	tr, err := trace.Open(data)
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	n := 0
	err = tr.Walk(trace.WalkOptions{}, func(ev *trace.Event) error {
		if ev.Kind == trace.Stacktrace && ev.Backtrace.Timer && ev.Backtrace.Mode == "deferred" {
			n++
		}
		return nil
	})
	if err != nil || n == 0 {
		t.Errorf("%d stacks: %v", n, err)
	}
}

// TestSamplesEmulated: the kernel does not know the stacks of a program that an emulator runs. They are taken at its system
// calls, and fentry says so.
func TestSamplesEmulated(t *testing.T) {
	for _, more := range [][]string{nil, {"-static"}} {
		dir := t.TempDir()
		prog, data := busy(t, dir, arm64, more...), filepath.Join(dir, "data")
		r := run(t, command{argv: []string{fentry, "record", "-o", data, "-F", "none", "--stack-every", "1ms", prog, "100"}})
		r.mustSucceed(t)
		if !strings.Contains(r.stderr, "stacks are taken at system calls only: an emulator runs the program") {
			t.Errorf("%s", r.stderr)
		}
		expectDeferred(t, data)
	}
}

// TestSamplesDeferred: where functions are traced stacks are taken at the next event, through frames of functions that are
// traced and of those that are not, and say how late.
func TestSamplesDeferred(t *testing.T) {
	for _, tg := range []target{{}, arm64} {
		t.Run(tg.name(), func(t *testing.T) { testSamplesDeferred(t, tg) })
	}
}

func testSamplesDeferred(t *testing.T, tg target) {
	dir := t.TempDir()
	prog, data := busy(t, dir, tg), filepath.Join(dir, "data")
	const ms = 300
	oftenEnough(t, [][]string{{"--syscalls"}, {"-F", "inner"}, {"-F", "rec", "-F", "ms"}}, func(more []string) (enough bool) {
		argv := append([]string{fentry, "record", "-o", data, "--overhead", "no", "--stack-every", "1ms"}, more...)
		run(t, command{argv: append(argv, prog, fmt.Sprint(ms))}).mustSucceed(t)
		tr, err := trace.Open(data)
		if err != nil {
			t.Fatal(err)
		}
		defer tr.Close()
		all, known, late := map[int]int{}, 0, int64(0) // by process
		err = tr.Walk(trace.WalkOptions{}, func(ev *trace.Event) error {
			if ev.Kind != trace.Stacktrace {
				return nil
			}
			b, labels := ev.Backtrace, tr.StackLabels(ev)
			if all[ev.Task.PID]++; !b.Timer || b.Mode != "deferred" || b.Delay < 0 {
				t.Errorf("timer %v, mode %s, delay %d", b.Timer, b.Mode, b.Delay)
			}
			late += b.Delay
			// From the outermost on: main or thread, work, rec any number of times, inner or ms.
			i := slices.IndexFunc(labels, func(l string) bool { return l == "main" || l == "thread" })
			text := strings.Join(labels[:max(i, 0)], " ")
			if b.End == "outermost" && i > 0 && inWork.MatchString(text) {
				known++
			} else {
				t.Logf("%s: %q", b.End, labels)
			}
			return nil
		})
		n := 0
		for _, k := range all {
			n += k
		}
		t.Logf("%v: %d samples in %d processes, %d known, %v late on average", more, n, len(all), known, time.Duration(late/int64(max(n, 1))))
		if err != nil || n > 3*ms*3/2 || len(all) != 2 || known < n*9/10 {
			t.Errorf("%v: %d samples in %d processes, %d known: %v", more, n, len(all), known, err)
		}
		return n >= 3*ms/3
	})
}

// inWork is what is above main or thread in stacks of busy.c.
var inWork = regexp.MustCompile(`^((inner |ms )?(rec )*|.*clock_gettime.* ms )work$`)

// TestSamplesAttached takes stacks on a timer of all threads of processes that run already, those that begin meanwhile, too,
// and leaves them as they were.
func TestSamplesAttached(t *testing.T) {
	if err := session.CanSample(time.Millisecond); err != nil {
		t.Skipf("needs perf events: %v", err)
	}
	needFentry(t)
	dir := t.TempDir()
	prog, data := filepath.Join(dir, "threads"), filepath.Join(dir, "data")
	testtool.Need(t, "gcc")
	testtool.Output(t, "gcc", "-O1", "-g", "-o", prog, "testdata/stacks/threads.c", "-lpthread")
	args := []string{"record", "-q", "-o", data, "-F", "none", "--stack-every", "1ms", "--for", "3s"}
	var pids []int
	for range 2 {
		program := exec.Command(prog)
		in, err := program.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		ready, err := program.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := program.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := program.Process.Signal(syscall.Signal(0)); err != nil {
				t.Errorf("the program: %v", err)
			}
			_ = program.Process.Kill()
			_ = program.Wait()
		}()
		if _, err := ready.Read(make([]byte, len("ready\n"))); err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(time.Second, func() { _, _ = in.Write([]byte("x")) })
		pids, args = append(pids, program.Process.Pid), append(args, "-p", fmt.Sprint(program.Process.Pid))
	}
	if out, err := exec.Command(fentry, args...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	tr, err := trace.Open(data)
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	type function struct {
		pid  int
		name string
	}
	names, found := []string{"main", "early", "late"}, map[function]int{}
	err = tr.Walk(trace.WalkOptions{}, func(ev *trace.Event) error {
		if ev.Kind == trace.Stacktrace && ev.Backtrace.End == "outermost" {
			labels := tr.StackLabels(ev)
			for _, name := range names {
				if slices.Contains(labels, name) {
					found[function{ev.Task.PID, name}]++
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, pid := range pids {
		for _, name := range names {
			if found[function{pid, name}] < 10 {
				t.Errorf("%d stacks of %s in process %d", found[function{pid, name}], name, pid)
			}
		}
	}
	refused := exec.Command(fentry, "record", "-o", data, "-p", fmt.Sprint(pids[0]), "--stack-every", "1ms")
	if out, err := refused.CombinedOutput(); err == nil || !strings.Contains(string(out), "requires -F none") {
		t.Errorf("with functions: %v\n%s", err, out)
	}
}
