//go:build linux

package session

import (
	"testing"

	"github.com/fentry-dev/fentry/arch"
)

// One place is not said to be several.
func TestBusy(t *testing.T) {
	edits := []arch.Edit{{Func: "one"}, {Func: "two"}}
	for n, want := range map[int]string{
		1: "1 place was left as it is, and calls there are not recorded: a thread was in the middle of it: one",
		2: "2 places were left as they are, and calls there are not recorded: threads were in the middle of them: one, two",
	} {
		if got := left(edits[:n], "a thread was in the middle of it", "threads were in the middle of them"); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
