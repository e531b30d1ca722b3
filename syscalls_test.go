//go:build linux

package fentry_test

import (
	"context"
	"fmt"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fentry-dev/fentry"
	"github.com/fentry-dev/fentry/internal/testtool"
	"github.com/fentry-dev/fentry/patch"
	"github.com/fentry-dev/fentry/trace"
)

// caller makes system calls that nothing else in it makes, in all the ways that matter: from functions, threads,
// handlers inside others, forked children, and children that run in their parent's place.
const caller = `
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>
extern char **environ;
static volatile sig_atomic_t alarms;
static int fds[2];
__attribute__((noinline)) void handler(int sig) { getppid(); if (++alarms == 3) write(fds[1], "x", 1); }
__attribute__((noinline)) int outer(int n) { for (int i = 0; i < n; i++) getpgid(0); return n; }
static void *thread(void *arg) { for (int i = 0; i < 50; i++) sched_yield(); return arg; }
int main(int argc, char **argv)
{
	if (syscall(SYS_getuid) != getuid() || getpriority(99, 99) != -1 || errno != EINVAL)
		return 1;
	outer(3);
	pthread_t t[4];
	for (int i = 0; i < 4; i++)
		pthread_create(&t[i], 0, thread, 0);
	for (int i = 0; i < 4; i++)
		pthread_join(t[i], 0);

	/* one read, which three signals interrupt */
	char c;
	struct sigaction sa = { .sa_handler = handler, .sa_flags = SA_RESTART };
	struct itimerval every = { { 0, 3000 }, { 0, 3000 } }, never = { 0 };
	if (pipe(fds) || sigaction(SIGALRM, &sa, 0))
		return 2;
	setitimer(ITIMER_REAL, &every, 0);
	if (read(fds[0], &c, 1) != 1 || alarms < 3)
		return 3;
	setitimer(ITIMER_REAL, &never, 0);

	pid_t p = fork();
	if (p == 0) {
		getsid(0);
		_exit(5);
	}
	int status;
	waitpid(p, &status, 0);
	if (WEXITSTATUS(status) != 5)
		return 4;
	char *args[] = { "true", 0 };
	if ((p = vfork()) == 0) {
		execv("/bin/true", args);
		_exit(1);
	}
	waitpid(p, &status, 0);
	if (status || posix_spawn(&p, "/bin/true", 0, 0, args, environ))
		return 6;
	waitpid(p, &status, 0);
	return status;
}
`

// Numbers of the system calls that are counted (asm/unistd_64.h).
var counted = map[uint64]string{
	0: "read", 24: "sched_yield", 56: "clone", 57: "fork", 58: "vfork", 59: "execve", 61: "wait4", 102: "getuid",
	110: "getppid", 121: "getpgid", 124: "getsid", 140: "getpriority", 231: "exit_group", 435: "clone3",
}

// TestSyscallsOfProgram records the system calls of a static and of a dynamic program.
func TestSyscallsOfProgram(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("system calls are moved on x86-64")
	}
	for _, link := range []string{"-static", "-static-pie", "-rdynamic"} {
		prog := testtool.Compile(t, "caller", caller, "-O1", link)
		for _, o := range []patch.Options{{}, {NoFunctions: true}, {NoClock: true}} {
			t.Run(fmt.Sprintf("%s/functions %t, clock %t", link, !o.NoFunctions, !o.NoClock), func(t *testing.T) {
				opts := options(t)
				opts.Syscalls, opts.Plan, opts.Overhead = true, o, -1
				opts.NoInherit = true
				res, err := fentry.Run(context.Background(), exec.Command(prog), opts)
				if err != nil || res.Status.ExitStatus() != 0 || res.Lost != 0 {
					t.Fatalf("%+v, %v", res, err)
				}
				testSyscalls(t, opts.Dir, !o.NoFunctions)
			})
		}
	}
}

