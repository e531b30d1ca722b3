package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// Threads are those of all processes of a user. There must be some left for a recorder.
func TestThreads(t *testing.T) {
	tasks, err := filepath.Glob("/proc/self/task/*")
	if err != nil || len(tasks) == 0 {
		t.Skip("no /proc")
	}
	const other = 54321
	if n := threadsOf(other); n != 0 && os.Getuid() != other {
		t.Errorf("nobody has %d threads", n)
	}
	child := exec.Command("sleep", "100")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = child.Process.Kill()
		_ = child.Wait()
	}()
	time.Sleep(time.Millisecond)
	if n := threadsOf(os.Getuid()); n < uint64(len(tasks))+1 {
		t.Errorf("%d threads, of which this process has %d", n, len(tasks))
	}
	need := uint64(threadsToRecord + runtime.GOMAXPROCS(0))
	if err := enoughThreads(100, 100-need); err != nil {
		t.Error(err)
	}
	if err := enoughThreads(100, 101-need); err == nil || !strings.Contains(err.Error(), "may have 100 processes and threads") {
		t.Error(err)
	}
	for _, used := range []uint64{100, 1000} {
		if enoughThreads(100, used) == nil {
			t.Error(used)
		}
	}
}
