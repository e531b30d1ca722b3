//go:build linux

package fentry_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/fentry-dev/fentry"
	"github.com/fentry-dev/fentry/internal/format"
	"github.com/fentry-dev/fentry/trace"
)

// A recorder can be killed when it has just had a thread make a change: then that is made while all others go on. Here the
// program makes changes itself.
func TestControlKilled(t *testing.T) {
	flags := []string{"-fpatchable-function-entry=5", "-DMEETING=0x1f0000UL"}
	for name, value := range map[string]int{
		"MEETING_IMAGES": format.MeetingOImages, "MEETING_CHANGE": format.MeetingOChange, "STATE_SITES": format.StateOSites,
		"STATE_ACTING": format.StateOActing, "ACTING_ACTIONS": format.ActingOActions, "ACTING_COUNT": format.ActingOCount,
		"ACTION_SIZE": format.ActionSize, "CHANGE_FRAMES": format.ChangeFrames, "CHANGE_ROOTS": format.ChangeRoots,
	} {
		flags = append(flags, fmt.Sprintf("-D%s=%d", name, value))
	}
	cmd := exec.Command(buildFile(t, "testdata/changes.c", flags...))
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	o := fentry.Options{Dir: filepath.Join(t.TempDir(), "fentry.data"), Policy: trace.PolicyDrop, Overhead: -1, Logf: t.Logf}
	acts, err := fentry.Triggers([]string{"leaf@stacktrace:1000000000"})
	if err != nil {
		t.Fatal(err)
	}
	o.Plan.Actions = acts
	res, err := fentry.Run(context.Background(), cmd, o)
	if err != nil || res.Status.ExitStatus() != 7 {
		t.Errorf("%+v, %v", res, err)
	}
}
