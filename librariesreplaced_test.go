//go:build linux

package fentry_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/fentry-dev/fentry"
	"github.com/fentry-dev/fentry/internal/testtool"
)

// A library that takes the place of another one is that one, however soon it does: also if both have the same number, size and times.
func TestLibrariesReplaced(t *testing.T) {
	testtool.Need(t, "gcc")
	program, dir := buildFile(t, "testdata/replaced.c"), t.TempDir()
	args := []string{filepath.Join(dir, "lib.so")}
	for i := range 3 {
		source, lib := filepath.Join(dir, "lib.c"), filepath.Join(dir, fmt.Sprint(i, ".so"))
		text := fmt.Sprintf("__attribute__((noinline)) int number(void) { return %d; }\nint which(void) { return number() + 1000; }\n", i)
		if err := os.WriteFile(source, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		testtool.Output(t, "gcc", "-O1", "-fPIC", "-shared", "-o", lib, source)
		args = append(args, lib)
	}
	want := testtool.Output(t, program, args...)
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	for range 2 {
		var out bytes.Buffer
		cmd := exec.Command(program, args...)
		cmd.Stdout = &out
		data := filepath.Join(t.TempDir(), "fentry.data")
		res, err := fentry.Run(context.Background(), cmd, fentry.Options{Dir: data, Libraries: []string{"lib.so"}, Logf: t.Logf})
		if err != nil || !res.Status.Exited() || res.Status.ExitStatus() != 0 {
			t.Fatalf("%+v, %v", res, err)
		}
		if got := out.String(); got != string(want) {
			t.Errorf("%q\nwant %q", got, want)
		}
		if calls := callsIn(t, data); calls["which"] != 30 {
			t.Errorf("%d calls of which, 30 were made", calls["which"])
		}
	}
}
