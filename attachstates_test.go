//go:build linux

package fentry_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fentry-dev/fentry"
	"github.com/fentry-dev/fentry/stacks"
	"github.com/fentry-dev/fentry/symbol"
)

// buildStates compiles testdata/states.c.
func buildStates(t *testing.T) string {
	t.Helper()
	return buildFile(t, "testdata/states.c", "-lutil")
}

// Whatever its threads are doing when a process is attached to and detached from, they get what they get without: results,
// errors, time limits, masks of signals, and restartable sequences are whole.
func TestAttachStates(t *testing.T) {
	program := buildStates(t)
	for _, state := range []string{"calls", "vfork", "threads", "leader"} {
		t.Run(state, func(t *testing.T) {
			r := start(t, program, state)
			times := 10
			if state == "threads" {
				times = 2
			}
			dir := filepath.Join(t.TempDir(), "fentry.data")
			for range times {
				attachUntil(t, r.cmd.Process.Pid, fentry.Options{Dir: dir}, 30*time.Millisecond, "sum")
			}
			r.end(t, 7, "right\n")
		})
	}
}

// Waits of threads are not interrupted while children of others end: the signals that tell of that are ignored.
func TestAttachChildren(t *testing.T) {
	r := start(t, buildFile(t, "testdata/children.c"))
	dir := filepath.Join(t.TempDir(), "fentry.data")
	for range 10 {
		attachUntil(t, r.cmd.Process.Pid, fentry.Options{Dir: dir}, 20*time.Millisecond, "waited")
	}
	r.end(t, 7, "")
}

// Threads by which the kernel works for a process (io_uring) are not asked to do anything: they never come back from where they
// are. Its stacks are those of the program's threads.
func TestAttachWorkers(t *testing.T) {
	r := start(t, buildFile(t, "e2e/testdata/uncovered/uring.c"), "polled")
	pid := r.cmd.Process.Pid
	workers := func() (n int) {
		names, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/comm", pid))
		for _, name := range names {
			if b, err := os.ReadFile(name); err == nil && strings.HasPrefix(string(b), "iou-") {
				n++
			}
		}
		return n
	}
	for deadline := time.Now().Add(time.Minute); workers() == 0; time.Sleep(time.Millisecond) {
		if stateOf(t, pid, 'Z') == 'Z' || time.Now().After(deadline) {
			t.Skip("this machine has no io_uring, or none with threads")
		}
	}
	for range 3 {
		attachUntil(t, pid, fentry.Options{Dir: filepath.Join(t.TempDir(), "fentry.data")}, 30*time.Millisecond, "submit")
	}
	p, err := stacks.Open(pid, symbol.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if tids, err := p.Threads(); err != nil || !slices.Equal(tids, []int{pid}) || workers() == 0 {
		t.Errorf("threads of %d: %v, %v; %d of the kernel", pid, tids, err, workers())
	}
	r.end(t, 0, "opened 1, read 6: Linux\n")
}

// stateOf is the letter that /proc has for the states of a process's threads: for another one than is wanted, if there is
// one.
func stateOf(t *testing.T, pid int, want byte) byte {
	t.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil || len(threads) == 0 {
		t.Fatalf("process %d: %d threads, %v", pid, len(threads), err)
	}
	for _, thread := range threads {
		b, err := os.ReadFile(thread)
		if _, rest, _ := strings.Cut(string(b), ") "); err == nil && rest[0] != want { // else it has ended
			return rest[0]
		}
	}
	return want
}

// awaitState waits until all threads of a process are in a state: when the first one is stopped, others can still be about
// to map memory.
func awaitState(t *testing.T, pid int, state byte) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); stateOf(t, pid, state) != state; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("process %d is in state %c, not %c", pid, stateOf(t, pid, state), state)
		}
	}
}

// refusedFor attaches to a process in vain, for a reason, and sees that it has the memory that it had.
func refusedFor(t *testing.T, pid int, want string) {
	t.Helper()
	before, files, _ := state(t, pid)
	o := fentry.Options{Dir: filepath.Join(t.TempDir(), "fentry.data"), Logf: t.Logf}
	_, err := fentry.Attach(context.Background(), []int{pid}, o)
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v; want %q", err, want)
	}
	if maps, fds, _ := state(t, pid); maps != before || fds != files {
		t.Errorf("it has changed: %d descriptors, %d before\n%s\n%s", fds, files, before, maps)
	}
}

