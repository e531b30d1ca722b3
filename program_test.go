//go:build linux

package fentry

import (
	"testing"

	"github.com/fentry-dev/fentry/record"
)

// What is said of a program in which nothing can be traced is a sentence, however many functions it has. Parts are none.
func TestNoneTraceable(t *testing.T) {
	part, refused := record.Site{Reason: record.ReasonColdPart}, record.Site{Reason: record.ReasonShortFunction}
	for want, sites := range map[string][]record.Site{
		"it has no functions": {part},
		"its one function cannot be traced; fentry list -l says why":     {part, refused},
		"none of its 2 functions can be traced; fentry list -l says why": {refused, part, refused},
	} {
		if got := (&Program{Sites: sites}).noneTraceable(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
