package e2e

import (
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/internal/testtool"
)

// TestLibunwind: libunwind walks the stacks of recorded and of patched programs, also where a function of a library that is
// not traced returns to the tracer: behind calls of it and jumps to it.
func TestLibunwind(t *testing.T) {
	needFentry(t)
	if runtime.GOARCH != "amd64" {
		t.Skip("the library is for another machine")
	}
	const library = "/usr/lib/x86_64-linux-gnu/libunwind.so.8"
	testtool.Need(t, "gcc", library)
	dir := t.TempDir()
	prog, data := filepath.Join(dir, "prog"), filepath.Join(dir, "data")
	run(t, command{argv: []string{"gcc", "-O2", "-o", prog, "testdata/stacks/nongnu.c", library}}).mustSucceed(t)
	want := run(t, command{argv: []string{prog}}).mustSucceed(t)
	var sum, arrived, walks int
	if _, err := fmt.Sscanf(want.stdout, "sum %d, %d of %d walks", &sum, &arrived, &walks); err != nil || arrived != walks {
		t.Fatalf("untraced: %s(%v)", want.stdout, err)
	}
	for _, options := range [][]string{
		{}, {"--libcalls"}, {"-L", "*"}, {"-F", "jumps"}, {"-F", "qsort@plt"}, {"-T", "function"}, {"--stack", "less"},
	} {
		t.Run(strings.Join(options, ""), func(t *testing.T) {
			argv := slices.Concat([]string{fentry, "record", "-o", data, "--overhead", "no"}, options, []string{prog})
			if r := run(t, command{argv: argv}).mustSucceed(t); r.stdout != want.stdout {
				t.Errorf("got %s, want %s", r.stdout, want.stdout)
			}
			if n := calls(t, data, "less"); slices.Equal(options, []string{"--libcalls"}) && n != walks {
				t.Errorf("less was called %d times, want %d", n, walks)
			}
		})
	}
	run(t, command{argv: []string{fentry, "patch", "--libcalls", "-o", prog + ".traced", prog}}).mustSucceed(t)
	if r := run(t, command{argv: []string{prog + ".traced"}}).mustSucceed(t); r.stdout != want.stdout {
		t.Errorf("patched: got %s, want %s", r.stdout, want.stdout)
	}
}