// A process that is stopped stays so while it is attached to and detached from, and goes on when it is continued.
func TestAttachStopped(t *testing.T) {
	r := start(t, buildStates(t), "calls", "stopped")
	pid := r.cmd.Process.Pid
	dir := filepath.Join(t.TempDir(), "fentry.data")
	for range 3 {
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		awaitState(t, pid, 'T')
		before, files, _ := state(t, pid)
		for range 2 {
			if calls := attach(t, pid, fentry.Options{Dir: dir}, 20*time.Millisecond); calls["sum"] != 0 {
				t.Errorf("%d calls of a process that is stopped", calls["sum"])
			}
			awaitState(t, pid, 'T') // as it was
		}
		if maps, fds, _ := state(t, pid); maps != before || fds != files {
			t.Errorf("it has changed: %d descriptors, %d before\n%s\n%s", fds, files, before, maps)
		}
		if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		attachUntil(t, pid, fentry.Options{Dir: dir}, 20*time.Millisecond, "sum")
	}
	r.end(t, 7, "right\n")
}

// It can be continued while it is recorded, and stopped, also so often that a signal is pending at most of the calls that it
// is made to make.
func TestAttachStoppedMeanwhile(t *testing.T) {
	t.Run("now and then", func(t *testing.T) { stoppedMeanwhile(t, 10, 3*time.Millisecond) })
	t.Run("often", func(t *testing.T) { stoppedMeanwhile(t, 5, 50*time.Microsecond) })
}

// stoppedMeanwhile stops and continues it, with pauses between that, while it is attached to so many times.
func stoppedMeanwhile(t *testing.T, times int, pause time.Duration) {
	r := start(t, buildStates(t), "calls", "stopped")
	pid := r.cmd.Process.Pid
	ended, done := make(chan struct{}), make(chan struct{})
	end := sync.OnceFunc(func() { close(ended); <-done })
	defer end()
	go func() {
		defer close(done)
		for {
			select {
			case <-ended:
				return
			default:
			}
			_ = syscall.Kill(pid, syscall.SIGSTOP)
			time.Sleep(pause)
			_ = syscall.Kill(pid, syscall.SIGCONT)
			time.Sleep(pause)
		}
	}()
	dir := filepath.Join(t.TempDir(), "fentry.data")
	for range times {
		attachUntil(t, pid, fentry.Options{Dir: dir}, 20*time.Millisecond, "sum")
	}
	end()
	r.end(t, 7, "right\n")
}

// A process whose system calls are filtered is recorded if that cannot end it, and left alone if it could.
func TestAttachFiltered(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root may put filters of system calls off")
	}
	program := buildStates(t)
	for _, what := range []string{"filtered", "filtered, failing"} {
		t.Run(what, func(t *testing.T) {
			r := start(t, program, what)
			attachThrice(t, r)
		})
	}
	for what, want := range map[string]struct {
		why    string
		status int
	}{
		"filtered, killed": {"mmap, which the tracer needs, would end it", 7},
		"strict":           {"seccomp's strict mode", 0},
	} {
		t.Run(what, func(t *testing.T) {
			r := start(t, program, what)
			awaitFilter(t, r.cmd.Process.Pid)
			refusedFor(t, r.cmd.Process.Pid, want.why)
			r.end(t, want.status, "right\n")
		})
	}
}

// A process is recorded that has no /proc below its root, where it could open what it is given.
func TestAttachRootless(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root may change a process's root")
	}
	r := start(t, buildStates(t), "rootless") // its root is the directory of this package
	if _, err := os.Stat(fmt.Sprintf("/proc/%d/root/proc", r.cmd.Process.Pid)); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("it has /proc: %v", err)
	}
	attachThrice(t, r)
}

// attachThrice records a program three times, which then has what it had before, and ends as if nobody had.
func attachThrice(t *testing.T, r *running) {
	t.Helper()
	before, files, _ := state(t, r.cmd.Process.Pid)
	dir := filepath.Join(t.TempDir(), "fentry.data")
	for range 3 {
		attachUntil(t, r.cmd.Process.Pid, fentry.Options{Dir: dir}, 20*time.Millisecond, "sum")
	}
	if maps, fds, _ := state(t, r.cmd.Process.Pid); maps != before || fds != files {
		t.Errorf("it has changed: %d descriptors, %d before\n%s\n%s", fds, files, before, maps)
	}
	r.end(t, 7, "right\n")
}

// awaitFilter waits until the system calls of a process's first thread are filtered.
func awaitFilter(t *testing.T, pid int) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err == nil && !strings.Contains(string(status), "\nSeccomp:\t0\n") {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("its system calls are not filtered: %v\n%s", err, status)
		}
	}
}

// A process that has ended, and that nobody has waited for, is none any more.
func TestAttachZombie(t *testing.T) {
	r := start(t, buildStates(t))
	r.in.Close()
	awaitState(t, r.cmd.Process.Pid, 'Z')
	o := fentry.Options{Dir: filepath.Join(t.TempDir(), "fentry.data"), Logf: t.Logf}
	if _, err := fentry.Attach(context.Background(), []int{r.cmd.Process.Pid}, o); err == nil || !strings.Contains(err.Error(), "it has ended") {
		t.Error(err)
	}
	r.end(t, 7, "right\n")
}