// testSyscalls checks what the program above has done, with its functions or without.
func testSyscalls(t *testing.T, dir string, functions bool) {
	tr, err := trace.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	have, inside := map[string]int{}, map[string]int{}
	open := map[*trace.Task][]uint64{}
	first := map[*trace.Task]bool{}
	err = tr.Walk(trace.WalkOptions{}, func(ev *trace.Event) error {
		number, known := ev.Func.Syscall()
		switch {
		case ev.Func.Image != trace.SyscallImage:
		case ev.Kind == trace.Entry && known:
			name := counted[number]
			have[name]++
			if name != "" && ev.Caller.ID != 0 && ev.Caller.Image != trace.SyscallImage {
				for i := len(open[ev.Task]); i > 0; i-- {
					name += " in " + counted[open[ev.Task][i-1]]
				}
				inside[name+" by "+tr.Name(ev.Caller)]++
			}
			open[ev.Task] = append(open[ev.Task], number)
		case ev.Kind == trace.Exit && ev.Flags&trace.FlagInherited == 0:
			n := len(open[ev.Task])
			switch {
			case n > 0:
				open[ev.Task] = open[ev.Task][:n-1]
			case first[ev.Task] || ev.Sys.Value != 0:
				t.Errorf("task %v: a system call ends with %d that has not begun", ev.Task, int64(ev.Sys.Value))
			}
			first[ev.Task] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	delete(have, "")
	if n := have["getppid"]; n < 3 || n > 20 {
		t.Errorf("%d calls of getppid", n)
	}
	if have["read"] < 1 {
		t.Error("no read")
	}
	delete(have, "getppid") // as many as there were alarms
	delete(have, "read")    // the dynamic loader reads, too
	want := map[string]int{
		"sched_yield": 200, "execve": 2, "wait4": 3, "getuid": 2, "getpgid": 3, "getsid": 1, "getpriority": 1,
		"exit_group": 2, "clone": have["clone"], "clone3": have["clone3"], "fork": have["fork"], "vfork": have["vfork"],
	}
	for name, n := range want {
		if n == 0 {
			delete(want, name)
		}
	}
	if have["clone"]+have["clone3"]+have["fork"]+have["vfork"] != 7 {
		t.Errorf("children: %v", have)
	}
	if d := cmp.Diff(want, have); d != "" {
		t.Error(d)
	}
	for task, calls := range open {
		for _, nr := range calls {
			if name := counted[nr]; name != "exit_group" && name != "execve" && nr != 60 {
				t.Errorf("task %v: %s (%d) did not end", task, name, nr)
			}
		}
	}
	if !functions {
		return
	}
	nested := 0
	for what, n := range inside {
		if strings.HasPrefix(what, "getppid in read by ") {
			nested += n
		}
	}
	if nested < 3 {
		t.Errorf("handlers are not inside what they have interrupted: %v", inside)
	}
}

// pointing makes system calls whose arguments point to memory of all kinds, by descriptors that nothing else uses.
const pointing = `
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>
int main(void)
{
	char *p = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), b[100];
	struct timespec t = { 0, 12345 };
	struct sockaddr_un a = { AF_UNIX, "/none" };
	struct pollfd q = { .fd = 700, .events = POLLIN };
	int fds[2];
	struct stat st;
	munmap(p + 4096, 4096);
	syscall(SYS_openat, 700, "some/path", 0);
	syscall(SYS_openat, 700, 8, 0);                                   /* no pointer */
	syscall(SYS_openat, 700, p + 8192 - 4, 0);                        /* nothing there */
	syscall(SYS_openat, 700, strcpy(p + 4096 - 4, "end"), 0);         /* ends with its page */
	syscall(SYS_openat, 700, memcpy(p + 4096 - 4, "open", 4), 0);     /* does not */
	memset(p, 'x', 4000);
	syscall(SYS_openat, 700, p, 0);
	syscall(SYS_pipe, fds);
	syscall(SYS_write, fds[1], "0123456789012345678901234567890123456789", 40);
	syscall(SYS_read, fds[0], b, 5);
	syscall(SYS_read, 700, b, 5);
	syscall(SYS_connect, 700, &a, 8);
	syscall(SYS_poll, &q, 1, 0);
	syscall(SYS_poll, &q, 1u << 31, 0);
	syscall(SYS_fstat, fds[0], &st);
	struct iovec v[2] = { { "first", 5 }, { "and a second that is longer than what is shown", 46 } };
	char *args[] = { "program", "argument", 0 }, *none[] = { 0 };
	syscall(SYS_writev, fds[1], v, 2);
	syscall(SYS_execve, "/no/program", args, none);
	syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &t, 0);
	return 0;
}
`

// TestSyscallData: what arguments point to is recorded, as far as there is memory, and never more than that.
func TestSyscallData(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("system calls are moved on x86-64")
	}
	prog := testtool.Compile(t, "pointing", pointing, "-O1", "-w", "-static")
	opts := options(t)
	opts.Syscalls, opts.Plan = true, patch.Options{NoFunctions: true}
	res, err := fentry.Run(context.Background(), exec.Command(prog), opts)
	if err != nil || res.Status.ExitStatus() != 0 {
		t.Fatalf("%+v, %v", res, err)
	}
	tr, err := trace.Open(opts.Dir)
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	var have []string
	var nr uint64
	begun := false
	err = tr.Walk(trace.WalkOptions{}, func(ev *trace.Event) error {
		if ev.Sys == nil {
			return nil
		}
		kind := "sys_exit"
		if ev.Kind == trace.Entry {
			kind, nr = "sys_enter", ev.Sys.Value
			begun = begun || nr == 257 && ev.Sys.Args[0] == 700
		}
		if !begun || nr == 231 {
			return nil
		}
		line := fmt.Sprintf("%s %d:", kind, nr)
		for _, d := range ev.Sys.Data {
			text := fmt.Sprintf("%q", d.Bytes)
			pointers := nr == 20 && d.Asked == 32 && d.Flags == 0 || nr == 59 && d.Asked == 128
			if len(d.Bytes) > 40 || pointers {
				text = fmt.Sprintf("%d bytes", len(d.Bytes))
			}
			line += fmt.Sprintf(" %d %d/%d %s", d.Arg, d.Flags, d.Asked, text)
		}
		have = append(have, line)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	const cut, unreadable, str = trace.DataCut, trace.DataUnreadable, trace.DataString
	want := []string{
		fmt.Sprintf(`sys_enter 257: 1 %d/1016 "some/path"`, str), "sys_exit 257:",
		"sys_enter 257:", "sys_exit 257:",
		fmt.Sprintf(`sys_enter 257: 1 %d/1016 ""`, str|unreadable), "sys_exit 257:",
		fmt.Sprintf(`sys_enter 257: 1 %d/1016 "end"`, str), "sys_exit 257:",
		fmt.Sprintf(`sys_enter 257: 1 %d/1016 "open"`, str|unreadable), "sys_exit 257:",
		fmt.Sprintf(`sys_enter 257: 1 %d/1016 1016 bytes`, str|cut), "sys_exit 257:",
		"sys_enter 22:", `sys_exit 22: 0 0/8 "\x03\x00\x00\x00\x04\x00\x00\x00"`,
		fmt.Sprintf(`sys_enter 1: 1 %d/32 "01234567890123456789012345678901"`, cut), "sys_exit 1:",
		"sys_enter 0:", `sys_exit 0: 1 0/5 "01234"`,
		"sys_enter 0:", "sys_exit 0:",
		`sys_enter 42: 1 0/8 "\x01\x00/none\x00"`, "sys_exit 42:",
		`sys_enter 7: 0 0/8 "\xbc\x02\x00\x00\x01\x00\x00\x00"`, `sys_exit 7: 0 0/8 "\xbc\x02\x00\x00\x01\x00 \x00"`,
		fmt.Sprintf(`sys_enter 7: 0 %d/256 256 bytes`, cut), "sys_exit 7:",
		"sys_enter 5:", "sys_exit 5: 1 0/144 144 bytes",
		fmt.Sprintf(`sys_enter 20: 1 0/32 32 bytes 1 0/5 "first" 1 %d/32 "and a second that is longer than"`, cut), "sys_exit 20:",
		fmt.Sprintf(`sys_enter 59: 0 %d/1016 "/no/program" 1 0/128 128 bytes 1 %d/33 "program" 1 %d/33 "argument" 2 0/128 128 bytes`,
			str, str, str), "sys_exit 59:",
		`sys_enter 230: 2 0/16 "\x00\x00\x00\x00\x00\x00\x00\x0090\x00\x00\x00\x00\x00\x00"`, "sys_exit 230:",
	}
	if d := cmp.Diff(want, have); d != "" {
		t.Error(d)
	}
}

// forbidding forbids itself system calls that only the tracer makes, or gives itself a gs base, and goes on.
const forbidding = `
#define _GNU_SOURCE
#include <asm/prctl.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
static void *thread(void *arg) { getpgid(0); return arg; }
int main(int argc, char **argv)
{
	static unsigned long block[64] = { 4711 };
	unsigned long word = 4711;
	pthread_t t;
	getpgid(0);
	if (!strcmp(argv[1], "filter")) {
		struct sock_filter f[] = {
			BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
			BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 0, 1),
			BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
			BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
		};
		struct sock_fprog p = { 4, f };
		if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &p))
			return 1;
	} else if (!strcmp(argv[1], "strict")) {
		prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT, 0, 0, 0);
		write(1, "strict\n", 7);
		syscall(SYS_exit, 0);
	} else if (syscall(SYS_arch_prctl, ARCH_SET_GS, block)) {
		return 2;
	}
	pthread_create(&t, 0, thread, 0);
	pthread_join(t, 0);
	close(open("/etc/passwd", O_RDONLY));
	getpgid(0);
	if (!strcmp(argv[1], "gs"))
		__asm__ volatile("mov %%gs:0, %0" : "=r"(word));
	return word != 4711;
}
`

// TestSyscallsForbidden: programs that filter their system calls, or use the register that the tracer uses, do what they
// do untraced, and their system calls are recorded as far as they allow it.
func TestSyscallsForbidden(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("system calls are moved on x86-64")
	}
	prog := testtool.Compile(t, "forbidding", forbidding, "-O1", "-static")
	for what, want := range map[string]int{"filter": 3, "gs": 3, "strict": 1} {
		for _, functions := range []bool{true, false} {
			if what == "strict" && functions {
				continue // which need more than such a program may do, without system calls as well
			}
			opts := options(t)
			opts.Syscalls, opts.Plan.NoFunctions, opts.Overhead = true, !functions, -1
			res, err := fentry.Run(context.Background(), exec.Command(prog, what), opts)
			if err != nil || res.Status.ExitStatus() != 0 {
				t.Errorf("%s: %+v, %v", what, res, err)
				continue
			}
			tr, err := trace.Open(opts.Dir)
			if err != nil {
				t.Fatal(err)
			}
			calls := 0
			err = tr.Walk(trace.WalkOptions{}, func(ev *trace.Event) error {
				if ev.Kind == trace.Entry && ev.Func == trace.SyscallFunc(121) {
					calls++
				}
				return nil
			})
			tr.Close()
			if calls != want || err != nil {
				t.Errorf("%s, functions %t: %d calls of getpgid, want %d, %v", what, functions, calls, want, err)
			}
		}
	}
}
