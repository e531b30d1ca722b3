package e2e

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fentry-dev/fentry/internal/runfile"
	"github.com/fentry-dev/fentry/internal/testtool"
)

// executes compiles the program that executes itself. name is what it is called.
func executes(t *testing.T, compiler string, flags ...string) (dir, prog string) {
	t.Helper()
	if runtime.GOARCH != "amd64" {
		t.Skip("programs that are executed are followed on x86-64")
	}
	needFentry(t)
	testtool.Need(t, compiler)
	dir = t.TempDir()
	prog = filepath.Join(dir, "executes")
	args := append([]string{"-O1", "-fpatchable-function-entry=5", "-o", prog, "testdata/following/executes.c", "-lpthread"}, flags...)
	if out, err := exec.Command(compiler, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", compiler, err, out)
	}
	return dir, prog
}

// following compiles a program of testdata/following, about programs that are executed.
func following(t *testing.T, name string) (prog string) {
	t.Helper()
	if runtime.GOARCH != "amd64" {
		t.Skip("programs that are executed are followed on x86-64")
	}
	needFentry(t)
	prog = filepath.Join(t.TempDir(), name)
	source := filepath.Join("testdata/following", name+".c")
	run(t, command{argv: []string{testtool.Path(t, "gcc"), "-O1", "-pthread", "-o", prog, source}}).mustSucceed(t)
	return prog
}

// children is how many programs began, by the trace.
func children(t *testing.T, data string) int {
	t.Helper()
	return calls(t, data, "child")
}

// calls is how often a function was called.
func calls(t *testing.T, data, name string) int {
	t.Helper()
	n := 0
	for _, row := range report(t, data) {
		if row.Name == name {
			n += int(row.Calls)
		}
	}
	return n
}

// TestExecutes follows a program in every way of executing another one: all behave as untraced, nobody traces them when
// they have begun, and all are in the trace, each with its arguments.
func TestExecutes(t *testing.T) {
	for _, tt := range []struct {
		name, compiler string
		flags          []string
		taken          bool // something else is where the page for jumps was to be
		want           int  // programs that call child
	}{
		{"glibc", "gcc", nil, false, 12},
		{"glibc static", "gcc", []string{"-static"}, false, 12},
		{"musl", "musl-gcc", nil, false, 10},
		{"musl static", "musl-gcc", []string{"-static"}, false, 10},
		{"no page", "gcc", nil, true, 12},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir, prog := executes(t, tt.compiler, tt.flags...)
			env := []string{"PATH=" + dir + ":/usr/bin:/bin"}
			if tt.taken {
				lib := filepath.Join(dir, "takenpage.so")
				run(t, command{argv: []string{"gcc", "-shared", "-fPIC", "-o", lib, "testdata/following/takenpage.c"}}).mustSucceed(t)
				env = append(env, "LD_PRELOAD="+lib)
			}
			data := filepath.Join(dir, "data")
			want := run(t, command{argv: []string{prog}, env: env})
			got := run(t, command{argv: []string{fentry, "record", "-o", data, prog}, env: env})
			got.stderr = withoutSummary(got.stderr)
			sameBehaviour(t, want, got)
			if n := children(t, data); n != tt.want {
				t.Errorf("%d programs called child, want %d", n, tt.want)
			}
			info := run(t, command{argv: []string{fentry, "info", "-i", data}})
			for _, way := range []string{"execv 3", "vfork 3", "execvp 3", "posix_spawnp 3", "last 9"} {
				if !strings.Contains(info.stdout, " child "+way+"\n") {
					t.Errorf("no process has the arguments %q:\n%s%s", way, info.stdout, info.stderr)
				}
			}
		})
	}
}

// namespaces are how a program is started in a PID namespace, with a /proc of its own or without.
var namespaces = [][]string{{"unshare", "-rfp", "--mount-proc"}, {"unshare", "-rfp"}}

func needNamespaces(t *testing.T) {
	t.Helper()
	testtool.Need(t, "unshare")
	if r := run(t, command{argv: append(namespaces[0], "true")}); r.status != "exit 0" {
		t.Skipf("no PID namespaces here: unshare: %s %s", r.status, r.stderr)
	}
}

// TestExecutesNamespace does the same in PID namespaces, where the recorder is not seen, with the C library traced or not
// and its system calls.
func TestExecutesNamespace(t *testing.T) {
	needNamespaces(t)
	dir, prog := executes(t, "gcc")
	path := []string{"PATH=" + dir + ":/usr/bin:/bin"}
	for _, ns := range namespaces {
		for _, options := range [][]string{nil, {"-L", "libc", "--syscalls"}} {
			t.Run(strings.Join(slices.Concat(ns, options), " "), func(t *testing.T) {
				data := filepath.Join(t.TempDir(), "data")
				inside := append(slices.Clone(ns), prog)
				want := run(t, command{argv: inside, env: path})
				argv := slices.Concat([]string{fentry, "record", "--overhead", "no", "-o", data}, options, inside)
				got := run(t, command{argv: argv, env: path})
				got.stderr = withoutSummary(got.stderr)
				sameBehaviour(t, want, got)
				if n := children(t, data); n != 12 {
					t.Errorf("%d programs called child, want 12", n)
				}
				if n := calls(t, data, "fopen"); options != nil && n < 12 {
					t.Errorf("%d calls of the C library's fopen, want one of each program", n)
				}
			})
		}
	}
}

