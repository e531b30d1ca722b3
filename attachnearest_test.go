//go:build linux

package fentry_test

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry"
	"github.com/fentry-dev/fentry/session"
	"github.com/fentry-dev/fentry/trace"
)

// nearestSource is a program with a library, and a child that has no room left close to that. For each line both call a function
// of it. The child says its id at first.
const nearestSource = `
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	void *lib = dlopen(argv[1], RTLD_NOW);
	char *(*get)(void) = (char *(*)(void))dlsym(lib, "get");
	int ask[2], answer[2];
	char line[100], c;
	setvbuf(stdout, 0, _IOLBF, 0);
	if (pipe(ask) || pipe(answer))
		return 1;
	if (fork() == 0) {
		const long step = 64 << 10, all = 64 << 20;
		char *at = (char *)((long)get & -step);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (long i = 0; i < all; i += step)
			mmap(at + i, step, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
		printf("%d\n", getpid());
		while (read(ask[0], &c, 1) == 1 && *get() == 'x')
			write(answer[1], &c, 1);
		return 1;
	}
	while (fgets(line, sizeof line, stdin))
		if (*get() == 'x' && write(ask[1], "g", 1) == 1 && read(answer[0], &c, 1) == 1)
			puts("done");
	return 7;
}
`

// A process and its child are attached to, of which the child has what was added elsewhere: each gets its own code back, and they can
// be attached to again.
func TestAttachNearest(t *testing.T) {
	if !session.CanFollow() {
		t.Skip("processes are attached to on x86-64")
	}
	dir := t.TempDir()
	cmd := exec.Command(withGiven(t, dir, nearestSource))
	c := startTold(t, cmd)
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	pids := []int{cmd.Process.Pid, 0}
	if _, err := fmt.Sscan(c.line(), &pids[1]); err != nil {
		t.Fatal(err)
	}
	c.do("")
	var before [2]string
	for i, pid := range pids {
		before[i], _, _ = state(t, pid)
	}
	for range 3 {
		o := fentry.Options{Dir: filepath.Join(dir, "fentry.data"), Libraries: []string{"libgiven"}, Logf: func(f string, args ...any) {
			if s := fmt.Sprintf(f, args...); strings.HasPrefix(s, "process ") {
				t.Error(s)
			}
		}}
		ready, ended := make(chan *fentry.Live, 1), make(chan error, 1)
		o.Live = func(l *fentry.Live) { ready <- l }
		go func() {
			_, err := fentry.Attach(context.Background(), pids, o)
			ended <- err
		}()
		select {
		case l := <-ready:
			if one, other := codeBeside(t, pids[0]), codeBeside(t, pids[1]); one == "" || one == other {
				t.Errorf("what was added is at the same places in both:\n%s\n%s", one, other)
			}
			c.do("")
			l.End()
		case err := <-ended:
			t.Fatal(err)
		}
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		calls := callsBy(t, o.Dir, "get")
		for i, pid := range pids {
			if calls[pid] != 1 {
				t.Errorf("process %d: %d calls", i, calls[pid])
			}
			if maps, _, _ := state(t, pid); maps != before[i] {
				t.Errorf("process %d has changed\n%s\n%s", i, before[i], maps)
			}
		}
	}
}

// callsBy are the calls of a function in a trace by process.
func callsBy(t *testing.T, dir, name string) map[int]int {
	t.Helper()
	tr, err := trace.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	calls := make(map[int]int)
	err = tr.Walk(trace.WalkOptions{}, func(e *trace.Event) error {
		if e.Kind == trace.Entry && tr.Name(e.Func) == name {
			calls[e.Task.PID]++
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return calls
}

// codeBeside are a process's mappings of code that are of no file.
func codeBeside(t *testing.T, pid int) (all string) {
	t.Helper()
	maps, _, _ := state(t, pid)
	for line := range strings.Lines(maps) {
		if f := strings.Fields(line); len(f) == 5 && f[1] == "r-xp" {
			all += f[0] + "\n"
		}
	}
	return all
}
