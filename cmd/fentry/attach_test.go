package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/fentry-dev/fentry/internal/testtool"
)

// A process is found by its program's name, also if its first thread has ended.
func TestProcessesNamed(t *testing.T) {
	program := testtool.Compile(t, fmt.Sprintf("named-%d", os.Getpid()), `#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>
static void *thread(void *unused) { char c; while (read(0, &c, 1) > 0); exit(0); }
int main(int argc, char **argv)
{
	pthread_t t;
	pthread_create(&t, 0, thread, 0);
	if (argc > 1)
		pthread_exit(0);
	pthread_join(t, 0);
}
`, "-pthread")
	var want []int
	for _, args := range [][]string{nil, {"first thread ends"}} {
		cmd := exec.Command(program, args...)
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { in.Close(); _ = cmd.Wait() })
		want = append(want, cmd.Process.Pid)
		for len(args) > 0 { // until it has
			if exe, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", cmd.Process.Pid)); exe == "" {
				break
			}
			time.Sleep(time.Millisecond)
		}
	}
	got := processesNamed(filepath.Base(program))
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("processes %v, want %v", got, want)
	}
}
