package e2e

import (
	"path/filepath"
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
