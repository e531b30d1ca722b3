package e2e

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestCancellable: system calls at which threads can be cancelled stay where the C library looks for them, and are recorded
// at their callers, through which handlers unwind. One that is not made because the thread has been cancelled is none.
func TestCancellable(t *testing.T) {
	needFentry(t)
	dir := t.TempDir()
	for _, c := range []struct {
		name           string
		on             target
		compiler, flag string
	}{
		{"glibc", target{}, "gcc", "-pthread"}, {"glibc-static", target{}, "gcc", "-static"},
		{"musl", target{}, "musl-gcc", "-pie"}, {"musl-static", target{}, "musl-gcc", "-static"},
		{"arm64-static", arm64, "gcc", "-static"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.on.need(t)
			prog := filepath.Join(dir, c.name)
			run(t, command{argv: append(c.on.compiler(t, c.compiler), "-O2", "-w", c.flag, "-o", prog,
				"testdata/cancellable/cancellable.c")}).mustSucceed(t)
			untraced := run(t, command{dir: dir, argv: append(slices.Clone(c.on.emulator), prog)})
			untraced.mustSucceed(t)
			for _, options := range [][]string{{"-F", "none"}, {"--overhead", "no"}} {
				data := filepath.Join(t.TempDir(), "data")
				argv := append([]string{fentry, "record", "--syscalls", "--plain=all", "-o", data}, options...)
				r := run(t, command{dir: dir, argv: append(argv, prog)})
				r.mustSucceed(t)
				if r.stdout != untraced.stdout {
					t.Errorf("%v: %q, untraced %q", options, r.stdout, untraced.stdout)
				}
				lines := run(t, command{dir: dir, argv: []string{fentry, "replay", data}})
				lines.mustSucceed(t)
				if n := strings.Count(lines.stdout, "pwritev(4, NULL, 0, 1) ="); n != 1 {
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