// The same with system calls recorded, in which these threads wait while they begin to be and cease to be: of the program
// and of its C library, those that are called as often as its functions.
func TestAttachSyscalls(t *testing.T) {
	r := start(t, buildStates(t), "calls")
	dir := filepath.Join(t.TempDir(), "fentry.data")
	for _, o := range []fentry.Options{{Syscalls: true}, {Syscalls: true, Libraries: []string{"libc"}}, {Syscalls: true}} {
		for range 3 {
			o.Dir = dir
			attachUntil(t, r.cmd.Process.Pid, o, 200*time.Millisecond, "sum", "sys_clock_nanosleep", "sys_poll", "sys_epoll_wait",
				"sys_futex", "sys_rt_sigtimedwait", "sys_read", "sys_write", "sys_wait4", "sys_flock")
		}
	}
	r.end(t, 7, "right\n")
}

// Threads that are cancelled while they wait in a system call clean up. Where their unwinder would not find what has moved, system
// calls are left alone, with a reason.
func TestAttachCancels(t *testing.T) {
	const source = `
#include <pthread.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <unistd.h>
static volatile int over;
static long begun, cleaned;
static void clean(void *arg) { cleaned++; }
static void *waits(void *arg)
{
	pthread_cleanup_push(clean, 0);
	pause();
	pthread_cleanup_pop(0);
	return arg;
}
static void *cancels(void *arg)
{
	for (pthread_t t; !over; begun++) {
		pthread_create(&t, 0, waits, 0);
		usleep(300);
		pthread_cancel(t);
		pthread_join(t, 0);
	}
	return arg;
}
int main(void)
{
	pthread_t t, u;
	char c;
	pthread_create(&t, 0, cancels, 0);
	pthread_create(&u, 0, waits, 0); /* it is cancelled in the end */
	prctl(PR_SET_NAME, "ready");
	while (read(0, &c, 1) > 0)
		;
	over = 1;
	pthread_join(t, 0);
	pthread_cancel(u);
	pthread_join(u, 0);
	if (begun + 1 == cleaned)
		puts("right");
	return 7;
}
`
	file := filepath.Join(t.TempDir(), "cancels.c")
	if err := os.WriteFile(file, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	spaced := filepath.Join(t.TempDir(), "with a space")
	if err := os.Mkdir(spaced, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, flags := range [][]string{nil, {"-static"}} {
		program := filepath.Join(spaced, "cancels")
		if err := os.Rename(buildFile(t, file, flags...), program); err != nil {
			t.Fatal(err)
		}
		r := start(t, program)
		o := fentry.Options{Dir: filepath.Join(t.TempDir(), "fentry.data"), Syscalls: true}
		for i, libraries := range [][]string{nil, {"libc"}, nil} {
			o.Libraries, o.Plan.NoFunctions = libraries, i == 2
			if flags == nil {
				attachUntil(t, r.cmd.Process.Pid, o, 200*time.Millisecond, "sys_pause")
				continue
			}
			_, err := fentry.Attach(context.Background(), []int{r.cmd.Process.Pid}, o)
			if !errors.Is(err, fentry.ErrAttach) || !strings.Contains(err.Error(), "pthread_cancel") {
				t.Error(err)
			}
		}
		r.end(t, 7, "right\n")
	}
}

// A program can have code of its own in files that are no images, and that are mapped below it (SBCL).
func TestAttachOwnCode(t *testing.T) {
	const source = `
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>
__attribute__((noinline)) long next(char *c) { return read(0, c, 1); }
int main(int argc, char **argv)
{
	char c;
	int fd = open(argv[argc - 1], O_RDONLY);
	if (mmap((void *)(1 << 28), 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_FIXED_NOREPLACE, fd, 0) == MAP_FAILED)
		return 1;
	prctl(PR_SET_NAME, "ready");
	while (next(&c) > 0)
		;
	return 7;
}
`
	dir := t.TempDir()
	file, own := filepath.Join(dir, "own.c"), filepath.Join(dir, "own.core")
	if err := errors.Join(os.WriteFile(file, []byte(source), 0o600), os.WriteFile(own, make([]byte, 4096), 0o600)); err != nil {
		t.Fatal(err)
	}
	r := start(t, buildFile(t, file), own)
	attach(t, r.cmd.Process.Pid, fentry.Options{Syscalls: true}, 10*time.Millisecond)
	r.end(t, 7, "")
}

// Signals that are pending, or waited for, are still there when a process was attached to and detached from.
func TestAttachPending(t *testing.T) {
	r := start(t, buildFile(t, "testdata/pending.c"))
	dir := filepath.Join(t.TempDir(), "fentry.data")
	for range 8 {
		attachUntil(t, r.cmd.Process.Pid, fentry.Options{Dir: dir}, 10*time.Millisecond, "sum")
	}
	r.end(t, 7, "right\n")
}
