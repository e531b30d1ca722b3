package e2e

import (
	"path/filepath"
	"testing"
)

// TestExecutesAtOnce follows threads of a process that execute programs at the same time: one does, the others end, and
// the status is that of the last program.
func TestExecutesAtOnce(t *testing.T) {
	prog := following(t, "atonce")
	for range 2 {
		data := filepath.Join(t.TempDir(), "data")
		got := run(t, command{argv: []string{fentry, "record", "-o", data, prog}})
		if got.status != "exit 42" || got.err != nil {
			t.Errorf("%s, %v\n%s", got.status, got.err, got.stderr)
		}
		if n := calls(t, data, "main"); n < 2 {
			t.Errorf("%d programs in the trace\n%s", n, got.stderr)
		}
	}
}
