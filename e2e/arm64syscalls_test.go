package e2e

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/internal/debs"
	"github.com/fentry-dev/fentry/internal/syscalls"
	"github.com/fentry-dev/fentry/trace"
)

// callingARM64 makes system calls from functions, threads, forked children, and children that run in their parent's
// place.
const callingARM64 = `
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
static void *thread(void *arg) { for (int i = 0; i < 50; i++) sched_yield(); return arg; }
__attribute__((noinline)) int outer(int n) { for (int i = 0; i < n; i++) getpgid(0); return n; }
int main(void)
{
	char b[100];
	int fd = open("/etc/passwd", O_RDONLY), status;
	if (syscall(SYS_getuid) != getuid() || read(fd, b, sizeof b) != sizeof b || close(fd) || getpriority(99, 99) != -1)
		return 1;
	outer(3);
	pthread_t t[3];
	for (int i = 0; i < 3; i++)
		pthread_create(&t[i], 0, thread, 0);
	for (int i = 0; i < 3; i++)
		pthread_join(t[i], 0);
	pid_t p = fork();
	if (!p) {
		getsid(0);
		_exit(5);
	}
	waitpid(p, &status, 0);
	if (WEXITSTATUS(status) != 5)
		return 2;
	if (!(p = vfork())) {
		getsid(0);
		_exit(6);
	}
	waitpid(p, &status, 0);
	if (WEXITSTATUS(status) != 6)
		return 3;
	puts("done");
	return 0;
}
`

// TestSyscallsARM64 compares the system calls of programs, by name, with those that the emulator says they make: static
// ones, of glibc and musl, recorded and patched, with functions and without; and those of a patched C library.
func TestSyscallsARM64(t *testing.T) {
	arm64.need(t)
	needFentry(t)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "p.c"), []byte(callingARM64), 0o666); err != nil {
		t.Fatal(err)
	}
	build := func(name string, args ...string) {
		run(t, command{dir: dir, argv: slices.Concat(arm64.compiler(t, "gcc"), []string{"-O1", "-pthread", "-o", name, "p.c"}, args)}).mustSucceed(t)
	}
	build("static", "-static")
	build("pie", "-static-pie", "-mbranch-protection=standard")
	build("dynamic")
	musl := filepath.Join(debs.ARM64(t, "musl-dev"), "usr")
	lib := filepath.Join(musl, "lib", "aarch64-linux-musl")
	build("musl", "-static", "-nostdinc", "-isystem", filepath.Join(musl, "include", "aarch64-linux-musl"), "-nostdlib",
		filepath.Join(lib, "crt1.o"), filepath.Join(lib, "libc.a"), "-lgcc", "-mno-outline-atomics", "-Wl,--build-id,-z,separate-code")
	for _, name := range []string{"static", "pie", "musl"} {
		for _, functions := range []string{"none", "outer"} {
			t.Run(name+"/"+functions, func(t *testing.T) {
				data := filepath.Join(t.TempDir(), "data")
				r := run(t, command{dir: dir, argv: []string{fentry, "record", "--syscalls", "--plain=all", "-F", functions, "-o", data, "./" + name}})
				r.mustSucceed(t)
				compareSyscallsARM64(t, dir, data, name, nil)
			})
		}
	}
	t.Run("library", func(t *testing.T) {
		libs := filepath.Join(dir, "lib")
		if err := os.Mkdir(libs, 0o777); err != nil {
			t.Fatal(err)
		}
		run(t, command{dir: dir, argv: []string{fentry, "patch", "--syscalls", "-F", "none", "-o", filepath.Join(libs, "libc.so.6"),
			filepath.Join(arm64.emulator[2], "lib", "libc.so.6")}}).mustSucceed(t)
		data := filepath.Join(t.TempDir(), "data")
		run(t, command{dir: dir, env: []string{"FENTRY_DATA=" + data}, argv: slices.Concat(arm64.emulator,
			[]string{"-E", "LD_LIBRARY_PATH=" + libs, "./dynamic"})}).mustSucceed(t)
		// The dynamic loader's are not recorded.
		compareSyscallsARM64(t, dir, data, "dynamic", []string{"getuid", "getpriority", "getpgid", "sched_yield", "clone", "getsid",
			"wait4", "exit_group", "exit"})
	})
}

