package e2e

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/internal/testtool"
)

var (
	gdbFrame = regexp.MustCompile(`(?m)^#\d+ +(?:0x[0-9a-f]+ in )?([^ (]+)`)
	// frames of libc below main and below a thread's function, and the tracer's own
	notOurs = regexp.MustCompile(`^(_start|__libc_start.*|_init|start_thread|thread_start|clone3?|__clone3?|fentry[:_].*|_?_?GI_.*|__pthread_kill.*|pthread_kill.*|raise|gsignal|abort|\?\?)$`)
)

// callers are the program's functions of one backtrace, innermost first.
func callers(text string) []string {
	var out []string
	for _, m := range gdbFrame.FindAllStringSubmatch(text, -1) {
		if !notOurs.MatchString(m[1]) {
			out = append(out, m[1])
		}
	}
	return out
}

// TestDebugger asks gdb for backtraces in traced functions: stopped at a breakpoint in a patched program, in a thread, from a core file, and in a
// program fentry record runs.
func TestDebugger(t *testing.T) {
	testtool.Need(t, "gdb")
	f := loadFixture(t, "debugged")
	for _, c := range configsFor(f, 5) {
		if c.kind.compiler == "musl-gcc" {
			continue // gdb loses its way in Debian's musl, which has no unwind tables
		}
		t.Run(c.String(), func(t *testing.T) {
			t.Parallel()
			p := build(t, f, c)
			patched := filepath.Join(p.dir, "patched")
			needFentry(t)
			patchFile(t, p.path(), patched, nil)
			want := []string{"leaf", "inner", "middle", "outer", "main"}
			inThread := []string{"leaf", "inner", "middle", "outer", "in_thread"}
			for _, program := range []string{p.path(), patched} {
				// Instructions that have been moved have their function's name, so a call of it can have two places to stop.
				r := gdb(t, p.dir, program, "tbreak leaf", "run", "printf \"=1\\n\"", "bt", "tbreak in_thread", "continue",
					"tbreak leaf", "continue", "printf \"=2\\n\"", "bt", "continue")
				parts := strings.Split(r, "\n=")
				if len(parts) != 3 {
					t.Fatalf("%s: gdb stopped %d times, want 2\n%s", filepath.Base(program), len(parts)-1, clip(r))
				}
				if got := callers(parts[1]); !slices.Equal(got, want) {
					t.Errorf("%s: gdb shows %v, want %v\n%s", filepath.Base(program), got, want, clip(parts[1]))
				}
				if got := callers(parts[2]); !slices.Equal(got, inThread) {
					t.Errorf("%s: gdb shows %v in a thread, want %v\n%s", filepath.Base(program), got, inThread, clip(parts[2]))
				}
				core := filepath.Join(t.TempDir(), "core")
				gdb(t, p.dir, program, "run core", "generate-core-file "+core)
				r = gdb(t, p.dir, program, "core-file "+core, "bt")
				if got := callers(r); !slices.Equal(got, want) {
					t.Errorf("%s: gdb shows %v in the core file, want %v\n%s", filepath.Base(program), got, want, clip(r))
				}
				// finish goes through the tracer's return path
				r = gdb(t, p.dir, program, "break leaf", "run", "finish", "finish", "bt")
				if got := callers(r[strings.LastIndex(r, "#0"):]); len(got) == 0 || got[len(got)-1] != "main" {
					t.Errorf("%s: after finish gdb shows %v\n%s", filepath.Base(program), got, clip(r))
				}
			}
		})
	}
}

func gdb(t testing.TB, dir, program string, commands ...string) string {
	t.Helper()
	argv := []string{"gdb", "-nx", "-batch", "-ex", "set confirm off", "-ex", "set debuginfod enabled off", "-ex", "set print thread-events off",
		"-ex", "set startup-with-shell off"}
	for _, c := range commands {
		argv = append(argv, "-ex", c)
	}
	r := run(t, command{dir: dir, argv: append(argv, program), env: []string{"FENTRY_DATA=" + filepath.Join(t.TempDir(), "data"),
		"FIXTURE_COUNTS=" + filepath.Join(t.TempDir(), "counts")}})
	if r.err != nil {
		t.Fatalf("gdb: %v\n%s%s", r.err, clip(r.stdout), clip(r.stderr))
	}
	return r.stdout
}

// TestDebuggerArm64 asks gdb for backtraces through qemu-user's own server: gdb knows nothing of the tracer but what is in the program.
func TestDebuggerArm64(t *testing.T) {
	testtool.Need(t, "gdb-multiarch")
	arm64.need(t)
	f := loadFixture(t, "debugged")
	configs := slices.DeleteFunc(configsOf(arm64Kinds), func(c config) bool {
		// With optimisation a breakpoint in leaf is two; qemu does not tell gdb which bits of a signed return address are its signature.
		if c.opt != "-O0" || strings.Contains(c.kind.name, "bti") {
			return true
		}
		return !testtool.Wide() && c.kind.name+c.link.name != "arm64-patchablepie" && c.kind.name+c.link.name != "arm64-clangstatic"
	})
	for _, c := range configs {
		t.Run(c.String(), func(t *testing.T) {
			t.Parallel()
			p := build(t, f, c)
			needFentry(t)
			patched := filepath.Join(p.dir, "patched")
			patchFile(t, p.path(), patched, nil)
			for _, program := range []string{p.path(), patched} {
				r := gdbRemote(t, p, program, "break leaf", "continue", "printf \"=1\\n\"", "bt", "continue", "printf \"=2\\n\"", "bt",
					"finish", "finish", "printf \"=3\\n\"", "bt")
				parts := strings.Split(r, "\n=")
				if len(parts) != 4 {
					t.Fatalf("%s: gdb stopped %d times, want 3\n%s", filepath.Base(program), len(parts)-1, clip(r))
				}
				for i, want := range [][]string{{"leaf", "inner", "middle", "outer", "main"}, {"leaf", "inner", "middle", "outer", "in_thread"}, {"middle", "outer", "in_thread"}} {
					if got := callers(parts[i+1]); !slices.Equal(got, want) {
						t.Errorf("%s: gdb shows %v, want %v\n%s", filepath.Base(program), got, want, clip(parts[i+1]))
					}
				}
			}
		})
	}
}

// gdbRemote has gdb control a program under the emulator.
func gdbRemote(t testing.TB, p *program, program string, commands ...string) string {
	t.Helper()
	dir := t.TempDir()
	socket := filepath.Join(dir, "gdb")
	k := p.config.kind
	argv := append(k.emulation(), "-g", socket, program)
	guest := exec.Command(argv[0], argv[1:]...)
	guest.Env = append(baseEnv(), "FENTRY_DATA="+filepath.Join(dir, "data"), "FIXTURE_COUNTS="+filepath.Join(dir, "counts"))
	testtool.Listening(t, guest, socket)
	all := []string{"gdb-multiarch", "-nx", "-batch", "-ex", "set confirm off", "-ex", "set debuginfod enabled off", "-ex", "set print thread-events off",
		"-ex", "set sysroot /usr/" + k.target.triple, "-ex", "target remote " + socket}
	for _, c := range commands {
		all = append(all, "-ex", c)
	}
	r := run(t, command{dir: dir, argv: append(all, program)})
	if r.err != nil {
		t.Fatalf("gdb: %v\n%s%s", r.err, clip(r.stdout), clip(r.stderr))
	}
	return r.stdout
}
