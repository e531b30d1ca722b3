package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/internal/runfile"
	"github.com/fentry-dev/fentry/internal/testtool"
	"github.com/fentry-dev/fentry/trace"
)

// blocked is stopped by a signal while it waits in the kernel, on a thread, too: the thread has the signal come in a second,
// when the first one sleeps. A debugger takes the signal; when the thread has waited it wakes the first one by another.
const blocked = `
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>
static pthread_t first;
static volatile int sleeps;
static void woken(int sig) { (void)sig; }
__attribute__((noinline)) static int in_poll(void) { return poll(0, 0, 3000) + 1; }
__attribute__((noinline)) static int in_sleep(void) { struct timespec t = { 600, 0 }; sleeps = 1; return nanosleep(&t, 0) + 3; }
__attribute__((noinline)) static int last(void) { return getpgid(0) > 0 && getppid() > 0 ? 77 : 78; }
__attribute__((noinline)) static int steps(void) { return getpgid(0) > 0 && getppid() > 0; }
/* asleep says whether the first thread waits in the kernel, behind the name in /proc/PID/task/TID/stat. */
static int asleep(void)
{
	char path[64], state = 0;
	snprintf(path, sizeof path, "/proc/self/task/%d/stat", (int)getpid());
	FILE *f = fopen(path, "r");
	if (f && fscanf(f, "%*d (%*[^)]) %c", &state) != 1)
		state = 0;
	if (f)
		fclose(f);
	return sleeps && state == 'S';
}
static void *thread(void *arg)
{
	while (!asleep())
		usleep(1000);
	alarm(1);
	int n = in_poll();
	pthread_kill(first, SIGUSR1);
	return n ? arg : 0;
}
int main(void)
{
	pthread_t t;
	first = pthread_self();
	signal(SIGUSR1, woken);
	pthread_create(&t, 0, thread, 0);
	int n = in_sleep();
	pthread_join(t, 0);
	return last() + steps() + n - 80;
}
`

// TestDebuggerSyscalls: gdb shows the same frames of threads that wait in the kernel as in the original, and steps and
// finishes through system calls that have been moved.
func TestDebuggerSyscalls(t *testing.T) {
	t.Parallel()
	if runtime.GOARCH != "amd64" {
		t.Skip("system calls are moved on x86-64")
	}
	testtool.Need(t, "gdb", "gcc")
	needFentry(t)
	dir := t.TempDir()
	src, prog := filepath.Join(dir, "blocked.c"), filepath.Join(dir, "blocked")
	if err := os.WriteFile(src, []byte(blocked), 0o666); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("gcc", "-g", "-O1", "-static", "-o", prog, src).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	commands := []string{"handle SIGALRM stop nopass", "handle SIGUSR1 nostop noprint pass", "break last", "break steps", "run", "printf \"=1\\n\"", "thread apply all bt",
		"continue", "printf \"=2\\n\"", "finish", "continue", "printf \"=3\\n\"", "stepi 60", "stepi 60", "bt", "continue"}
	session := func(program string) (parts []string) {
		parts = strings.Split(gdb(t, dir, program, commands...), "\n=")
		if len(parts) != 4 {
			t.Fatalf("%s: gdb stopped %d times, want 3\n%s", filepath.Base(program), len(parts)-1, clip(strings.Join(parts, "\n")))
		}
		return parts
	}
	names := func(text string) (out []string) {
		for _, m := range gdbFrame.FindAllStringSubmatch(text, -1) {
			// A function of the C library has several names, of which gdb shows any; what is below main it may show or not.
			if name := strings.TrimPrefix(strings.TrimPrefix(m[1], "__libc_"), "__"); name != "_start" && !strings.HasPrefix(name, "start_main") && !strings.HasPrefix(name, "start_call_main") {
				out = append(out, name)
			}
		}
		return out
	}
	original := session(prog)
	want := names(original[1])
	for _, name := range []string{"in_poll", "in_sleep", "main"} {
		if !slices.Contains(want, name) {
			t.Fatalf("gdb shows %v\n%s", want, clip(original[1]))
		}
	}
	for _, options := range [][]string{{"--syscalls", "-F", "none"}, {"--syscalls", "-F", "in_*", "-F", "main"}} {
		patched := filepath.Join(dir, "patched")
		patchFile(t, prog, patched, options)
		have := session(patched)
		if got := names(have[1]); !slices.Equal(got, want) {
			t.Errorf("%v: gdb shows %v, want %v\n%s", options, got, want, clip(have[1]))
		}
		if !strings.Contains(have[2], "Value returned is $1 = 77") {
			t.Errorf("%v: gdb has finished with\n%s", options, clip(have[2]))
		}
		if !slices.Contains(names(have[3]), "main") || !strings.Contains(have[3], "exited normally") {
			t.Errorf("%v: gdb has stepped to\n%s", options, clip(have[3]))
		}
	}
}

