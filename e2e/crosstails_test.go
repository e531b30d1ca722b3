package e2e

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestCrossTails: calls that end by jumping to a function of another image, in handlers of signals, too, are all recorded.
func TestCrossTails(t *testing.T) {
	needFentry(t)
	for _, on := range []target{{}, arm64} {
		t.Run(on.name(), func(t *testing.T) {
			on.need(t)
			t.Parallel()
			dir, src := t.TempDir(), "testdata/crosstails/"
			program, lib := filepath.Join(dir, "tails"), filepath.Join(dir, "libtails.so")
			gcc := slices.Concat(on.compiler(t, "gcc"), []string{"-O2"})
			run(t, command{argv: slices.Concat(gcc, []string{"-shared", "-fPIC", "-Wl,-soname,libtails.so", "-o", lib, src + "tails.c"})}).mustSucceed(t)
			run(t, command{argv: slices.Concat(gcc, []string{"-rdynamic", "-o", program, src + "main.c", lib, "-Wl,-rpath,$ORIGIN"})}).mustSucceed(t)
			for _, options := range []string{"", "--libcalls", "-T function", "-T profile", "-T count", "--clock none", "-D 50", "-t 1ns"} {
				data := filepath.Join(t.TempDir(), "data")
				argv := slices.Concat([]string{fentry, "record", "--overhead", "no", "-L", "libtails", "-o", data}, strings.Fields(options),
					emulatorOptions(on.emulator), []string{program})
				said := run(t, command{argv: argv}).mustSucceed(t)
				if options == "-t 1ns" {
					continue // many take less
				}
				for _, name := range []string{"bounce", "return_ball"} {
					if want := fmt.Sprintf("%s %d\n", name, calls(t, data, name)); !strings.Contains(said.stdout, want) {
						t.Errorf("%q: recorded %sit says\n%s", options, want, said.stdout)
					}
				}
			}
		})
	}
}