// TestExecutesNamespaces: processes of several namespaces have the same ids, and each is the one that it is.
func TestExecutesNamespaces(t *testing.T) {
	needNamespaces(t)
	dir, prog := executes(t, "gcc")
	data := filepath.Join(dir, "data")
	const several, programs = 4, 20
	script := fmt.Sprintf("for i in $(seq %d); do %s %s storm %d & done; wait",
		several, strings.Join(namespaces[0], " "), prog, programs)
	r := run(t, command{argv: []string{fentry, "record", "-o", data, "sh", "-c", script}})
	r.mustSucceed(t)
	if n := strings.Count(r.stdout, "storm:"); n != several*programs {
		t.Errorf("%d programs ran, want %d: %s%s", n, several*programs, clip(r.stdout), r.stderr)
	}
	if n := children(t, data); n != several*programs {
		t.Errorf("%d programs called child, want %d: %s", n, several*programs, r.stderr)
	}
}

// TestExecutesStorm executes many programs, one after the other, while a timer interrupts, and loses none.
func TestExecutesStorm(t *testing.T) {
	n := 200
	if os.Getenv("FENTRY_WIDE") == "1" {
		n = 1000
	}
	dir, prog := executes(t, "gcc")
	data := filepath.Join(dir, "data")
	r := run(t, command{argv: []string{fentry, "record", "-o", data, prog, "storm", fmt.Sprint(n)}})
	r.mustSucceed(t)
	if !strings.Contains(r.stdout, "0 failed, interrupted 1\n") || strings.Count(r.stdout, "storm:") != n {
		t.Errorf("stdout %s, stderr %s", clip(r.stdout), r.stderr)
	}
	if got := children(t, data); got != n {
		t.Errorf("%d programs called child, want %d", got, n)
	}
}

// TestExecutesAlone: a recorder that is killed, or stopped, while programs that it traces execute others keeps none of
// them from doing so. One that goes on later says how many are not traced; of one that is soon back all are.
func TestExecutesAlone(t *testing.T) {
	const programs = 5
	for _, tt := range []struct {
		name    string
		inside  bool // a PID namespace, from where the recorder is not seen
		sig     syscall.Signal
		back    time.Duration // until a stopped recorder goes on; 0: when the programs have ended
		summary string
	}{
		{"killed", false, syscall.SIGKILL, 0, ""},
		{"killed, namespace", true, syscall.SIGKILL, 0, ""},
		{"stopped", false, syscall.SIGSTOP, 0, fmt.Sprintf("not traced: what was executed at %d requests", programs)},
		{"stopped, namespace", true, syscall.SIGSTOP, 0, fmt.Sprintf("not traced: what was executed at %d requests", programs)},
		{"late", false, syscall.SIGSTOP, 500 * time.Millisecond, " 0 lost"},
		{"late, namespace", true, syscall.SIGSTOP, 500 * time.Millisecond, " 0 lost"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir, prog := executes(t, "gcc")
			data := filepath.Join(dir, "data")
			argv := []string{"record", "-o", data, prog, "slow", fmt.Sprint(programs)}
			if tt.inside {
				needNamespaces(t)
				argv = slices.Insert(argv, 3, namespaces[0]...)
			}
			cmd := exec.Command(fentry, argv...)
			in, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			pipe, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer pipe.Close()
			var stderr strings.Builder
			cmd.Stdout, cmd.Stderr = w, &stderr
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			w.Close()
			defer func() {
				_ = cmd.Process.Kill()
				_ = cmd.Wait()
			}()
			out := bufio.NewReader(pipe)
			if line, err := out.ReadString('\n'); line != "ready\n" {
				t.Fatalf("%q, %v", line, err)
			}
			if err := cmd.Process.Signal(tt.sig); err != nil {
				t.Fatal(err)
			}
			if tt.sig == syscall.SIGKILL {
				_, _ = cmd.Process.Wait()
			} else {
				allStopped(t, cmd.Process.Pid)
			}
			if _, err := io.WriteString(in, "\n"); err != nil {
				t.Fatal(err)
			}
			if tt.back != 0 {
				time.Sleep(tt.back)
				_ = cmd.Process.Signal(syscall.SIGCONT)
			}
			stuck := time.AfterFunc(hangs, func() { pipe.Close() })
			var rest string
			for err == nil && !strings.HasSuffix(rest, "done\n") {
				var line string
				line, err = out.ReadString('\n')
				rest += line
			}
			if !stuck.Stop() || err != nil || strings.Count(rest, "slow:") != programs {
				t.Errorf("%q, %v", rest, err)
			}
			if tt.sig == syscall.SIGKILL {
				return
			}
			_ = cmd.Process.Signal(syscall.SIGCONT)
			err = cmd.Wait()
			if err != nil || !strings.Contains(stderr.String(), tt.summary) {
				t.Errorf("%v, %q", err, stderr.String())
			}
			if n := children(t, data); tt.back != 0 && n != programs {
				t.Errorf("%d programs in the trace, want %d", n, programs)
			}
		})
	}
}