// TestSyscallCounts compares the system calls of installed programs, number by number, with strace's.
func TestSyscallCounts(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("system calls are moved on x86-64")
	}
	testtool.Need(t, "strace", "gcc", "musl-gcc")
	needFentry(t)
	dir := t.TempDir()
	src := filepath.Join(dir, "a.c")
	text := "#include <stdio.h>\n#include <stdlib.h>\nint main(void) { FILE *f = fopen(\"/etc/passwd\", \"r\"); puts(f ? \"yes\" : \"no\"); return system(\"exit 3\") != 0x300; }\n"
	if err := os.WriteFile(src, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	build := func(cc, link, out string) string {
		out = filepath.Join(dir, out)
		if text, err := exec.Command(cc, "-O1", link, "-o", out, src).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		return out
	}
	numbers := syscallNumbers(t)
	for _, argv := range [][]string{
		{build("gcc", "-static", "glibc-static")}, {build("gcc", "-rdynamic", "glibc")},
		{build("musl-gcc", "-static", "musl-static")},
		{"ls", "-l", "/"}, {"tar", "cf", "/dev/null", "/etc/apt"}, {"git", "--version"}, {"perl", "-e", "print `echo 1`"},
		{"/usr/bin/python3", "-S", "-c", "import json"}, {"gcc", "-c", src, "-o", filepath.Join(dir, "a.o")},
		{"make", "-s", "-C", suite(t), "check"}, {"node", "-e", "1"}, {"java", "-version"},
		{"go", "list", "-deps", "std"},
	} {
		goProgram := argv[0] == "go"
		large := argv[0] == "node" || argv[0] == "java"
		if large && !testtool.Wide() {
			continue
		}
		t.Run(filepath.Base(argv[0]), func(t *testing.T) {
			path, err := exec.LookPath(argv[0])
			if err != nil {
				t.Skipf("%s is not installed", argv[0])
			}
			argv[0] = path
			if goProgram {
				run(t, command{dir: dir, argv: argv}).mustSucceed(t) // its cache is made
			}
			data := filepath.Join(t.TempDir(), "data")
			r := run(t, command{dir: dir, argv: append([]string{fentry, "record", "--syscalls", "-F", "none", "-o", data}, argv...)})
			r.mustSucceed(t)
			have := recordedSyscalls(t, data, numbers)
			os.Remove(filepath.Join(dir, "a.o")) // an assembler asks for it, and removes it
			want := straced(t, dir, argv)
			want["execve"]-- // the first one, by which the program begins
			for name := range want {
				less, more := 0, 0
				switch name {
				case "mmap", "mprotect": // a patched library has one segment more
					more = 4 * (1 + want["execve"])
				case "futex", "brk": // these depend on addresses and on when threads run
					less, more = 8, 8
				case "read": // of pipes that wake threads
					if goProgram {
						less, more = 20, 20
					}
				case "getrandom": // mkstemp asks again for one in 23 of the numbers that it gets
					less, more = 2, 2
				}
				if goProgram { // two goroutines may want the same directory at once: strace's own numbers differ by as much
					less, more = less+4+want[name]/100, more+4+want[name]/100
				}
				if large { // when threads run and code is compiled, and what is done by the clock
					less, more = less+4+want[name]/5, more+4+want[name]/5
				}
				if large && name == "futex" {
					less, more = want[name], want[name]
				}
				if goProgram && slices.Contains(goScheduled, name) {
					continue
				}
				if d := have[name] - want[name]; d < -less || d > more {
					t.Errorf("%s: %d, strace has %d", name, have[name], want[name])
				}
			}
			for name := range have {
				if want[name] == 0 && have[name] > 0 && name != "execve" && !large && !(goProgram && slices.Contains(goScheduled, name)) {
					t.Errorf("%s: %d, strace has none", name, have[name])
				}
			}
		})
	}
}

