package buildstep_test

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/internal/buildstep"
	"github.com/fentry-dev/fentry/internal/testtool"
)

// make reads back the names that are written, as prerequisites and as targets.
func TestDepfileNames(t *testing.T) {
	testtool.Need(t, "make")
	for _, name := range []string{
		"a.o", "a b.o", "a\tb.o", "a#b.o", "a$b.o", "$(shell echo x).o", "a:b.o", "a%b.o", `a\b.o`, `a\ b.o`, `a\\ b.o`, `a\#b.o`, `a\:b.o`, `a\%b.o`, "a'b.o", "a&b.o",
	} {
		dir := t.TempDir()
		put(t, filepath.Join(dir, name), nil)
		if err := buildstep.WriteDepfile(filepath.Join(dir, "deps"), []buildstep.Rule{{Target: "lib.a", Prereqs: []string{name}}}); err != nil {
			t.Fatal(err)
		}
		// Of targets that are there and have no prerequisites make says nothing, of those it does not know it does.
		put(t, filepath.Join(dir, "Makefile"), []byte("lib.a:\n\t$(info <$<>)\ninclude deps\n"))
		for _, gone := range []bool{false, true} {
			if gone && strings.Contains(name, "\t") {
				continue // make has no way to write such a target
			}
			if gone {
				if out, err := exec.Command("rm", filepath.Join(dir, name)).CombinedOutput(); err != nil {
					t.Fatalf("%v: %s", err, out)
				}
			}
			out, err := exec.Command("make", "-s", "-C", dir, "lib.a").CombinedOutput()
			if want := fmt.Sprintf("<%s>\n", name); err != nil || !strings.Contains(string(out), want) {
				t.Errorf("%q, gone %v: %v, %s", name, gone, err, out)
			}
		}
	}
	for _, name := range []string{"a\nb.o", `a.o\`} {
		path := filepath.Join(t.TempDir(), "deps")
		if err := buildstep.WriteDepfile(path, []buildstep.Rule{{Target: "lib.a", Prereqs: []string{name}}}); err == nil {
			t.Errorf("%q is written", name)
		}
	}
}
