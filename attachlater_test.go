//go:build linux

package fentry_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fentry-dev/fentry"
	"github.com/fentry-dev/fentry/session"
	"github.com/fentry-dev/fentry/trace"
)

// laterSource is a program that at each byte of its input loads and unloads two libraries a hundred times, and calls a
// function of each, while a thread goes on. Then it says so by a byte, and with the last 'k' it keeps them.
const laterSource = `
#include <dlfcn.h>
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

__attribute__((noinline)) long sum(long n)
{
	long r = n ? n + sum(n - 1) : 0;
	__asm__ volatile("" : "+r"(r));
	return r;
}
static volatile int stop, wrong;
static void *spins(void *arg)
{
	while (!stop)
		if (sum(100) != 5050)
			wrong = 1;
	return arg;
}
static void loads(char **libs, int keep)
{
	void *lib[2];
	for (int k = 0; k < 2; k++) {
		if (!(lib[k] = dlopen(libs[k], RTLD_NOW)))
			wrong = 2, puts(dlerror());
		int (*get)(int) = (int (*)(int))dlsym(lib[k], "get");
		if (get(5) != 6)
			wrong = 3;
	}
	for (int k = 0; k < 2 && !keep; k++)
		dlclose(lib[k]);
}
int main(int argc, char **argv)
{
	pthread_t t;
	char c;
	pthread_create(&t, 0, spins, 0);
	write(1, ".", 1);
	while (read(0, &c, 1) > 0) {
		if (c == 'e' || c == 's') {
			char *args[] = { argv[3], 0 };
			extern char **environ;
			int status = -1, error = 0;
			pid_t p = c == 'e' ? fork() : 0;
			if (c == 'e' && p == 0)
				execv(args[0], args), _exit(1);
			if (c == 's')
				error = posix_spawn(&p, args[0], 0, 0, args, environ);
			if (error || waitpid(p, &status, 0) != p || !WIFEXITED(status) || WEXITSTATUS(status) != 42)
				wrong = 5;
		} else if (c == 'x') {
			char *args[] = { argv[3], "on", 0 };
			execv(args[0], args);
			wrong = 6;
		} else if (c == 'f' && fork() == 0) {
			loads(argv + 1, 0);
			_exit(wrong);
		} else if (c == 'f') {
			int status;
			if (wait(&status) < 0 || status)
				wrong = 4;
		} else if (c == 'k')
			loads(argv + 1, 1);
		else
			for (int i = 0; i < 100; i++)
				loads(argv + 1, 0);
		write(1, ".", 1);
	}
	stop = 1;
	pthread_join(t, 0);
	write(1, wrong ? "wrong\n" : "right\n", 6);
	return 7;
}
`

// laterLibrary is one of its libraries.
const laterLibrary = `
static volatile int lives;
__attribute__((constructor, noinline)) static void born(void) { lives = 1; }
__attribute__((destructor, noinline)) static void died(void) { lives = 0; }
__attribute__((noinline)) static int plus(int x) { __asm__ volatile("" : "+r"(x)); return x + lives; }
int get(int x) { return plus(x); }
`

// executedSource is a program that it executes; with an argument it goes on like its parent.
const executedSource = `
#include <unistd.h>
__attribute__((noinline)) int called(int n)
{
	int r = n ? n + called(n - 1) : 0;
	__asm__ volatile("" : "+r"(r));
	return r;
}
int main(int argc, char **argv)
{
	char c;
	if (argc == 1)
		return called(9) == 45 ? 42 : 1;
	do {
		if (called(9) != 45)
			return 1;
		write(1, ".", 1);
	} while (read(0, &c, 1) > 0);
	write(1, "right\n", 6);
	return 7;
}
`

// asker is a program that is asked for something by a byte, and answers with one.
type asker struct {
	*running
	answers *os.File
	said    string
}

// ask waits for the answer.
func (a *asker) ask(t *testing.T, what string) {
	t.Helper()
	if _, err := a.in.Write([]byte(what)); err != nil {
		t.Fatal(err)
	}
	a.answer(t, len(what))
}

