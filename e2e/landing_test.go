package e2e

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fentry-dev/fentry/session"
)

// TestProfileLanding: what a function's callees have taken is not its own time, also where a jump has ended them.
func TestProfileLanding(t *testing.T) {
	needFentry(t)
	program, data := filepath.Join(t.TempDir(), "landing"), filepath.Join(t.TempDir(), "data")
	compile := append(target{}.compiler(t, "gcc"), "-O2", "-o", program, "testdata/stubs/landing.c")
	run(t, command{argv: compile}).mustSucceed(t)
	run(t, command{argv: []string{fentry, "record", "-T", "profile", "-o", data, program}}).mustSucceed(t)
	found := false
	for _, row := range report(t, data) {
		if row.Name == "landing" {
			found = true
			if row.Total < 30e6 || row.Self > row.Total/2 {
				t.Errorf("%d ns in all, %d of its own", row.Total, row.Self)
			}
		}
	}
	if !found {
		t.Error("it is not in the report")
	}
}

// TestSamplesStubs: stacks that are taken in the stub of a call into a library do not end there.
func TestSamplesStubs(t *testing.T) {
	if err := session.CanSample(time.Millisecond); err != nil {
		t.Skipf("needs perf events: %v", err)
	}
	needFentry(t)
	dir := t.TempDir()
	gcc := target{}.compiler(t, "gcc")
	lib, program, data := filepath.Join(dir, "libstubs.so"), filepath.Join(dir, "stubs"), filepath.Join(dir, "data")
	run(t, command{argv: append(gcc, "-O2", "-shared", "-fPIC", "-o", lib, "testdata/stubs/library.c")}).mustSucceed(t)
	run(t, command{argv: append(gcc, "-O2", "-o", program, "testdata/stubs/main.c", lib, "-Wl,-z,lazy,-rpath,$ORIGIN")}).mustSucceed(t)
	run(t, command{argv: []string{fentry, "record", "-F", "none", "--stack-every", "1ms", "-o", data, program}}).mustSucceed(t)
	stacks := run(t, command{argv: []string{fentry, "report", "--stacks", "*", "-i", data}}).mustSucceed(t).stdout
	if !strings.Contains(stacks, "main;calls") || strings.Contains(stacks, "undefined:") {
		t.Errorf("stacks:\n%s", stacks)
	}
}
