package e2e

import (
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/internal/testtool"
)

// TestCancellable: system calls at which threads can be cancelled stay where the C library looks for them, and are recorded
// at their callers, through which handlers unwind. One that is not made because the thread has been cancelled is none.
func TestCancellable(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("calls of these routines are moved on x86-64")
	}
	testtool.Need(t, "gcc", "musl-gcc")
	needFentry(t)
	dir := t.TempDir()
	for _, c := range []struct{ name, compiler, flag string }{
		{"glibc", "gcc", "-pthread"}, {"glibc-static", "gcc", "-static"}, {"musl", "musl-gcc", "-pie"}, {"musl-static", "musl-gcc", "-static"},
	} {
		t.Run(c.name, func(t *testing.T) {
			prog := filepath.Join(dir, c.name)
			build := exec.Command(c.compiler, "-O2", "-w", c.flag, "-o", prog, "testdata/cancellable/cancellable.c")
			if out, err := build.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			untraced := run(t, command{dir: dir, argv: []string{prog}})
			untraced.mustSucceed(t)
			for _, options := range [][]string{{"-F", "none"}, {"--overhead", "no"}} {
				data := filepath.Join(t.TempDir(), "data")
				argv := append([]string{fentry, "record", "--syscalls", "-o", data}, options...)
				r := run(t, command{dir: dir, argv: append(argv, prog)})
				r.mustSucceed(t)
				if r.stdout != untraced.stdout {
					t.Errorf("%v: %q, untraced %q", options, r.stdout, untraced.stdout)
				}
				lines := run(t, command{dir: dir, argv: []string{fentry, "replay", data}})
				lines.mustSucceed(t)
				if n := strings.Count(lines.stdout, "pwritev(4, NULL, 0, 1) = -1 ESPIPE"); n != 1 {
					t.Errorf("%v: pwritev %d times\n%s", options, n, clip(lines.stdout))
				}
				reads := 0
				for line := range strings.Lines(lines.stdout) {
					if _, args, ok := strings.Cut(line, " read(3, "); ok && strings.Contains(args, ", 8)") {
						reads++
					}
				}
				if reads != 3 {
					t.Errorf("%v: read %d times, want 3\n%s", options, reads, clip(lines.stdout))
				}
			}
		})
	}
}
