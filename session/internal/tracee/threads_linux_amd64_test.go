package tracee

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"
)

// Who has executed another program since the tracer was found in it is not stopped for that: its memory is another one.
func TestThreadsOfAnotherProgram(t *testing.T) {
	cmd := exec.Command("sh", "-c", "echo; read x || exec sleep 1000")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 1)); err != nil { // until then the kernel may still be executing it
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
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
