//go:build linux

package fentry_test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fentry-dev/fentry"
)

// Exceptions that are thrown while a process is attached to and detached from are caught, whoever unwinds: libgcc_s, a copy
// of it in the program, that of a static program.
func TestAttachUnwinders(t *testing.T) {
	for name, flags := range map[string][]string{
		"libgcc_s": nil, "own": {"-static-libgcc", "-static-libstdc++"}, "static": {"-static-pie", "-fPIE"},
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, buildAttached(t, flags...))
			dir := filepath.Join(t.TempDir(), "fentry.data")
			for range 3 {
				attachUntil(t, r.cmd.Process.Pid, fentry.Options{Dir: dir}, 50*time.Millisecond, "_Z3suml", "_Z4leafi")
			}
			r.end(t, 7, "right\n")
		})
	}
	// Its start-up code registers the unwind information, whether there is a search table or not.
	for _, table := range []string{"no-eh-frame-hdr", "eh-frame-hdr"} {
		t.Run("static, fixed, "+table, func(t *testing.T) {
			r := start(t, buildAttached(t, "-static", "-no-pie", "-Wl,--"+table))
			o := fentry.Options{Dir: filepath.Join(t.TempDir(), "fentry.data"), Logf: t.Logf}
			_, err := fentry.Attach(context.Background(), []int{r.cmd.Process.Pid}, o)
			if err == nil || !strings.Contains(err.Error(), "its start-up code registers its unwind information") {
				t.Error(err)
			}
			r.end(t, 7, "right\n")
		})
	}
}
