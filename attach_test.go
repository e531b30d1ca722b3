//go:build linux

package fentry_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fentry-dev/fentry"
	"github.com/fentry-dev/fentry/internal/testtool"
	"github.com/fentry-dev/fentry/patch"
	"github.com/fentry-dev/fentry/record"
	"github.com/fentry-dev/fentry/session"
	"github.com/fentry-dev/fentry/trace"
)

// A running is a program that a test attaches to.
type running struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out bytes.Buffer
}

// buildAttached compiles testdata/attach.cpp, or skips the test where nothing can be attached to.
func buildAttached(t *testing.T, flags ...string) string {
	t.Helper()
	return buildFile(t, "testdata/attach.cpp", flags...)
}

// buildFile does so with a source.
func buildFile(t *testing.T, source string, flags ...string) string {
	t.Helper()
	if runtime.GOARCH != "amd64" {
		t.Skip("processes are attached to on x86-64")
	}
	compiler := "gcc"
	if filepath.Ext(source) == ".cpp" {
		compiler = "g++"
	}
	testtool.Need(t, compiler)
	program := filepath.Join(t.TempDir(), "attached")
	args := append([]string{"-O2", "-pthread", "-o", program, source}, flags...)
	if out, err := exec.Command(compiler, args...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program
}

// start starts a program that runs until its standard input ends, and waits until it is ready, or has ended.
func start(t *testing.T, program string, args ...string) *running {
	t.Helper()
	return startAs(t, nil, program, args...)
}

// startAs does so with attributes.
func startAs(t *testing.T, attributes *syscall.SysProcAttr, program string, args ...string) *running {
	t.Helper()
	r := launch(t, attributes, program, args...)
	testtool.AwaitReady(t, r.cmd.Process.Pid)
	return r
}

// launch starts a program with attributes.
func launch(t *testing.T, attributes *syscall.SysProcAttr, program string, args ...string) *running {
	t.Helper()
	r := &running{cmd: exec.Command(program, args...)}
	r.cmd.SysProcAttr = attributes
	r.cmd.Stdout, r.cmd.Stderr = &r.out, &r.out
	var err error
	if r.in, err = r.cmd.StdinPipe(); err == nil {
		err = r.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	r.killAtEnd(t)
	return r
}

// killAtEnd kills the program when the test is over, if it goes on.
func (r *running) killAtEnd(t *testing.T) {
	t.Cleanup(func() {
		if r.cmd.ProcessState == nil {
			r.cmd.Process.Kill()
			r.cmd.Wait()
			t.Logf("the program ended with %v, %q", r.cmd.ProcessState, r.out.String())
		}
	})
}

// end ends it, which is to end with a status and an output.
func (r *running) end(t *testing.T, status int, output string) {
	t.Helper()
	r.in.Close()
	err := r.cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if got := r.cmd.ProcessState.ExitCode(); got != status || r.out.String() != output {
		t.Errorf("the program ended with %v, %q", r.cmd.ProcessState, r.out.String())
	}
}

// attach records a process for a while, and returns what was counted, by function.
func attach(t *testing.T, pid int, o fentry.Options, long time.Duration) map[string]uint64 {
	t.Helper()
	if o.Dir == "" {
		o.Dir = filepath.Join(t.TempDir(), "fentry.data")
	}
	o.Logf, o.Policy, o.Overhead = t.Logf, trace.PolicyDrop, -1
	o.For = long
	res, err := fentry.Attach(context.Background(), []int{pid}, o)
	if err != nil && strings.Contains(err.Error(), "not permitted") {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if res.Traced == 0 && len(res.Libraries) == 0 && !o.Plan.NoFunctions || res.Ended || res.WriteError != nil || res.BadChunks != 0 {
		t.Fatalf("%+v", res)
	}
	t.Logf("stopped for %v and %v", res.Setup, res.Held)
	return callsIn(t, o.Dir)
}

// attachUntil records a process again and again, for longer each time, until functions were recorded: how long it takes
// until they are called is for the scheduler to say.
func attachUntil(t *testing.T, pid int, o fentry.Options, long time.Duration, functions ...string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; long *= 2 {
		calls := attach(t, pid, o, long)
		functions = slices.DeleteFunc(functions, func(name string) bool { return calls[name] > 0 })
		if len(functions) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%v: not recorded in %v; %v", functions, long, calls)
		}
	}
}

// state is what a process has: its mappings, its descriptors, and how much of it is in memory, in KiB.
func state(t *testing.T, pid int) (maps string, fds, resident int) {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		t.Fatal(err)
	}
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	// VmRSS in its status is exact to some pages of each processor only.
	pages, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil && !errors.Is(err, os.ErrNotExist) { // not every kernel has it
		t.Fatal(err)
	}
	if m := regexp.MustCompile(`Rss:\s*(\d+)`).FindSubmatch(pages); m != nil {
		fmt.Sscan(string(m[1]), &resident)
	}
	return string(b), len(files), resident
}

// hasTracer tells of a process's mappings whether the tracer's code is among them.
func hasTracer(maps string) bool { return strings.Contains("\n"+maps, "\n001f0000-") }

// A process that is attached to and detached from again and again has the same memory and descriptors as before, and goes
// on as if nothing had been.
func TestAttachAgain(t *testing.T) {
	for name, flags := range map[string][]string{"position independent": {"-pie"}, "fixed": {"-no-pie"}, "prepared": {
		"-fpatchable-function-entry=5"}} {
		t.Run(name, func(t *testing.T) {
			r := start(t, buildAttached(t, flags...), "one")
			before, files, _ := state(t, r.cmd.Process.Pid)
			var second int
			dir := filepath.Join(t.TempDir(), "fentry.data")
			for i := range 20 {
				attachUntil(t, r.cmd.Process.Pid, fentry.Options{Dir: dir}, 20*time.Millisecond, "_Z3suml")
				maps, fds, resident := state(t, r.cmd.Process.Pid)
				if i == 1 {
					second = resident
					noThreadEnds(t, dir)
				}
				if maps != before || fds != files || i > 1 && resident > second+64 {
					t.Fatalf("after %d times: %d descriptors, %d KiB, after the second %d\n%s\n%s", i+1, fds, resident, second,
						before, maps)
				}
			}
			r.end(t, 7, "right\n")
		})
	}
}

// noThreadEnds fails if a trace says that a thread has ended.
func noThreadEnds(t *testing.T, dir string) {
	t.Helper()
	tr, err := trace.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	if err := tr.Walk(trace.WalkOptions{}, func(e *trace.Event) error {
		if e.Kind == trace.ThreadEnd {
			t.Errorf("thread %d goes on, and has ended in the trace", e.Task.TID)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

// Threads that throw, begin and end, wait, take signals and fork do not notice that they are being recorded, nor when that
// begins or ends.
func TestAttachBusy(t *testing.T) {
	r := start(t, buildAttached(t))
	dir := filepath.Join(t.TempDir(), "fentry.data")
	for range 5 {
		attachUntil(t, r.cmd.Process.Pid, fentry.Options{Dir: dir}, 100*time.Millisecond, "_Z3suml", "_Z4leafi", "_Z7handledi")
	}
	r.end(t, 7, "right\n")
}

// A hundred times leave a busy process with what it had after the second: what its threads have at a moment differs, the
// least of it in some looks does not.
func TestAttachHundred(t *testing.T) {
	r := start(t, buildAttached(t))
	pid := r.cmd.Process.Pid
	dir := filepath.Join(t.TempDir(), "fentry.data")
	least := func() (lines, fds, resident int) {
		lines, fds, resident = 1<<30, 1<<30, 1<<30
		for range 200 {
			maps, f, m := state(t, pid)
			lines, fds, resident = min(lines, strings.Count(maps, "\n")), min(fds, f), min(resident, m)
			time.Sleep(time.Millisecond)
		}
		return lines, fds, resident
	}
	var lines, fds, resident int
	for i := range 100 {
		attach(t, pid, fentry.Options{Dir: dir}, time.Millisecond)
		if i == 1 {
			lines, fds, resident = least()
		}
	}
	l, f, m := least()
	t.Logf("after the second and the last: %d and %d mappings, %d and %d descriptors, %d and %d KiB", lines, l, fds, f, resident, m)
	if l > lines || f > fds || m > resident+256 {
		t.Error("it has more than after the second")
	}
	r.end(t, 7, "right\n")
}

// Root records processes of other users, and of other PID namespaces: the buffer is handed to them.
func TestAttachOthers(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root may attach to processes of other users")
	}
	program := buildAttached(t)
	for dir := filepath.Dir(program); strings.HasPrefix(filepath.Base(dir), "Test") || filepath.Base(dir) == "001"; {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		dir = filepath.Dir(dir)
	}
	const nobody = 65534
	for name, attributes := range map[string]*syscall.SysProcAttr{
		"user":      {Credential: &syscall.Credential{Uid: nobody, Gid: nobody}},
		"namespace": {Cloneflags: syscall.CLONE_NEWPID},
	} {
		t.Run(name, func(t *testing.T) {
			r := startAs(t, attributes, program, "one")
			before, files, _ := state(t, r.cmd.Process.Pid)
			dir := filepath.Join(t.TempDir(), "fentry.data")
			attachUntil(t, r.cmd.Process.Pid, fentry.Options{Dir: dir}, 50*time.Millisecond, "_Z3suml")
			if maps, fds, _ := state(t, r.cmd.Process.Pid); maps != before || fds != files {
				t.Errorf("it has changed: %d descriptors, %d before\n%s\n%s", fds, files, before, maps)
			}
			r.end(t, 7, "right\n")
		})
	}
}

// A process that another one shares its memory with, which is not stopped with its threads, is left alone.
func TestAttachSharedMemory(t *testing.T) {
	r := start(t, testtool.Compile(t, "shared", `
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
static char stack[1 << 16];
static int helper(void *stop) { while (!*(volatile int *)stop) usleep(1000); return 0; }
int main(void)
{
	static int stop;
	char c;
	if (clone(helper, stack + sizeof stack, CLONE_VM | SIGCHLD, &stop) < 0)
		return 1;
	prctl(PR_SET_NAME, "ready");
	read(0, &c, 1);
	stop = 1;
	wait(0);
	return 7;
}`))
	refusedFor(t, r.cmd.Process.Pid, "shares its memory, and is no thread of it")
	r.end(t, 7, "")
}

// Functions that a program has changed itself are left alone, and named.
func TestAttachChanged(t *testing.T) {
	r := start(t, testtool.Compile(t, "changed", `
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
__attribute__((noinline, noclone)) int value(void)
{
	int r;
	__asm__ volatile("movl $1, %0" : "=a"(r));
	return r;
}
__attribute__((noinline, noclone)) int twice(int n)
{
	__asm__ volatile("" : "+r"(n));
	return 2 * n;
}
int main(void)
{
	struct pollfd in = { 0, POLLIN, 0 };
	static int (*volatile where)(void) = value;
	unsigned char *code = (unsigned char *)where;
	int right = 1;
	if (mprotect((void *)((long)code & -4096), 8192, PROT_READ | PROT_WRITE | PROT_EXEC))
		return 1;
	for (int i = 0; i < 16; i++)
		if (code[i] == 0xb8) {
			code[i + 1] = 21; /* of mov $1, %eax */
			break;
		}
	mprotect((void *)((long)code & -4096), 8192, PROT_READ | PROT_EXEC);
	prctl(PR_SET_NAME, "ready");
	while (!poll(&in, 1, 0))
		right &= twice(value()) == 42;
	return right ? 7 : 1;
}`, "-O2"))
	before, files, _ := state(t, r.cmd.Process.Pid)
	for range 2 {
		var said strings.Builder
		rec := recordOne(t, r.cmd.Process.Pid, fentry.Options{Logf: func(format string, args ...any) { fmt.Fprintf(&said, format+"\n", args...) }})
		awaitCalls(t, rec.dir, "twice")
		if _, calls := rec.end(t); calls["twice"] == 0 || calls["value"] != 0 || !strings.Contains(said.String(), "the program has changed it itself: value\n") {
			t.Errorf("%v: %s", calls, &said)
		}
		if maps, fds, _ := state(t, r.cmd.Process.Pid); maps != before || fds != files {
			t.Errorf("it has changed: %d descriptors, %d before\n%s\n%s", fds, files, before, maps)
		}
	}
	r.end(t, 7, "")
}

// What is left alone is so undisturbed, with a reason; options that cannot be had are refused.
func TestAttachRefused(t *testing.T) {
	r := start(t, buildAttached(t), "one")
	pid := r.cmd.Process.Pid
	refused := func(pid int, o fentry.Options, want string) {
		t.Helper()
		o.Dir, o.Logf = filepath.Join(t.TempDir(), "fentry.data"), t.Logf
		if _, err := fentry.Attach(context.Background(), []int{pid}, o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
		if _, err := os.Stat(o.Dir); err == nil {
			t.Errorf("%s: there is a trace", want)
		}
	}
	refused(os.Getpid(), fentry.Options{}, "it is this one")
	refused(1<<30, fentry.Options{}, "no such process")
	refused(pid, fentry.Options{Plan: patch.Options{Tracer: patch.Count}}, "-T count")
	none, err := record.NewFilter([]string{"nothing_is_called_that"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	refused(pid, fentry.Options{Plan: patch.Options{Select: none}}, "none of the")
	if status, err := os.ReadFile("/proc/2/status"); err == nil && bytes.Contains(status, []byte("kthreadd")) {
		refused(2, fentry.Options{}, "a thread of the kernel")
	}
	before, _, _ := state(t, pid)
	if strace := exec.Command("strace", "-q", "-o", os.DevNull, "-p", fmt.Sprint(pid)); testtool.Have(t, "strace") {
		if err := strace.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { strace.Process.Kill() })
		tracer := fmt.Appendf(nil, "\nTracerPid:\t%d\n", strace.Process.Pid)
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
			status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
			if bytes.Contains(status, tracer) {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("strace does not attach to it:\n%s", status)
			}
		}
		refused(pid, fentry.Options{}, fmt.Sprintf("process %d (strace) traces it", strace.Process.Pid))
		strace.Process.Signal(os.Interrupt)
		strace.Wait()
	}
	if maps, _, _ := state(t, pid); maps != before {
		t.Errorf("it has changed\n%s\n%s", before, maps)
	}
	r.end(t, 7, "right\n")
}

// A Go program that runs already is refused with a sentence: goroutines are stopped where the plan would write, and their
// stacks move. It goes on as it was.
func TestAttachGo(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("processes are attached to on x86-64")
	}
	prog := buildGo(t, `package main

import (
	"fmt"
	"io"
	"os"
)

func main() {
	fmt.Println("here")
	b, _ := io.ReadAll(os.Stdin)
	fmt.Println(len(b))
}
`)
	cmd := exec.Command(prog)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	out := bufio.NewReader(pipe)
	if line, err := out.ReadString('\n'); line != "here\n" {
		t.Fatalf("%q, %v", line, err)
	}
	dir := filepath.Join(t.TempDir(), "fentry.data")
	_, err = fentry.Attach(context.Background(), []int{cmd.Process.Pid}, fentry.Options{Dir: dir, Logf: t.Logf})
	if err == nil || !strings.Contains(err.Error(), "cannot be traced while it runs: a Go program, whose stacks move") {
		t.Errorf("%v", err)
	}
	io.WriteString(in, "more")
	in.Close()
	if line, err := out.ReadString('\n'); line != "4\n" {
		t.Errorf("it says %q, %v", line, err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// TestAttachSomeEnded: of several processes those are recorded that have not ended.
func TestAttachSomeEnded(t *testing.T) {
	ended := exec.Command("true")
	if err := ended.Run(); err != nil {
		t.Skip(err)
	}
	for _, syscalls := range []bool{false, true} {
		r := start(t, buildAttached(t), "one")
		dir := filepath.Join(t.TempDir(), "fentry.data")
		res, err := fentry.Attach(context.Background(), []int{ended.Process.Pid, r.cmd.Process.Pid},
			fentry.Options{Dir: dir, Logf: t.Logf, Policy: trace.PolicyDrop, For: 100 * time.Millisecond, Syscalls: syscalls})
		if err != nil && strings.Contains(err.Error(), "not permitted") {
			t.Skip(err)
		}
		if err != nil || res.Events == 0 {
			t.Errorf("with system calls: %v: %v", syscalls, err)
		}
	}
}

// What is recorded can be changed while it is: by whole commands, whose errors say where they are.
func TestControl(t *testing.T) {
	r := start(t, buildAttached(t), "one")
	pid := r.cmd.Process.Pid
	if _, err := session.Control(pid, "tracing_on = 0"); !errors.Is(err, session.ErrNotRecorded) {
		t.Errorf("of a process that is not recorded: %v", err)
	}
	dir := filepath.Join(t.TempDir(), "fentry.data")
	const buffer = 1 << 20
	ended := make(chan *fentry.Result, 1)
	go func() {
		res, err := fentry.Attach(context.Background(), []int{pid}, fentry.Options{Dir: dir, Logf: t.Logf, Policy: trace.PolicyDrop,
			Buffer: buffer, Overhead: -1})
		if err != nil {
			t.Error(err)
		}
		ended <- res
	}()
	control := func(command string) error {
		_, err := session.Control(pid, command)
		for deadline := time.Now().Add(time.Minute); errors.Is(err, session.ErrNotRecorded); _, err = session.Control(pid, command) {
			if time.Now().After(deadline) || len(ended) > 0 {
				t.Fatal(err)
			}
			time.Sleep(time.Millisecond)
		}
		return err
	}
	// called waits until something was called that is recorded: more is on the disk than a buffer can have held before.
	called := func() {
		size := func() int64 {
			if st, err := os.Stat(filepath.Join(dir, "events")); err == nil {
				return st.Size()
			}
			return 0
		}
		for before, deadline := size(), time.Now().Add(time.Minute); size() <= before+buffer; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) || len(ended) > 0 {
				t.Fatal("nothing is recorded any more")
			}
		}
	}
	if err := control("tracing_on = 1"); err != nil {
		t.Fatal(err)
	}
	called()
	for _, command := range []string{"tracing_on = 1", "set_ftrace_filter -= *sum*", "set_ftrace_filter += _Z3suml,_ZL4spinv",
		"tracing_on = 0"} {
		if err := control(command); err != nil {
			t.Fatalf("%s: %v", command, err)
		}
	}
	for command, column := range map[string]int{
		"": 1, "nonsense": 1, "detach now": 8, "tracing_on += 1": 12, "tracing_on = 2": 14, "tracing_on = 1 0": 16,
		"set_ftrace_filter == a": 19, "set_ftrace_filter = _Z3suml, nobody_is_called_that": 30,
	} {
		var wrong *session.ControlError
		if err := control(command); !errors.As(err, &wrong) || wrong.Column != column || wrong.Why == "" {
			t.Errorf("%q: %+v; want column %d", command, err, column)
		}
	}
	// What is refused changes nothing; for a while nothing is recorded, then the function that is always called.
	const off = 100 * time.Millisecond
	for _, command := range []string{"set_ftrace_filter = _Z3suml nobody_is_called_that", "tracing_on = 1 2"} {
		if err := control(command); err == nil {
			t.Errorf("%s: no error", command)
		}
	}
	time.Sleep(off)
	for _, command := range []string{"set_ftrace_filter = _ZL4spinv", "tracing_on = 1"} {
		if err := control(command); err != nil {
			t.Fatalf("%s: %v", command, err)
		}
	}
	time.Sleep(off)
	if err := control("set_ftrace_filter += _Z3suml"); err != nil {
		t.Fatal(err)
	}
	called()
	if err := control("detach"); err != nil {
		t.Fatal(err)
	}
	if res := <-ended; res == nil || res.Ended || res.Events == 0 {
		t.Fatalf("%+v", res)
	}
	r.end(t, 7, "right\n")
	tr, err := trace.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	last, longest, calls := int64(-1), int64(0), 0
	err = tr.Walk(trace.WalkOptions{}, func(e *trace.Event) error {
		if e.Kind == trace.Entry && tr.Name(e.Func) == "_Z3suml" {
			if last >= 0 {
				longest = max(longest, e.Time-last)
			}
			last = e.Time
			calls++
		}
		return nil
	})
	if err != nil || calls == 0 || time.Duration(longest) < 2*off {
		t.Errorf("%d calls, none for %v at most: %v", calls, time.Duration(longest), err)
	}
}

// Whoever attaches again and again keeps nothing of it: no thread waits for the process, and no descriptor is open.
func TestAttachLeavesRecorder(t *testing.T) {
	r := start(t, buildStates(t))
	o := fentry.Options{Dir: filepath.Join(t.TempDir(), "fentry.data")}
	held := func() [2]int {
		fds, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return [2]int{runtime.NumGoroutine(), len(fds)}
	}
	attach(t, r.cmd.Process.Pid, o, 10*time.Millisecond)
	before := held()
	for range 5 {
		attach(t, r.cmd.Process.Pid, o, 10*time.Millisecond)
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) { // some end by themselves
		now := held()
		if now[0] <= before[0] && now[1] <= before[1] {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines and %d descriptors became %d and %d", before[0], before[1], now[0], now[1])
		}
	}
	r.end(t, 7, "right\n")
}
