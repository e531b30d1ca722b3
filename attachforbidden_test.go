//go:build linux

package fentry_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/fentry-dev/fentry"
)

// What a process's filter of system calls forbids is forbidden while it is attached to, and detached from, too: the calls that one of
// its threads is made to make pass the filter by, and no others.
func TestAttachForbidden(t *testing.T) {
	r := start(t, buildFile(t, "testdata/filtered.c"))
	o := fentry.Options{Dir: filepath.Join(t.TempDir(), "fentry.data")}
	for range 5 {
		attachUntil(t, r.cmd.Process.Pid, o, 20*time.Millisecond, "leaf")
	}
	r.end(t, 7, "right\n")
}
