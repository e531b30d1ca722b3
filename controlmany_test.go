//go:build linux

package fentry_test

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry"
)

// Where a call ends, the runtime knows of 64 things to be done which it has counted: a number of dumps behind these is refused, when
// a recording begins and while it runs.
func TestManyTriggers(t *testing.T) {
	const most, why = 64, "more than 64 things are to be done at calls of a function"
	triggers := func(n int, what string) (specs []string) {
		for i := range n {
			specs = append(specs, fmt.Sprintf("outer@time>%ds,%s", 100+i, what))
		}
		return specs
	}
	c := startControlled(t, true, fentry.Options{Buffer: 8 << 20}, "-fpatchable-function-entry=5")
	set := func(specs []string) error {
		_, err := c.ask("trigger = " + strings.Join(specs, " "))
		return err
	}
	for _, specs := range [][]string{triggers(most, "snapshot:3"), triggers(most+1, "snapshot"), triggers(most+1, "stacktrace:3")} {
		if err := set(specs); err != nil {
			t.Error(err)
		}
		c.do("work 10")
	}
	if err := set(triggers(most+1, "snapshot:3")); err == nil || !strings.Contains(err.Error(), why) {
		t.Errorf("%v, want %s", err, why)
	}
	if got, want := c.control("trigger"), strings.Join(triggers(most+1, "stacktrace:3"), " "); got != want {
		t.Errorf("a set that was refused: %s\nwant %s", got, want)
	}
	c.do("work 10")

	args := []string{"record", "--flight", "1M", "-o", filepath.Join(t.TempDir(), "fentry.data")}
	for _, s := range triggers(most+1, "snapshot:3") {
		args = append(args, "--trigger", s)
	}
	out, err := exec.Command(buildRecorder(t), append(args, buildFile(t, "testdata/control.c", "-fpatchable-function-entry=5"))...).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "outer: "+why) {
		t.Errorf("%v, %s", err, out)
	}
}