// allStopped waits until all threads of a process have stopped: one that has not can begin to trace another process.
func allStopped(t *testing.T, pid int) {
	t.Helper()
	for deadline := time.Now().Add(hangs); ; time.Sleep(time.Millisecond) {
		stats, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		if err != nil || len(stats) == 0 || time.Now().After(deadline) {
			t.Fatalf("the recorder does not stop: %v", err)
		}
		if !slices.ContainsFunc(stats, func(file string) bool {
			b, err := os.ReadFile(file)
			_, state, _ := strings.Cut(string(b), ") ")
			return err == nil && !strings.HasPrefix(state, "T")
		}) {
			return
		}
	}
}

// TestExecutesScript: a script's interpreter is traced, and so is what it executes; with --no-inherit nothing is that was
// not prepared, and patterns choose programs.
func TestExecutesScript(t *testing.T) {
	dir, prog := executes(t, "gcc")
	for name, text := range map[string]string{"script": "#!/bin/sh\n", "nameless": ""} {
		text += prog + " child one 0\n" + prog + " child two 0\nexit 5\n"
		if err := runfile.WriteFile(filepath.Join(dir, name), []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		name string
		argv []string
		want int
		says string // "": no program that was executed is named
	}{
		{"script", []string{"./script"}, 2, "functions traced, executed 2 times"},
		{"script without an interpreter", []string{"./nameless"}, 2, "functions traced, executed 2 times"},
		{"shell", []string{"sh", "script"}, 2, "functions traced, executed 2 times"},
		{"patterns", []string{"-F", "executes:child", "sh", "script"}, 2, "executes: 1 function traced, executed 2 times"},
		{"another program's pattern", []string{"-F", "other:child", "sh", "script"}, 0, "traceable functions is selected"},
		{"only that", []string{"--no-inherit", "sh", "script"}, 0, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			data := filepath.Join(t.TempDir(), "data")
			argv := append([]string{fentry, "record", "-v", "-o", data}, tt.argv...)
			r := run(t, command{dir: dir, argv: argv})
			if r.status != "exit 5" || strings.Count(r.stdout, "\n") != 2 {
				t.Errorf("%s: %s%s", r.status, r.stdout, r.stderr)
			}
			if got := strings.Contains(r.stderr, "/executes: "); got != (tt.says != "") || !strings.Contains(r.stderr, tt.says) {
				t.Errorf("stderr %s, want %q in it", r.stderr, tt.says)
			}
			if tt.want == 0 && tt.says != "" {
				return // no trace
			}
			if n := children(t, data); n != tt.want {
				t.Errorf("%d programs called child, want %d", n, tt.want)
			}
		})
	}
}

// TestExecutesPrivileged: a set-ID program keeps the privileges of its file, and is not traced.
func TestExecutesPrivileged(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: makes a program of another user")
	}
	const nobody = 65534
	dir, prog := executes(t, "gcc")
	openToAll(t, dir)
	other := filepath.Join(dir, "other")
	b, err := os.ReadFile(prog)
	if err != nil {
		t.Fatal(err)
	}
	if err := runfile.WriteFile(other, b); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(other, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(other, 0o755|os.ModeSetuid); err != nil {
		t.Fatal(err)
	}
	if r := run(t, command{argv: []string{prog, "user", other}}); r.stdout != fmt.Sprintln(nobody) {
		t.Skipf("set-ID programs do not work here: %q", r.stdout) // mounted nosuid
	}
	r := run(t, command{argv: []string{fentry, "record", "-v", "-o", filepath.Join(dir, "data"), prog, "user", other}})
	if r.stdout != fmt.Sprintln(nobody) || !strings.Contains(r.stderr, "other: not traced: it has the privileges of its file") {
		t.Errorf("%q: %s", r.stdout, r.stderr)
	}
}

// TestExecutesOther: who executes a program as another user does not let that see what is recorded.
func TestExecutesOther(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: executes a program as another user")
	}
	id := needProgram(t, "id")
	data := filepath.Join(t.TempDir(), "data")
	r := run(t, command{argv: []string{fentry, "record", "-v", "-o", data, "setpriv", "--reuid", "65534", "--clear-groups", id, "-u"}})
	if want := id + ": not traced: it is another user's"; r.stdout != "65534\n" || r.status != "exit 0" || !strings.Contains(r.stderr, want) {
		t.Errorf("%s %q: stderr %s, want %q in it", r.status, r.stdout, r.stderr, want)
	}
	if out := run(t, command{argv: []string{fentry, "info", data}}).stdout; strings.Contains(out, id+"\n") {
		t.Errorf("it has been traced:\n%s", out)
	}
}

// openToAll lets other users come to a directory of the test's.
func openToAll(t *testing.T, dir string) {
	t.Helper()
	for d := dir; d != os.TempDir() && d != "/"; d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
}
