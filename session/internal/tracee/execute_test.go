//go:build linux

package tracee

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/fentry-dev/fentry/internal/osthread"
	"github.com/fentry-dev/fentry/internal/testtool"
)

// Two threads of a process are about to execute programs, and one is quicker: it gets the id of the other one, whose tracer learns
// that nothing was executed, and that is all.
func TestExecuteFirst(t *testing.T) {
	path := testtool.Compile(t, "two", `
#include <pthread.h>
#include <unistd.h>
static int pipes[2];
static void *executes(void *arg)
{
	char c;
	(void)!read(0, &c, 1); // until it is traced
	execl("/bin/sh", "sh", "-c", "exit 8", (char *)0);
	return arg;
}
int main(void)
{
	pthread_t t;
	char c;
	(void)!pipe(pipes);
	pthread_create(&t, 0, executes, 0);
	(void)!read(pipes[0], &c, 1); // for ever
}
`, "-pthread")
	for range 5 {
		cmd := exec.Command(path)
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		started := make(chan error)
		osthread.Go(func() { started <- cmd.Start() }) // no tracer's thread, which could wait for its child as well
		if err := <-started; err != nil {
			t.Fatal(err)
		}
		pid := cmd.Process.Pid
		seized, errs := make(chan error, 2), make(chan error, 2)
		trace := func(tid int) {
			osthread.Go(func() {
				tr, err := Seize(pid, tid)
				if seized <- err; err != nil {
					return
				}
				err = tr.Execute()
				if err == nil {
					err = tr.Detach()
				}
				errs <- err
			})
			if err := <-seized; err != nil {
				t.Fatal(err)
			}
		}
		other := second(t, pid)
		trace(pid)
		trace(other)
		time.Sleep(10 * time.Millisecond) // both are waited for
		in.Close()
		var got []error
		for range 2 {
			select {
			case err := <-errs:
				got = append(got, err)
			case <-time.After(10 * time.Second):
				t.Fatalf("a tracer still waits; the other one: %v", got)
			}
		}
		if (got[0] == nil) == (got[1] == nil) || !errors.Is(errors.Join(got...), ErrNotExecuted) {
			t.Errorf("%v: want that one has executed a program", got)
		}
		if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 8 {
			t.Error(err)
		}
	}
}

// second is the second thread of a process, which it will have.
func second(t *testing.T, pid int) int {
	t.Helper()
	for range 1000 {
		list, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range list {
			if tid, err := strconv.Atoi(e.Name()); err == nil && tid != pid {
				return tid
			}
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatal("it has no second thread")
	return 0
}