// answer waits for so many answers.
func (a *asker) answer(t *testing.T, n int) {
	t.Helper()
	if err := a.answers.SetReadDeadline(time.Now().Add(10 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	for b := make([]byte, 64); n > 0; {
		k, err := a.answers.Read(b[:min(n, len(b))])
		if err != nil {
			t.Fatalf("%v: %q", err, a.said)
		}
		a.said += string(b[:k])
		n -= k
	}
}

// startAsker starts such a program, which says when it is ready.
func startAsker(t *testing.T, program string, args ...string) *asker {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	a := &asker{running: &running{cmd: exec.Command(program, args...)}, answers: r}
	a.cmd.Stdout, a.cmd.Stderr = w, &a.out
	if a.in, err = a.cmd.StdinPipe(); err == nil {
		err = a.cmd.Start()
	}
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	a.killAtEnd(t)
	a.answer(t, 1)
	return a
}

// recording is a process that is being recorded.
type recording struct {
	cancel context.CancelFunc
	ended  chan *fentry.Result
	dir    string
}

// recordOne begins to record a process; what is recorded is not lost.
func recordOne(t *testing.T, pid int, o fentry.Options) *recording {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	rec := &recording{cancel: cancel, ended: make(chan *fentry.Result, 1), dir: filepath.Join(t.TempDir(), "fentry.data")}
	o.Dir, o.Overhead = rec.dir, -1
	if o.Logf == nil {
		o.Logf = t.Logf
	}
	failed := make(chan error, 1)
	go func() {
		res, err := fentry.Attach(ctx, []int{pid}, o)
		failed <- err
		rec.ended <- res
	}()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		_, err := session.Control(pid, "tracing_on = 1")
		if err == nil {
			return rec
		}
		if len(failed) > 0 {
			if err := <-failed; err != nil && strings.Contains(err.Error(), "not permitted") {
				t.Skip(err)
			} else {
				t.Fatal(err)
			}
		}
		if !errors.Is(err, session.ErrNotRecorded) || time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

// end ends the recording, and returns how often each function was called.
func (r *recording) end(t *testing.T) (*fentry.Result, map[string]uint64) {
	t.Helper()
	r.cancel()
	res := <-r.ended
	if res == nil {
		t.Fatal("it was not recorded")
	}
	return res, callsIn(t, r.dir)
}

// callsIn returns how often each function was called in a trace without problems.
func callsIn(t *testing.T, dir string) map[string]uint64 {
	t.Helper()
	tr, err := trace.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	if len(tr.Problems) > 0 {
		t.Error(tr.Problems)
	}
	rows, err := tr.Report(trace.ReportOptions{})
	if err != nil {
		t.Fatal(err)
	}
	calls := map[string]uint64{}
	for _, s := range rows {
		calls[s.Name] += s.Calls
	}
	return calls
}

// awaitCalls waits until a trace that is being written, and may lack symbols for now, has calls of a function.
func awaitCalls(t *testing.T, dir, function string) {
	t.Helper()
	has := func() bool {
		tr, err := trace.Open(dir)
		if err != nil {
			return false
		}
		defer tr.Close()
		rows, err := tr.Report(trace.ReportOptions{})
		return err == nil && slices.ContainsFunc(rows, func(s trace.FuncStat) bool { return s.Name == function && s.Calls > 0 })
	}
	for deadline := time.Now().Add(time.Minute); !has(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("no call of %s is recorded", function)
		}
	}
}

// Libraries that a process loads after it was attached to are recorded from their constructors on, a thousand times, and
// those that it keeps are as they would be in the end.
func TestAttachLater(t *testing.T) {
	dir := t.TempDir()
	source := filepath.Join(dir, "main.c")
	libs := []string{filepath.Join(dir, "libone.so"), filepath.Join(dir, "libtwo.so")}
	for path, text := range map[string]string{source: laterSource, filepath.Join(dir, "lib.c"): laterLibrary} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	program := buildFile(t, source)
	for _, lib := range libs {
		out, err := exec.Command("gcc", "-O2", "-shared", "-fPIC", "-o", lib, filepath.Join(dir, "lib.c")).CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	a := startAsker(t, program, libs...)
	pid := a.cmd.Process.Pid
	before, files, _ := state(t, pid)
	o := fentry.Options{Libraries: []string{"libone", "libtwo"}}

	rec := recordOne(t, pid, o)
	a.ask(t, "1234567890")
	a.ask(t, "f")
	a.ask(t, "1")
	res, calls := rec.end(t)
	const want = 2 * (10*100 + 1 + 100)
	for _, name := range []string{"plus", "born", "died"} {
		if calls[name] != want {
			t.Errorf("%d calls of %s, %d were made", calls[name], name, want)
		}
	}
	if calls["sum"] == 0 || len(res.Libraries) != 2 {
		t.Errorf("%+v; %v", res, calls)
	}
	if maps, fds, _ := state(t, pid); maps != before || fds != files {
		t.Errorf("it has changed: %d descriptors, %d before\n%s\n%s", fds, files, before, maps)
	}

	rec = recordOne(t, pid, o)
	a.ask(t, "k")
	if _, calls = rec.end(t); calls["plus"] != 2 || calls["born"] != 2 {
		t.Errorf("%v", calls)
	}
	kept, _, _ := state(t, pid)
	rec = recordOne(t, pid, o)
	a.ask(t, "k")
	if _, calls = rec.end(t); calls["plus"] != 2 || calls["born"] != 0 {
		t.Errorf("%v", calls)
	}
	if maps, _, _ := state(t, pid); maps != kept {
		t.Errorf("it has changed\n%s\n%s", kept, maps)
	}
	a.in.Close()
	a.answer(t, len("right\n"))
	if !strings.HasSuffix(a.said, "right\n") {
		t.Errorf("%q", a.said)
	}
}

// Programs that a process executes after it was attached to are recorded, whichever way it does that, and also if it does it
// itself; it is not stopped when the recording ends.
func TestAttachExecutes(t *testing.T) {
	dir := t.TempDir()
	sources := map[string]string{"main.c": laterSource, "executed.c": executedSource}
	for name, text := range sources {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	program := buildFile(t, filepath.Join(dir, "main.c"))
	executed := buildFile(t, filepath.Join(dir, "executed.c"))
	a := startAsker(t, program, "none", "none", executed)
	pid := a.cmd.Process.Pid
	before, files, _ := state(t, pid)
	for range 3 {
		rec := recordOne(t, pid, fentry.Options{})
		a.ask(t, "eesseses")
		if _, calls := rec.end(t); calls["called"] != 8*10 || calls["sum"] == 0 {
			t.Errorf("%v", calls)
		}
		if maps, fds, _ := state(t, pid); maps != before || fds != files {
			t.Fatalf("it has changed: %d descriptors, %d before\n%s\n%s", fds, files, before, maps)
		}
		a.ask(t, "es")
	}
	// The C library's functions that execute programs are recorded themselves.
	rec := recordOne(t, pid, fentry.Options{Libraries: []string{"libc.so*"}})
	a.ask(t, "eses")
	if _, calls := rec.end(t); calls["called"] != 4*10 || calls["__GI___execve"]+calls["execve"] == 0 {
		t.Errorf("%v", calls)
	}
	if maps, fds, _ := state(t, pid); maps != before || fds != files {
		t.Fatalf("it has changed: %d descriptors, %d before\n%s\n%s", fds, files, before, maps)
	}
	rec = recordOne(t, pid, fentry.Options{NoInherit: true})
	a.ask(t, "es")
	if _, calls := rec.end(t); calls["called"] != 0 {
		t.Errorf("%v", calls)
	}
	rec = recordOne(t, pid, fentry.Options{})
	a.ask(t, "exx")
	if _, calls := rec.end(t); calls["called"] != 10+10+10 {
		t.Errorf("%v", calls)
	}
	a.ask(t, ".")
	a.in.Close()
	a.answer(t, len("right\n"))
	if !strings.HasSuffix(a.said, "right\n") {
		t.Errorf("%q", a.said)
	}
}

// Children that are forked at the end of a recording get nothing of it.
func TestAttachForks(t *testing.T) {
	r := start(t, buildFile(t, "testdata/forks.c"))
	pid := r.cmd.Process.Pid
	for range 2 {
		attachUntil(t, pid, fentry.Options{Dir: filepath.Join(t.TempDir(), "fentry.data")}, 10*time.Millisecond, "sum")
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
		if err != nil {
			t.Fatal(err)
		}
		for _, child := range strings.Fields(string(b)) {
			maps, _ := os.ReadFile("/proc/" + child + "/maps") // an error: it has ended
			for _, line := range strings.Split(string(maps), "\n") {
				if strings.HasSuffix(strings.TrimSpace(line), " r-xp 00000000 00:00 0") {
					t.Fatalf("child %s of %d:\n%s", child, pid, maps)
				}
			}
		}
	}
	r.end(t, 7, "")
}

// Who loads a library waits for no other one to be planned, for another process.
func TestAttachLaterApart(t *testing.T) {
	bad, good := buildAdded(t), buildAdded(t)
	b, err := os.ReadFile(bad)
	if err != nil {
		t.Fatal(err)
	}
	const sections, sectionsEnd = 40, 48 // e_shoff
	for i := sections; i < sectionsEnd; i++ {
		b[i] = 0x7f // no loader needs them
	}
	if err := os.WriteFile(bad, b, 0o600); err != nil {
		t.Fatal(err)
	}
	asked, over := make(chan struct{}), make(chan struct{})
	var once sync.Once
	o := ofFunctions(t, "outer", "library_function")
	o.Libraries = []string{"libadded"}
	c := startControlledWith(t, true, o, func(format string, args ...any) {
		if s := fmt.Sprintf(format, args...); strings.Contains(s, bad+": not traced: ") { // in the middle of planning it
			once.Do(func() { close(asked) })
			<-over
		}
	}, exec.Command(buildFile(t, "testdata/control.c", "-fpatchable-function-entry=5", "-ldl")))
	c.do("reload %s", bad) // in a child
	select {
	case <-asked:
	case <-time.After(time.Minute):
		t.Error("the library is not planned")
	}
	loaded := make(chan struct{})
	go func() { defer close(loaded); c.do("load %s 3", good) }()
	select {
	case <-loaded:
	case <-time.After(time.Minute):
		t.Error("another library waits for it")
	}
	close(over)
	<-loaded
	if got := c.calls(); got["library_function"] != 3 {
		t.Errorf("%d calls", got["library_function"])
	}
}