// compareSyscallsARM64 compares a trace with what the emulator says of a program, for some system calls, by default all.
func compareSyscallsARM64(t *testing.T, dir, data, name string, some []string) {
	t.Helper()
	said := run(t, command{dir: dir, argv: slices.Concat(arm64.emulator, []string{"-strace", "./" + name})}).mustSucceed(t).stderr
	want := map[string]int{}
	for _, m := range regexp.MustCompile(`(?:([a-z][a-z_0-9]*)\(|Unknown syscall (\d+))`).FindAllStringSubmatch(said, -1) {
		if n, err := strconv.ParseUint(m[2], 10, 32); err == nil {
			m[1] = syscalls.ARM64.Name(n)
		}
		want[m[1]]++
	}
	numbers := map[uint64]string{}
	for _, c := range syscalls.ARM64.Calls() {
		numbers[uint64(c.Number)] = c.Name
	}
	have := recordedSyscalls(t, data, numbers)
	for _, counts := range []map[string]int{have, want} {
		delete(counts, "futex") // that depends on when threads run
		maps.DeleteFunc(counts, func(name string, _ int) bool { return some != nil && !slices.Contains(some, name) })
	}
	if len(want) < 8 || !maps.Equal(have, want) {
		t.Errorf("recorded %v\nthe emulator says %v", have, want)
	}
}

// keepingARM64 makes system calls of the fast path and of the slow one with all general registers, the vector registers'
// low halves and flags filled, while signals come whose handlers do the same. It prints how many handlers ran.
const keepingARM64 = `
#include <signal.h>
#include <stdio.h>
#include <sys/time.h>
#include <unistd.h>
/* int kept(long *in): x8 and x0 to x5 are those of in, and what comes back as x0 has to be in[7]. It returns the number of what
   has changed. */
__asm__(
"	.text\n	.p2align 4\n	.globl kept\n	.type kept, %function\n"
"kept:\n"
"	stp x29, x30, [sp, #-96]!\n	stp x19, x20, [sp, #16]\n	stp x21, x22, [sp, #32]\n	stp x23, x24, [sp, #48]\n"
"	stp x25, x26, [sp, #64]\n	stp x27, x28, [sp, #80]\n"
"	mov x19, x0\n	mov x20, sp\n"
"	ldr x8, [x19]\n	ldp x0, x1, [x19, #8]\n	ldp x2, x3, [x19, #24]\n	ldp x4, x5, [x19, #40]\n"
"	mov x6, #106\n	mov x7, #107\n	mov x9, #109\n	mov x10, #110\n	mov x11, #111\n	mov x12, #112\n	mov x13, #113\n"
"	mov x14, #114\n	mov x15, #115\n	mov x16, #116\n	mov x17, #117\n	mov x21, #121\n	mov x28, #128\n	mov x30, #130\n"
"	fmov d0, x16\n	fmov d31, x17\n"
"	cmp x16, x16\n	svc #0\n	b.ne 2f\n"
"	mov x22, #1\n	ldr x23, [x19, #56]\n	cmp x0, x23\n	b.ne 1f\n"
"	mov x22, #2\n	ldr x23, [x19, #16]\n	cmp x1, x23\n	b.ne 1f\n	ldp x23, x24, [x19, #24]\n	cmp x2, x23\n	b.ne 1f\n"
"	cmp x3, x24\n	b.ne 1f\n	ldp x23, x24, [x19, #40]\n	cmp x4, x23\n	b.ne 1f\n	cmp x5, x24\n	b.ne 1f\n"
"	ldr x23, [x19]\n	cmp x8, x23\n	b.ne 1f\n"
"	mov x22, #3\n	cmp x6, #106\n	b.ne 1f\n	cmp x7, #107\n	b.ne 1f\n	cmp x9, #109\n	b.ne 1f\n	cmp x10, #110\n	b.ne 1f\n"
"	cmp x11, #111\n	b.ne 1f\n	cmp x12, #112\n	b.ne 1f\n	cmp x13, #113\n	b.ne 1f\n	cmp x14, #114\n	b.ne 1f\n"
"	cmp x15, #115\n	b.ne 1f\n	cmp x16, #116\n	b.ne 1f\n	cmp x17, #117\n	b.ne 1f\n	cmp x21, #121\n	b.ne 1f\n"
"	cmp x28, #128\n	b.ne 1f\n	cmp x30, #130\n	b.ne 1f\n"
"	mov x22, #4\n	mov x23, sp\n	cmp x20, x23\n	b.ne 1f\n	cmp x29, #0\n	b.eq 1f\n"
"	mov x22, #5\n	fmov x23, d0\n	cmp x23, #116\n	b.ne 1f\n	fmov x23, d31\n	cmp x23, #117\n	b.ne 1f\n"
"	mov x22, #0\n"
"1:	mov x0, x22\n"
"	ldp x27, x28, [sp, #80]\n	ldp x25, x26, [sp, #64]\n	ldp x23, x24, [sp, #48]\n	ldp x21, x22, [sp, #32]\n"
"	ldp x19, x20, [sp, #16]\n	ldp x29, x30, [sp], #96\n	ret\n"
"2:	mov x22, #6\n	b 1b\n"
"	.size kept, . - kept\n");
extern int kept(long *in);

static volatile long handlers;
static long group;
static void handler(int sig)
{
	long a[8] = { 155, 0, 2, 3, 4, 5, 6, group }; /* getpgid */
	if (kept(a))
		_exit(50);
	handlers++;
}

int main(void)
{
	struct sigaction sa = { .sa_handler = handler, .sa_flags = SA_RESTART };
	struct itimerval every = { { 0, 200 }, { 0, 200 } }, never = { 0 };
	char text[] = "text";
	group = getpgid(0);
	long fast[8] = { 173, 0x123456789, 2, 3, 4, 5, 6, getppid() }, slow[8] = { 64, -1, (long)text, 4, 7, 8, 9, -9 };
	int r = 0;
	sigaction(SIGALRM, &sa, 0);
	setitimer(ITIMER_REAL, &every, 0);
	for (int i = 0; i < 20000 && !r; i++) {
		r = kept(fast);                /* getppid */
		if (i % 5 == 0 && !r)
			r = kept(slow) * 10;   /* write */
	}
	setitimer(ITIMER_REAL, &never, 0);
	printf("%ld\n", handlers);
	return r;
}
`

