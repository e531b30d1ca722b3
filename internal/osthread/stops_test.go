//go:build linux

package osthread

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// quietly has TestQuietStops be what it tests, in a process of its own: signals are the whole process's.
const quietly = "FENTRY_TEST_QUIET_STOPS"

// A child that stops, and goes on, sends no signal to who asked for that; one that ends does.
func TestQuietStops(t *testing.T) {
	if os.Getenv(quietly) == "" {
		for _, quiet := range []string{"yes", "no"} {
			c := exec.Command(os.Args[0], "-test.run=^TestQuietStops$", "-test.count=1")
			c.Env = append(os.Environ(), quietly+"="+quiet)
			if out, err := c.CombinedOutput(); err != nil {
				t.Errorf("%s: %v\n%s", quiet, err, out)
			}
		}
		return
	}
	const all = 3 // a signal for the stop, one for the going on, one for the end
	told := make(chan os.Signal, all)
	signal.Notify(told, syscall.SIGCHLD)
	quiet := os.Getenv(quietly) == "yes"
	if quiet {
		if err := QuietStops(); err != nil {
			t.Fatal(err)
		}
	}
	c := exec.Command("cat")
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		signal syscall.Signal
		is     int
	}{{syscall.SIGSTOP, unix.WSTOPPED}, {syscall.SIGCONT, unix.WCONTINUED}} {
		if err := c.Process.Signal(step.signal); err != nil {
			t.Fatal(err)
		}
		if err := awaitChild(c.Process.Pid, step.is); err != nil {
			t.Fatal(err)
		}
		if !quiet {
			<-told
		}
	}
	if len(told) != 0 {
		t.Error("a signal came for a stop")
	}
	in.Close()
	<-told
	if err := c.Wait(); err != nil {
		t.Error(err)
	}
}

// awaitChild waits until a child has stopped, or gone on.
func awaitChild(pid, options int) error {
	for {
		var info unix.Siginfo
		err := unix.Waitid(unix.P_PID, pid, &info, options, nil)
		if err != unix.EINTR {
			if err != nil {
				return fmt.Errorf("waitid: %w", err)
			}
			return nil
		}
	}
}
