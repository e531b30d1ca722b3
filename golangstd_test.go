//go:build linux

package fentry_test

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fentry-dev/fentry/internal/runfile"
	"github.com/fentry-dev/fentry/internal/testtool"
)

// buildCommand builds fentry.
func buildCommand(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "fentry")
	testtool.Output(t, "go", "build", "-o", path, "./cmd/fentry")
	return path
}

// stdFailing are tests of the standard library that cannot pass traced, by package.
var stdFailing = map[string]string{
	"runtime": "TestUnsafePoint disassembles itself, and finds jumps",
}

// goRoot is where the Go that runs the tests is.
func goRoot(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// TestGoStd runs the tests of the standard library with each of their programs traced, all functions but the runtime's: what
// passes untraced passes.
func TestGoStd(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("Go programs are traced on x86-64")
	}
	if !testtool.Wide() {
		t.Skip("the standard library's own tests are run only in wide runs")
	}
	testtool.Long(t)
	run := func(packages ...string) string {
		command := fmt.Sprintf("%s record -q --overhead no --flight 2M -o %s/%%n-%%p", buildCommand(t), t.TempDir())
		cmd := exec.Command("go", append([]string{"test", "-short", "-count=1", "-timeout=1h", "-exec", command}, packages...)...)
		cmd.Dir = filepath.Join(goRoot(t), "src")
		out, _ := cmd.CombinedOutput()
		return string(out)
	}
	out := run("std")
	passed := 0
	for line := range strings.Lines(out) {
		f := strings.Fields(line)
		if len(f) > 1 && f[0] == "ok" {
			passed++
		}
		if len(f) < 3 || f[0] != "FAIL" || stdFailing[f[1]] != "" {
			continue
		}
		cmd := exec.Command("go", "test", "-short", "-count=1", f[1])
		cmd.Dir = filepath.Join(goRoot(t), "src")
		if untraced, err := cmd.CombinedOutput(); err != nil {
			t.Logf("%s fails untraced, too:\n%s", f[1], untraced)
			continue
		}
		if again := run(f[1]); !strings.HasPrefix(again, "ok") { // what depends on time fails now and then
			t.Errorf("%s:\n%s", f[1], again)
		}
	}
	if passed < 100 {
		t.Errorf("%d packages pass:\n%s", passed, out)
	}
}

// TestGoBuild has a traced go command build the standard library with traced compilers, of which all functions but the
// runtime's are recorded: all packages are what they are untraced.
func TestGoBuild(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("Go programs are traced on x86-64")
	}
	if !testtool.Wide() {
		t.Skip("the standard library is built twice only in wide runs")
	}
	testtool.Long(t)
	dir := t.TempDir()
	fentry := buildCommand(t)
	tool := filepath.Join(dir, "tool")
	script := fmt.Sprintf(`#!/bin/sh
case "$1 $*" in
*/compile\ *-V=full*) exec "$@" ;;
*/compile\ *) exec %s record -q --overhead no --flight 2M -o %s/traces/%%p "$@" ;;
esac
exec "$@"
`, fentry, dir)
	if err := runfile.WriteFile(tool, []byte(script)); err != nil {
		t.Fatal(err)
	}
	goCommand := filepath.Join(goRoot(t), "bin/go")
	build := func(name string, args ...string) map[[sha256.Size]byte]bool {
		cache := filepath.Join(dir, name)
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Env = append(os.Environ(), "GOCACHE="+cache, "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, out)
		}
		sums := map[[sha256.Size]byte]bool{}
		err := filepath.WalkDir(cache, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, "-d") { // what was built, by its contents
				return err
			}
			b, err := os.ReadFile(path)
			sums[sha256.Sum256(b)] = true
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return sums
	}
	want := build("untraced", goCommand, "build", "-a", "std")
	got := build("traced", fentry, "record", "-q", "--overhead", "no", "--flight", "2M", "-o", filepath.Join(dir, "go.data"),
		goCommand, "build", "-a", "-toolexec", tool, "std")
	if !cmp.Equal(want, got) {
		t.Errorf("%d files are made, untraced %d, or others", len(got), len(want))
	}
	traces, err := filepath.Glob(filepath.Join(dir, "traces/*"))
	if err != nil || len(traces) < 200 {
		t.Errorf("%d compilers are traced, %v", len(traces), err)
	}
}