// TestSyscallsKeepARM64: no system call changes a register, the stack pointer or flags, nothing is lost, and times
// ascend, whenever a signal comes.
func TestSyscallsKeepARM64(t *testing.T) {
	arm64.need(t)
	needFentry(t)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "k.c"), []byte(keepingARM64), 0o666); err != nil {
		t.Fatal(err)
	}
	run(t, command{dir: dir, argv: append(arm64.compiler(t, "gcc"), "-O1", "-static", "-o", "k", "k.c")}).mustSucceed(t)
	for _, options := range [][]string{
		{"--syscalls", "-F", "none"}, {"--syscalls", "-F", "handler"}, {"--syscalls", "-F", "none", "--clock", "none"},
		{"--syscalls=getppid,getpgid,write", "-F", "none"},
	} {
		data := filepath.Join(t.TempDir(), "data")
		r := run(t, command{dir: dir, argv: slices.Concat([]string{fentry, "record", "--plain=all", "-o", data}, options, []string{"./k"})})
		r.mustSucceed(t)
		handlers, err := strconv.Atoi(strings.TrimSpace(r.stdout))
		if err != nil || handlers == 0 {
			t.Fatalf("%d handlers, %v", handlers, err)
		}
		tr, err := trace.Open(data)
		if err != nil {
			t.Fatal(err)
		}
		have, last := map[uint64]int{}, int64(0)
		err = tr.Walk(trace.WalkOptions{}, func(ev *trace.Event) error {
			if number, ok := ev.Func.Syscall(); ok && ev.Kind == trace.Entry {
				have[number]++
				if number == 173 && (ev.Sys.Args[0] != 0x123456789 && ev.Sys.Args[1] == 2) ||
					number == 64 && int32(ev.Sys.Args[0]) == -1 && (len(ev.Sys.Data) != 1 || string(ev.Sys.Data[0].Bytes) != "text") {
					t.Errorf("%+v", ev.Sys)
				}
			}
			if ev.Time < last {
				t.Errorf("an event at %d behind one at %d", ev.Time, last)
			}
			last = ev.Time
			return nil
		})
		tr.Close()
		if err != nil || have[173] != 20001 || have[155] != handlers+1 || have[64] != 4001 {
			t.Errorf("%v: %d getppid, %d getpgid, %d write, with %d handlers, %v", options, have[173], have[155], have[64], handlers, err)
		}
	}
}
