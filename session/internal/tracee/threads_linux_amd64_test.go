package tracee

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// started starts a program that a test talks with, and kills it when the test is over.
func started(t *testing.T, argv ...string) (cmd *exec.Cmd, in io.WriteCloser, out io.Reader) {
	t.Helper()
	cmd = exec.Command(argv[0], argv[1:]...)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if out, err = cmd.StdoutPipe(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd, in, out
}

// Who has executed another program since the tracer was found in it is not stopped for that: its memory is another one.
func TestThreadsOfAnotherProgram(t *testing.T) {
	cmd, in, out := started(t, "sh", "-c", "echo; read x || exec sleep 1000")
	if _, err := out.Read(make([]byte, 1)); err != nil { // until then the kernel may still be executing it
		t.Fatal(err)
	}
	dir := fmt.Sprintf("/proc/%d", cmd.Process.Pid)
	aux, err := os.ReadFile(dir + "/auxv")
	if err != nil {
		t.Fatal(err)
	}
	r := &Runtime{t: &Process{pid: cmd.Process.Pid}, aux: aux}
	ts, err := r.threads()
	if err != nil {
		t.Fatal(err)
	}
	ts.close()
	was, err := os.Readlink(dir + "/exe")
	if err != nil {
		t.Fatal(err)
	}
	in.Close()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if now, err := os.Readlink(dir + "/exe"); err != nil {
			t.Fatal(err)
		} else if now != was {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("it executes nothing")
		}
	}
	if _, err := r.threads(); !errors.Is(err, ErrEnded) {
		t.Errorf("it runs another program: %v", err)
	}
}

// A thread that is killed while it is stopped is let go, whichever thread had stopped it: its parent can wait for it.
func TestThreadsKilled(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // the main thread, which never ends, gets its turn
	for range 20 {
		cmd := exec.Command("sh", "-c", "(while :; do :; done) > /dev/null & echo $!; wait $!; echo $?")
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		said := bufio.NewReader(out)
		line, err := said.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		pid, err := strconv.Atoi(strings.TrimSpace(line))
		if err != nil {
			t.Fatal(err)
		}
		ts, err := openThreads(pid)
		if err != nil {
			t.Fatal(err)
		}
		err = ts.within(false, func() error { return syscall.Kill(pid, syscall.SIGKILL) })
		ts.close()
		if err != nil {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		if errors.Is(err, unix.EPERM) {
			t.Skip(err)
		}
		ended := time.AfterFunc(20*time.Second, func() { _ = cmd.Process.Kill() })
		line, _ = said.ReadString('\n')
		ended.Stop()
		_ = cmd.Wait()
		if line != "137\n" || err != nil {
			t.Fatalf("%q, %v", line, err)
		}
	}
}
