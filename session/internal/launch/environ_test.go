//go:build linux

package launch

import (
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestInheritedEnviron(t *testing.T) {
	// Other tests change variables and put them back, in another order.
	sorted := func(env []string) []string { return slices.Sorted(slices.Values(env)) }
	if d := cmp.Diff(sorted(os.Environ()), sorted(Environ())); d != "" {
		t.Error(d)
	}
	t.Setenv("SESSION_TEST", "1")
	if d := cmp.Diff(os.Environ(), Environ()); d != "" {
		t.Error(d)
	}
	os.Unsetenv("HOME")
	if d := cmp.Diff(os.Environ(), Environ()); d != "" {
		t.Error(d)
	}
}
