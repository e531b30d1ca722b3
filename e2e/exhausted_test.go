package e2e

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestExhausted: a program that catches that its stack ends does so wherever in the tracer that is, which blocks signals now
// and then.
func TestExhausted(t *testing.T) {
	needFentry(t)
	for _, name := range []string{"plain", "fentry", "mcount", "arm64-patchable"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := kindNamed(t, name)
			program := filepath.Join(t.TempDir(), "exhausted")
			argv := slices.Concat(k.target.compiler(t, k.compiler), []string{"-O1", "-pthread", "-o", program, "testdata/exhausted/exhausted.c"}, k.cflags, k.ldflags)
			run(t, command{argv: argv}).mustSucceed(t)
			untraced := run(t, command{argv: append(k.emulation(), program)})
			untraced.mustSucceed(t)
			for _, options := range []string{"", "-T function", "--clock none", "--syscalls", "-A deeper@arg1"} {
				argv := slices.Concat([]string{fentry, "record", "--overhead", "no", "-o", filepath.Join(t.TempDir(), "data")},
					strings.Fields(options), emulatorOptions(k.emulation()), []string{program})
				t.Log(options)
				sameBehaviour(t, untraced, run(t, command{argv: argv}))
			}
		})
	}
}
