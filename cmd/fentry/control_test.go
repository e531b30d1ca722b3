//go:build linux && amd64

package main

import (
	"bufio"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// What a command sets is answered for, and where in it an error is.
func TestControlCommand(t *testing.T) {
	dir := t.TempDir()
	link(t, dir)
	recorded := exec.Command(filepath.Join(dir, "fentry"), "record", "-q", "-o", filepath.Join(dir, "data"), "sh", "-c", "echo $$; read line")
	in, err := recorded.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := recorded.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := recorded.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		in.Close()
		_ = recorded.Wait()
	}()
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		t.Fatal("the program says nothing")
	}
	pid := lines.Text()
	control := func(command ...string) (string, error) {
		b, err := exec.Command(filepath.Join(dir, "fentry"), append([]string{"control", pid}, command...)...).CombinedOutput()
		return string(b), err
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if said, err := control("tracing_on = 0"); err == nil {
			break
		} else if time.Now().After(deadline) {
			t.Fatal(said)
		}
	}
	if said, err := control("tracing_on"); said != "0\n" || err != nil {
		t.Errorf("%q, %v", said, err)
	}
	said, err := control("tracing_on", "=", "5")
	if said != "fentry: tracing_on = 5: column 14: 0 or 1\n" || err == nil {
		t.Errorf("%q, %v", said, err)
	}
}
