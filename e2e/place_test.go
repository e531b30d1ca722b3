package e2e

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/internal/testtool"
)

// Where a program cannot be changed in memory, a copy runs from the first place that allows it, and -v says from which
// and why.
func TestPlaces(t *testing.T) {
	needFentry(t)
	testtool.Need(t, "unshare", "gcc")
	namespaces := []string{"unshare", "-rmpf", "--mount-proc"}
	r := run(t, command{argv: append(namespaces, "mount", "-t", "tmpfs", "none", t.TempDir())})
	if r.status != "exit 0" {
		t.Skipf("no namespaces here: %s %s", r.status, r.stderr)
	}
	const (
		readOnly = "mount -t tmpfs none dir; cp prog dir; mount -o remount,ro dir; "
		noMemfd  = "echo 2 >/proc/sys/vm/memfd_noexec || exit 77; " // Linux 6.3; the namespace's own
	)
	for _, tt := range []struct{ name, prepare, options, says string }{
		{"memory", "cp prog dir; ", "", "traced in its memory"},
		{"beside", "cp prog dir; ", "--no-ptrace", "traced as a patched copy in a file without a name in dir"},
		{"memfd", readOnly, "--no-ptrace", "traced as a patched copy in memory, because open dir: read-only file system"},
		{"temporary", readOnly + noMemfd, "--no-ptrace", "read-only file system; memfd_create: permission denied"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			script := "set -e; mkdir dir; echo 'int f(int x) { return x - 1; } int main(void) { return f(1); }' >prog.c; " +
				"gcc -O0 -fpatchable-function-entry=5 -o prog prog.c; " + tt.prepare +
				fentry + " record -v " + tt.options + " -o data dir/prog"
			r := run(t, command{dir: dir, argv: append(namespaces, "sh", "-c", script), env: []string{"TMPDIR=" + dir}})
			if r.status == "exit 77" {
				t.Skipf("memory files cannot be forbidden here: %s", r.stderr)
			}
			r.mustSucceed(t)
			if !strings.Contains(r.stderr, tt.says) {
				t.Errorf("stderr %q, want %q in it", r.stderr, tt.says)
			}
			if why := "; not in place, because ptrace is not to be used"; tt.options != "" && !strings.Contains(r.stderr, why) {
				t.Errorf("stderr %q, want %q in it", r.stderr, why)
			}
			if calls := report(t, filepath.Join(dir, "data")); len(calls) != 2 {
				t.Errorf("calls %+v", calls)
			}
		})
	}
}

// A program that a traced one executes where another root is, without /proc, is recorded with it: it prints what it prints
// untraced, and leaves nothing there, as it would not find the way back from a directory that is not below the root.
func TestChrooted(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("programs without sites are traced on x86-64")
	}
	needFentry(t)
	testtool.Need(t, "gcc")
	if os.Geteuid() != 0 {
		t.Skip("only root changes the root directory")
	}
	dir := t.TempDir()
	root := filepath.Join(dir, "root")
	const source = `#define _GNU_SOURCE
#include <stdio.h>
#include <unistd.h>
int main(int argc, char **argv)
{
	char b[99];
	if (argc == 3) {
		if (chdir(argv[1]) || chroot(argv[2])) return 1;
		execl("/prog", "/prog", (char *)0);
	}
	printf("%d %s\n", argc, getcwd(b, sizeof b) ? b : argv[0]);
	return 3;
}
`
	prepare := "set -e; mkdir root; cat >prog.c <<'E'\n" + source + "E\ngcc -O1 -static -o root/prog prog.c"
	run(t, command{dir: dir, argv: []string{"sh", "-c", prepare}}).mustSucceed(t)
	for name, words := range map[string][]string{
		"below":   {filepath.Join(root, "prog"), root, "."},
		"outside": {filepath.Join(root, "prog"), dir, root}, // no path leads from the root to where it is
	} {
		t.Run(name, func(t *testing.T) {
			data := filepath.Join(t.TempDir(), "data")
			want := run(t, command{dir: dir, argv: words})
			got := run(t, command{dir: dir, argv: append([]string{fentry, "record", "-q", "-o", data}, words...)})
			if want.status != "exit 3" {
				t.Fatalf("%s: %s", want.status, want.stderr)
			}
			if sameBehaviour(t, want, got); got.stderr != want.stderr {
				t.Errorf("stderr %q, untraced %q", got.stderr, want.stderr)
			}
			calls := report(t, data)
			if !slices.ContainsFunc(calls, func(r reportRow) bool { return r.Name == "main" && r.Calls == 2 }) {
				t.Errorf("main is not among the %d functions with two calls", len(calls))
			}
			if left, err := os.ReadDir(root); err != nil || len(left) != 1 {
				t.Errorf("there is %v, %v", left, err)
			}
		})
	}
}
