//go:build linux

package session

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/internal/testtool"
	"github.com/fentry-dev/fentry/session/internal/fixture"
)

// loads is a program with a library that it finds beside it, and another library that is to take its place.
type loads struct{ program, library, other string }

func buildLoads(t *testing.T, cc string, flags ...string) loads {
	t.Helper()
	testtool.Need(t, cc)
	dir := t.TempDir()
	l := loads{filepath.Join(dir, "loads"), filepath.Join(dir, "library.so.1.2"), filepath.Join(t.TempDir(), "library.so.1.2")}
	link := filepath.Join(dir, "library.so.1")
	for _, argv := range [][]string{
		{cc, "-O2", "-shared", "-fPIC", "-DANSWER=1", "-Wl,-soname,library.so.1", "-o", l.library, "testdata/library.c"},
		{cc, "-O2", "-shared", "-fPIC", "-DANSWER=2", "-Wl,-soname,library.so.1", "-o", l.other, "testdata/library.c"},
		{"ln", "-s", filepath.Base(l.library), link},
		append([]string{cc, "-O2", "-o", l.program, "testdata/loads.c", link, "-Wl,-rpath,$ORIGIN"}, flags...),
	} {
		if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", argv, err, out)
		}
	}
	return l
}

// record runs the program with the other library in place of its own.
func (l loads) record(t *testing.T, env ...string) ran {
	t.Helper()
	r := recorderCmd{Library: map[string]string{filepath.Base(l.library): l.other}, prefix: append([]string{"env"}, env...)}
	x := r.run(t, l.program, "arg")
	// Nothing is planned for the program.
	before, why, ok := strings.Cut(x.stderr, "recorder: "+l.program+": libraries that it loads later are not traced: ")
	why, after, _ := strings.Cut(why, "\n")
	if !ok || why != "the program itself is not traced" && why != "its dynamic loader opens files in an unknown way" {
		t.Errorf("%q", x.stderr)
	}
	x.stderr = before + after
	return x
}

// A library that the loader opens is the one that is given for it, by every way that leads to it; the program and its
// constructors see nothing else of that.
func TestLibraries(t *testing.T) {
	for _, cc := range []string{"gcc", "musl-gcc"} {
		t.Run(cc, func(t *testing.T) {
			t.Parallel()
			l := buildLoads(t, cc)
			for _, tt := range []struct{ name, env, want string }{
				{"rpath", "A=a", "- answer 2 signals 0\n"},
				{"by two paths", "LD_PRELOAD=" + l.library, "- answer 2 signals 0\n"},
				{"by a library path", "LD_LIBRARY_PATH=" + filepath.Dir(l.library), "- answer 2 signals 0\n"},
				{"signals", "LIBRARY=signal", "signal answer 2 signals 5\n"},
			} {
				if cc == "musl-gcc" && tt.name == "by two paths" {
					continue // the recorder that gets the variable is not musl's
				}
				t.Run(tt.name, func(t *testing.T) {
					x := l.record(t, tt.env)
					want := tt.want + "maps " + l.other + "\ncopies 1, arg\n"
					if x.code != 7 || x.stdout != want {
						t.Errorf("status %d, %q, want %q: %s", x.code, x.stdout, want, x.stderr)
					}
					if !strings.Contains(x.stderr, "library.so") || strings.Contains(x.stderr, "recorder:") {
						t.Errorf("%q", x.stderr)
					}
				})
			}
		})
	}
}

