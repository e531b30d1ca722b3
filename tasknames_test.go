//go:build linux

package fentry_test

import (
	"context"
	"io"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/fentry-dev/fentry"
	"github.com/fentry-dev/fentry/internal/testtool"
	"github.com/fentry-dev/fentry/patch"
	"github.com/fentry-dev/fentry/trace"
)

// named has 200 tasks, which say what they are called by changing to a directory of that name.
const named = `
#define _GNU_SOURCE
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
static void called(const char *name)
{
	char path[64];
	snprintf(path, sizeof path, "/names/%s", name);
	if (chdir(path) == 0)
		abort();
}
static void *unnamed(void *arg) { called("main task"); return arg; }
static void *gone(void *arg) { return arg; }
static void *itself(void *arg)
{
	char name[16];
	called("main task");
	snprintf(name, sizeof name, "self-%ld", (long)arg);
	pthread_setname_np(pthread_self(), name);
	called(name);
	return 0;
}
static sem_t begin[40];
static void *other(void *arg)
{
	char name[16];
	long n = (long)arg;
	while (sem_wait(&begin[n])) ;
	snprintf(name, sizeof name, "other-%ld", n);
	called(name);
	return 0;
}
int main(void)
{
	char name[16];
	pthread_t t[40], g;
	prctl(PR_SET_NAME, "main task");
	for (int kind = 0; kind < 3; kind++) {
		for (long i = 0; i < 40; i++) {
			sem_init(&begin[i], 0, 0);
			if (pthread_create(&t[i], 0, kind == 0 ? unnamed : kind == 1 ? itself : other, (void *)i))
				abort();
		}
		for (long i = 0; i < 40 && kind == 2; i++) {
			snprintf(name, sizeof name, "other-%ld", i);
			pthread_setname_np(t[i], name);
			sem_post(&begin[i]);
		}
		for (int i = 0; i < 40; i++)
			pthread_join(t[i], 0);
	}
	for (int i = 0; i < 40; i++) {
		if (fork() == 0) {
			called("main task");
			snprintf(name, sizeof name, "child-%d", i);
			prctl(PR_SET_NAME, name);
			called(name);
			_exit(0);
		}
		wait(0);
	}
	for (int i = 0; i < 40; i++) {
		pthread_create(&g, 0, gone, 0);
		pthread_detach(g);
	}
	called("main task");
	return 0;
}
`

// TestTaskNames: each event has the name that its task had then, however it got it, and tasks in results have names.
func TestTaskNames(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("system calls are moved on x86-64")
	}
	prog := testtool.Compile(t, "named", named, "-O1", "-w", "-static", "-pthread")
	opts := options(t)
	opts.Syscalls, opts.Plan = true, patch.Options{NoFunctions: true}
	res, err := fentry.Run(context.Background(), exec.Command(prog), opts)
	if err != nil || res.Status.ExitStatus() != 0 || res.Lost != 0 {
		t.Fatalf("%+v, %v", res, err)
	}
	tr, err := trace.Open(opts.Dir)
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	kinds, made := map[string]int{}, 0
	if err := tr.Walk(trace.WalkOptions{}, func(ev *trace.Event) error {
		if ev.Comm == "" {
			t.Errorf("task %d has no name at %d", ev.Task.TID, ev.Time)
		}
		if ev.Kind != trace.Entry || ev.Sys == nil {
			return nil
		}
		m := tr.Made(ev)
		switch name := tr.Name(ev.Func); {
		case name == "sys_chdir":
			_, want, _ := strings.Cut(m.Text(), "/names/")
			if want = strings.TrimSuffix(want, `")`); want != ev.Comm {
				t.Errorf("task %d: the name is %q, not %q", ev.Task.TID, ev.Comm, want)
			}
			kind, _, _ := strings.Cut(want, "-")
			kinds[kind]++
		case (name == "sys_clone3" || name == "sys_clone") && m.Ended && int64(m.Result) > 0:
			made++
			if text := string(m.AppendResult(nil)); !strings.HasSuffix(text, ">") {
				t.Errorf("%s = %s: no name", m.Text(), text)
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for kind, n := range map[string]int{"main task": 121, "self": 40, "other": 40, "child": 40} {
		if kinds[kind] != n {
			t.Errorf("%d tasks said %q, want %d", kinds[kind], kind, n)
		}
	}
	if made < 190 {
		t.Errorf("%d tasks are results", made)
	}
}

// TestUntracedTaskNames: tasks in arguments and results have the names that only the recorder can have seen, those of
// programs that nobody traces.
func TestUntracedTaskNames(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("system calls are moved on x86-64")
	}
	prog := testtool.Compile(t, "waits", `
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
int main(void)
{
	char path[40], name[40] = "", c;
	pid_t p = fork();
	if (!p) {
		execl("/bin/sleep", "sleep", "1000", (char *)0);
		_exit(1);
	}
	snprintf(path, sizeof path, "/proc/%d/comm", p);
	for (FILE *f; strcmp(name, "sleep\n") && (f = fopen(path, "r")); fclose(f), usleep(1000))
		fgets(name, sizeof name, f);
	puts(name);
	fflush(stdout);
	read(0, &c, 1);
	kill(p, SIGKILL);
	return waitpid(p, 0, 0) != p;
}
`, "-O1", "-static", "-w")
	// The recorder looks now and then. Whether it has looked nobody can tell.
	for long := 500 * time.Millisecond; !untracedNamed(t, prog, long); long *= 2 {
		if long > time.Minute {
			t.Fatalf("a child that lives for %v has no name", long)
		}
	}
}

// untracedNamed records the program above, whose child lives for so long, and says whether the child has its name.
func untracedNamed(t *testing.T, prog string, long time.Duration) bool {
	t.Helper()
	in, w := io.Pipe()
	out, said := io.Pipe()
	cmd := exec.Command(prog)
	cmd.Stdin, cmd.Stdout = in, said
	go func() {
		_, _ = out.Read(make([]byte, 64))
		time.Sleep(long)
		w.Close()
		_, _ = io.Copy(io.Discard, out)
	}()
	defer said.Close()
	opts := options(t)
	opts.Syscalls, opts.Plan, opts.NoInherit = true, patch.Options{NoFunctions: true}, true
	res, err := fentry.Run(context.Background(), cmd, opts)
	if err != nil || res.Status.ExitStatus() != 0 {
		t.Fatalf("%+v, %v", res, err)
	}
	tr, err := trace.Open(opts.Dir)
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	seen, unnamed := 0, 0
	if err := tr.Walk(trace.WalkOptions{}, func(ev *trace.Event) error {
		if ev.Kind != trace.Entry || ev.Sys == nil {
			return nil
		}
		m := tr.Made(ev)
		if name := tr.Name(ev.Func); name != "sys_kill" && name != "sys_wait4" {
			return nil
		}
		if text := m.Text(); !strings.Contains(text, " <sleep>, ") {
			t.Log(text)
			unnamed++
		}
		seen++
		return nil
	}); err != nil || seen != 2 {
		t.Fatalf("%d calls, %v", seen, err)
	}
	return unnamed == 0
}
