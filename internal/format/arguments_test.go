package format

import (
	"slices"
	"testing"
)

// Empty arguments are arguments, and what a title leaves of them is none.
func TestArguments(t *testing.T) {
	for text, want := range map[string][]string{
		"cat\x00-n\x00a b\x00":                   {"cat", "-n", "a b"},
		"cat\x00\x00\x00":                        {"cat", "", ""},
		"a b\x00":                                {"a b"},
		"a b\x00c\x00\x00":                       {"a b", "c", ""},
		"nginx: worker process\x00\x00\x00\x00":  {"nginx: worker process"},
		"postgres: checkpointer ":                {"postgres: checkpointer "},
		"sshd: /usr/sbin/sshd -D [listener]\x00": {"sshd: /usr/sbin/sshd -D [listener]"},
	} {
		if got := Arguments(text, "\x00"); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