// Constructors run before the program begins, and can do anything.
func TestLibraryConstructors(t *testing.T) {
	l := buildLoads(t, "gcc")
	for what, want := range map[string]struct {
		code   int
		stdout string
	}{
		// A child that goes on to main does not meet the breakpoint there; it ends with status 7, which the parent sees.
		"fork": {99, "child answer 2 signals 0\nmaps " + l.other + "\ncopies 1, arg\n"},
		// What it executes is another program, as far as libraries go.
		"exec": {7, "- answer 1 signals 0\nmaps " + l.library + "\ncopies 1, \n"},
		"exit": {33, ""},
		// A thread that loads something, which is not traced; more is loaded after it.
		"thread": {7, "thread answer 2 signals 0\nmaps " + l.other + "\ncopies 1, arg\n"},
		"kill":   {100 + int(unix.SIGTERM), ""},
	} {
		x := l.record(t, "LIBRARY="+what)
		if x.code != want.code || x.stdout != want.stdout || strings.Contains(x.stderr, "recorder:") {
			t.Errorf("%s: status %d, %q, want %d, %q: %s", what, x.code, x.stdout, want.code, want.stdout, x.stderr)
		}
	}
}

// A program that is stopped while its libraries are loaded stays stopped until somebody continues it.
func TestLibraryStopped(t *testing.T) {
	l := buildLoads(t, "gcc")
	r := recorderCmd{Library: map[string]string{filepath.Base(l.library): l.other}, prefix: []string{"env", "LIBRARY=stop"}}
	cmd := r.command(t, l.program, "arg")
	var out, errb strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errb
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	limit := time.Now().Add(time.Minute)
	for pid := 0; ; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(limit) {
			cmd.Process.Kill()
			t.Fatalf("not stopped: %q, %q", out.String(), errb.String())
		}
		if pid == 0 {
			if all := children(t, cmd.Process.Pid); len(all) > 0 {
				pid = all[0]
			}
			continue
		}
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err == nil && strings.Contains(string(b), ") T ") { // stopped, and not traced any more (t)
			unix.Kill(pid, unix.SIGCONT)
			break
		}
	}
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 7 {
		t.Errorf("%v: %q, %q", err, out.String(), errb.String())
	}
	if !strings.HasPrefix(out.String(), "stop answer 2 ") || !strings.Contains(errb.String(), "it was stopped by a signal") {
		t.Errorf("%q, %q", out.String(), errb.String())
	}
}

// A program with the privileges of its file is left alone with all of its libraries.
func TestLibrariesPrivileged(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: makes a program of another user")
	}
	const nobody = 65534
	l := buildLoads(t, "gcc")
	for dir := filepath.Dir(l.program); dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Chown(l.program, nobody, nobody), os.Chmod(l.program, 0o755|os.ModeSetuid)); err != nil {
		t.Fatal(err)
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(l.program, &fs); err != nil || fs.Flags&unix.ST_NOSUID != 0 {
		t.Skip("the temporary directory is mounted nosuid")
	}
	r := recorderCmd{Library: map[string]string{filepath.Base(l.library): l.other}}
	x := r.run(t, l.program, "arg")
	// $ORIGIN does not count for such a program: it may not find its library.
	if strings.Contains(x.stdout, "answer 2") || !strings.Contains(x.stderr, "libraries are not traced: it has the privileges of its file") {
		t.Errorf("status %d, %q: %s", x.code, x.stdout, x.stderr)
	}
}

// Where there is nothing to be watched, or not allowed, the program runs as it is, and a message says why.
func TestLibrariesUntraced(t *testing.T) {
	l := buildLoads(t, "gcc")
	static := fixture.CC(t, "testdata/answer", "-static")
	r := recorderCmd{Library: map[string]string{filepath.Base(l.library): l.other}}
	if x := r.run(t, static); !strings.Contains(x.stderr, "libraries are not traced: it has no dynamic loader") {
		t.Errorf("static: status %d: %s", x.code, x.stderr)
	}
	r.NoPtrace, r.Dir = true, ""
	x := r.run(t, l.program, "arg")
	if x.code != 7 || !strings.HasPrefix(x.stdout, "- answer 1 ") ||
		!strings.Contains(x.stderr, "libraries are not traced: ptrace is not to be used") {
		t.Errorf("no ptrace: status %d, %q: %s", x.code, x.stdout, x.stderr)
	}
}