// goScheduled are the system calls of Go programs that depend on when threads run, and for how long, or that are left where
// they are.
var goScheduled = []string{"futex", "nanosleep", "epoll_pwait", "sched_yield", "getpid", "tgkill", "madvise", "mmap", "munmap",
	"clone", "gettid", "rt_sigprocmask", "sigaltstack", "sched_getaffinity", "pread64", "arch_prctl", "exit", "write", "epoll_ctl"}

// suite makes a directory with tests that make runs: by scripts that run programs, which run others.
func suite(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"Makefile": "check:\n\tfor n in 1 2 3; do ./runner $$n || exit 1; done\n\t$(MAKE) -s inner\ninner:\n\t./runner 4\n",
		"runner":   "#!/bin/sh\nout=$(./case $1 | sed s/x/y/)\ntest \"$out\" = \"y $1\" && env true\n",
		"case":     "#!/bin/sh\nexec perl -e 'print \"x $ARGV[0]\\n\"' $1\n",
	} {
		if err := runfile.WriteFile(filepath.Join(dir, name), []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// syscallNumbers are the names of system calls by their numbers, from the kernel's header.
func syscallNumbers(t *testing.T) map[uint64]string {
	t.Helper()
	text, err := exec.Command("gcc", "-E", "-dM", "-include", "sys/syscall.h", "-x", "c", os.DevNull).Output()
	if err != nil {
		t.Fatal(err)
	}
	out := map[uint64]string{}
	for _, m := range regexp.MustCompile(`(?m)^#define __NR_(\w+) (\d+)$`).FindAllStringSubmatch(string(text), -1) {
		n, err := strconv.ParseUint(m[2], 10, 32)
		if err != nil {
			t.Fatal(err)
		}
		out[n] = m[1]
	}
	return out
}

// recordedSyscalls are the system calls in a trace, by name.
func recordedSyscalls(t *testing.T, dir string, numbers map[uint64]string) map[string]int {
	t.Helper()
	tr, err := trace.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	out := map[string]int{}
	err = tr.Walk(trace.WalkOptions{}, func(ev *trace.Event) error {
		if number, ok := ev.Func.Syscall(); ok && ev.Kind == trace.Entry {
			out[numbers[number]]++
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// straced are the system calls of a command and of all that it starts, by name.
func straced(t *testing.T, dir string, argv []string) map[string]int {
	t.Helper()
	log := filepath.Join(t.TempDir(), "strace")
	run(t, command{dir: dir, argv: append([]string{"strace", "-f", "-qq", "-o", log}, argv...)}).mustSucceed(t)
	return stracedLog(t, log)
}

// stracedLog are those that a log of strace has.
func stracedLog(t *testing.T, log string) map[string]int {
	t.Helper()
	b, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]int{}
	for _, m := range regexp.MustCompile(`(?m)^\d+ +(\w+)\(`).FindAllStringSubmatch(string(b), -1) {
		if m[1] != "rt_sigreturn" && m[1] != "restart_syscall" {
			out[m[1]]++
		}
	}
	return out
}
