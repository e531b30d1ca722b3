package testtool

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestMain(m *testing.M) { os.Exit(Main(m)) }

// A test that waits for a process without end is said, with what the process does, and the process is killed: its child,
// too, that has lost its parent.
func TestWatch(t *testing.T) {
	var said bytes.Buffer
	cmd := exec.Command("sh", "-c", "(setsid sleep 1001 &); exec sleep 1002")
	cmd.Stdout = new(bytes.Buffer) // a pipe, which the child keeps open
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(Patience); ; time.Sleep(time.Millisecond) {
		var all bytes.Buffer
		for _, pid := range startedBy(os.Getpid()) {
			describe(&all, pid)
		}
		if strings.Contains(all.String(), `"sleep" "1001"`) && strings.Contains(all.String(), `"sleep" "1002"`) {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the processes do not begin: %s", &all)
		}
	}
	w := watch{limit: 100 * time.Millisecond, out: &said}
	stop := make(chan bool)
	go w.run(20*time.Millisecond, stop)
	err := cmd.Wait()
	stop <- true
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL || !w.fired.Load() {
		t.Fatalf("%v, %s", err, &said)
	}
	for _, want := range []string{"testtool.TestWatch goes on", `"sleep" "1001"`, `"sleep" "1002"`, "task ", "TracerPid:\t0"} {
		if !strings.Contains(said.String(), want) {
			t.Errorf("no %s in\n%s", want, &said)
		}
	}
}

// Signals that the tests were started to ignore are not ignored by the programs that they start.
func TestDefaultSignals(t *testing.T) {
	if os.Getenv("FENTRY_TEST_SIGNALS") != "" {
		text, err := exec.Command("grep", "SigIgn", "/proc/self/status").Output()
		var ignored uint64
		if err == nil {
			_, err = fmt.Sscanf(string(text), "SigIgn: %x", &ignored)
		}
		for _, sig := range []syscall.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGPIPE} {
			if err != nil || ignored&(1<<(sig-1)) != 0 {
				t.Errorf("%v is ignored: %q, %v", sig, text, err)
			}
		}
		return
	}
	cmd := exec.Command("sh", "-c", `trap "" HUP INT QUIT TERM PIPE; exec "$0" -test.run='^TestDefaultSignals$'`, os.Args[0])
	cmd.Env = append(os.Environ(), "FENTRY_TEST_SIGNALS=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// Those that wait for their subtests, or for their turn, are not meant.
func TestRunningTests(t *testing.T) {
	var names []string
	t.Run("group", func(t *testing.T) {
		t.Run("one", func(t *testing.T) {
			t.Parallel()
			t.Cleanup(func() {
				for _, name := range runningTests(goroutines()) {
					names = append(names, name)
				}
			})
		})
	})
	if len(names) != 1 || !strings.HasPrefix(names[0], "testtool.TestRunningTests.func") {
		t.Errorf("%q", names)
	}
}
