//go:build linux

package fentry_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/internal/testtool"
)

// Where the tracer stays in a process, since a library that traces itself has joined it, that is said whatever is to be said, and
// who waits for it to be gone is told.
func TestAttachStays(t *testing.T) {
	program := buildFile(t, "testdata/control.c", "-fpatchable-function-entry=5")
	recorder, dir := buildRecorder(t), t.TempDir()
	source, library := filepath.Join(dir, "library.c"), filepath.Join(dir, "library.so")
	if err := os.WriteFile(source, []byte("int library_function(int n) { return n + 1; }\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	testtool.Output(t, "gcc", "-O1", "-shared", "-fPIC", "-fpatchable-function-entry=5", "-o", library, source)
	testtool.Output(t, recorder, "patch", "-q", "-o", library+".traced", library)
	for _, how := range [][]string{{"-q"}, nil} {
		t.Run(fmt.Sprint(how), func(t *testing.T) {
			cmd := exec.Command(program)
			c := startTold(t, cmd)
			t.Cleanup(func() { c.in.Close(); cmd.Wait() })
			if _, err := fmt.Sscan(c.line(), &c.pid); err != nil {
				t.Fatal(err)
			}
			args := append([]string{"record", "--overhead", "no", "-p", fmt.Sprint(c.pid), "-o", filepath.Join(t.TempDir(), "fentry.data")}, how...)
			r := exec.Command(recorder, args...)
			var said bytes.Buffer
			r.Stderr = &said
			if err := r.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { r.Process.Kill(); r.Wait() })
			c.control("status")
			c.do("load %s 3", library+".traced")
			const stays = "the tracer's code stays in the process, switched off"
			if out, err := exec.Command(recorder, "detach", "--unload", fmt.Sprint(c.pid)).CombinedOutput(); err == nil || !strings.Contains(string(out), stays) {
				t.Errorf("detach --unload: %v, %s", err, out)
			}
			if err := r.Wait(); err != nil {
				t.Errorf("the recorder: %v", err)
			}
			if n := strings.Count(said.String(), stays); n != 1 {
				t.Errorf("said %d times:\n%s", n, &said)
			}
			c.do("work 10")
		})
	}
}
