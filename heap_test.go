//go:build linux && amd64

package fentry_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry"
	"github.com/fentry-dev/fentry/internal/testtool"
	"github.com/fentry-dev/fentry/session"
	"github.com/fentry-dev/fentry/trace"
)

// The heap of a program grows by hundreds of megabytes as if it were not traced, wherever it begins: at up to a gigabyte
// behind the program (from Linux 6.9 on).
func TestHeapGrows(t *testing.T) {
	testtool.Need(t, "gcc")
	program := buildFile(t, "testdata/grows.c")
	const lines = "200\n200\n200\n"
	const want = "ready\ndone\ndone\ndone\n"
	for range 8 { // it begins elsewhere each time
		var out strings.Builder
		cmd := exec.Command(program)
		cmd.Stdin, cmd.Stdout = strings.NewReader(lines), &out
		res, err := fentry.Run(t.Context(), cmd, options(t))
		if err != nil || res.Status.ExitStatus() != 5 {
			t.Fatalf("started: %v, %+v", err, res)
		}
		if out.String() != want {
			t.Fatalf("started: %q", out.String())
		}
	}
	if !session.CanFollow() {
		t.Skip("processes are attached to on x86-64")
	}
	for range 8 {
		cmd := exec.Command(program)
		c := startTold(t, cmd)
		if got := c.line(); got != "ready" {
			t.Fatal(got)
		}
		rec := recordOne(t, cmd.Process.Pid, fentry.Options{Policy: trace.PolicyDrop})
		for range 3 {
			c.do("200")
		}
		if _, calls := rec.end(t); calls["touch"] != 600 {
			t.Errorf("attached to: %v", calls)
		}
		c.in.Close()
		if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 5 {
			t.Error(err)
		}
	}
}
