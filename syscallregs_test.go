//go:build linux

package fentry_test

import (
	"bytes"
	"context"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry"
	"github.com/fentry-dev/fentry/internal/testtool"
	"github.com/fentry-dev/fentry/patch"
	"github.com/fentry-dev/fentry/trace"
)

// keeping fills all registers and the red zone, makes system calls of the fast path and of the slow one, and compares,
// while signals come every 50 microseconds whose handlers make other ones. It prints how many handlers ran.
const keeping = `
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

/* int kept(long nr, long arguments[6]): makes the system call and returns 0 if nothing but rax, rcx and r11 has
   changed. It calls nothing, so the memory below the stack pointer is its own. */
__asm__(
"	.text\n	.p2align 4\n	.globl kept\n	.type kept, @function\n"
"kept:\n"
"	push %rbx\n	push %rbp\n	push %r12\n	push %r13\n	push %r14\n	push %r15\n"
"	mov %rdi, %rax\n	mov %rsi, %rbp\n"
"	mov 8(%rbp), %rsi\n	mov 16(%rbp), %rdx\n	mov 24(%rbp), %r10\n	mov 32(%rbp), %r8\n	mov 40(%rbp), %r9\n"
"	mov (%rbp), %rdi\n"
"	mov $0x1111, %ebx\n	mov $0x2222, %r12d\n	mov $0x3333, %r13d\n	mov $0x4444, %r14d\n	mov %rsp, %r15\n"
"	movq %rbx, %xmm0\n	movq %r12, %xmm15\n"
"	mov %rbx, -8(%rsp)\n	mov %r12, -64(%rsp)\n	mov %r13, -128(%rsp)\n"
"	syscall\n"
"	mov %rax, %rcx\n	mov $1, %eax\n"
"	cmp %rsp, %r15\n	jne 1f\n	cmp %rbx, -8(%rsp)\n	jne 1f\n	cmp %r12, -64(%rsp)\n	jne 1f\n	cmp %r13, -128(%rsp)\n	jne 1f\n"
"	inc %eax\n"
"	cmp $0x1111, %rbx\n	jne 1f\n	cmp $0x2222, %r12\n	jne 1f\n	cmp $0x3333, %r13\n	jne 1f\n	cmp $0x4444, %r14\n	jne 1f\n"
"	inc %eax\n"
"	cmp %rdi, (%rbp)\n	jne 1f\n	cmp %rsi, 8(%rbp)\n	jne 1f\n	cmp %rdx, 16(%rbp)\n	jne 1f\n"
"	cmp %r10, 24(%rbp)\n	jne 1f\n	cmp %r8, 32(%rbp)\n	jne 1f\n	cmp %r9, 40(%rbp)\n	jne 1f\n"
"	inc %eax\n"
"	movq %xmm0, %r11\n	cmp %r11, %rbx\n	jne 1f\n	movq %xmm15, %r11\n	cmp %r11, %r12\n	jne 1f\n"
"	inc %eax\n"
"	cmp %rcx, 48(%rbp)\n	jne 1f\n"
"	xor %eax, %eax\n"
"1:	pop %r15\n	pop %r14\n	pop %r13\n	pop %r12\n	pop %rbp\n	pop %rbx\n	ret\n"
"	.size kept, . - kept\n");
extern int kept(long nr, long *arguments);

static volatile long handlers;
static long group;
static void handler(int sig)
{
	long a[7] = { 0, 2, 3, 4, 5, 6, group };
	if (kept(121, a)) /* getpgid */
		_exit(50);
	handlers++;
}

int main(void)
{
	struct sigaction sa = { .sa_handler = handler, .sa_flags = SA_RESTART };
	struct itimerval every = { { 0, 50 }, { 0, 50 } }, never = { 0 };
	char text[] = "text";
	group = getpgid(0);
	long fast[7] = { 0x123456789, 2, 3, 4, 5, 6, getppid() }, slow[7] = { -1, (long)text, 4, 7, 8, 9, -9 };
	int r = 0;
	sigaction(SIGALRM, &sa, 0);
	setitimer(ITIMER_REAL, &every, 0);
	for (int i = 0; i < 100000 && !r; i++) {
		r = kept(110, fast);         /* getppid */
		if (i % 5 == 0 && !r)
			r = kept(1, slow) * 10;  /* write */
	}
	setitimer(ITIMER_REAL, &never, 0);
	printf("%ld\n", handlers);
	return r;
}
`

// TestSyscallsKeep: no system call changes a register, the stack pointer or the red zone, nothing is lost or out of
// order whenever a signal comes, and calls of handlers lie inside the calls that they interrupt.
func TestSyscallsKeep(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("system calls are moved on x86-64")
	}
	prog := testtool.Compile(t, "keeping", keeping, "-O1", "-static")
	for _, o := range []patch.Options{{NoFunctions: true}, {}, {NoClock: true}} {
		opts := options(t)
		opts.Syscalls, opts.Plan, opts.Overhead = true, o, -1
		opts.NoInherit = true
		var out bytes.Buffer
		cmd := exec.Command(prog)
		cmd.Stdout = &out
		res, err := fentry.Run(context.Background(), cmd, opts)
		if err != nil || res.Status.ExitStatus() != 0 || res.Lost != 0 {
			t.Errorf("%+v: %+v, %v", o, res, err)
			continue
		}
		handlers, err := strconv.Atoi(strings.TrimSpace(out.String()))
		if err != nil || handlers == 0 {
			t.Errorf("%d handlers, %v", handlers, err)
		}
		tr, err := trace.Open(opts.Dir)
		if err != nil {
			t.Fatal(err)
		}
		have := map[uint64]int{}
		var open []uint64
		last := int64(0)
		err = tr.Walk(trace.WalkOptions{}, func(ev *trace.Event) error {
			number, known := ev.Func.Syscall()
			switch {
			case !known:
			case ev.Kind == trace.Entry:
				have[number]++
				open = append(open, number)
				wrong := number == 110 && ev.Sys.Args[1] == 2 && ev.Sys.Args[0] != 0x123456789 ||
					number == 1 && int32(ev.Sys.Args[0]) == -1 && (len(ev.Sys.Data) != 1 || string(ev.Sys.Data[0].Bytes) != "text")
				if wrong {
					t.Errorf("%+v", ev.Sys)
				}
			case ev.Kind == trace.Exit:
				n := len(open)
				if n == 0 {
					t.Fatal("a system call ends that has not begun")
				}
				if open[n-1] == 1 && int64(ev.Sys.Value) != -9 && n > 1 {
					t.Errorf("a write ends with %d", int64(ev.Sys.Value))
				}
				open = open[:n-1]
			}
			if ev.Time < last {
				t.Errorf("an event at %d behind one at %d", ev.Time, last)
			}
			last = ev.Time
			return nil
		})
		tr.Close()
		if err != nil || have[110] != 100001 || have[121] != handlers+1 || have[1] != 20001 {
			t.Errorf("%+v: %d getppid, %d getpgid, %d write, with %d handlers, %v", o, have[110], have[121], have[1], handlers, err)
		}
	}
}

// many makes many system calls of both paths.
const many = `
#include <unistd.h>
int main(void)
{
	for (int i = 0; i < 60000; i++) {
		getpgid(0);
		if (i % 10 == 0)
			write(-1, "hello", 5);
	}
	return 0;
}
`

// TestSyscallsLost: of system calls, what is in the trace and what is counted as lost or overwritten is what was made.
func TestSyscallsLost(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("system calls are moved on x86-64")
	}
	prog := testtool.Compile(t, "many", many, "-O1", "-w", "-static")
	total := uint64(0)
	for _, policy := range []trace.Policy{trace.PolicyBlock, trace.PolicyDrop, trace.PolicyOverwrite} {
		opts := options(t)
		opts.Syscalls, opts.Plan.NoFunctions, opts.Policy, opts.Buffer = true, true, policy, 1<<20
		res, err := fentry.Run(context.Background(), exec.Command(prog), opts)
		if err != nil || res.Status.ExitStatus() != 0 || res.Uncounted {
			t.Fatalf("%+v, %v", res, err)
		}
		if policy == trace.PolicyBlock {
			total = res.Events
		}
		if n := res.Events + res.Lost + res.Overwrote; n != total || total < 2*66000 {
			t.Errorf("policy %v: %d events, %d lost, %d overwritten: %d, want %d", policy, res.Events, res.Lost, res.Overwrote, n, total)
		}
	}
}

// vforking has more children in its place than the runtime has room for at once.
const vforking = `
#define _GNU_SOURCE
#include <sys/wait.h>
#include <unistd.h>
int main(void)
{
	for (int i = 0; i < 3000; i++) {
		pid_t p = vfork();
		if (!p) {
			getpgid(0);
			_exit(0);
		}
		waitpid(p, 0, 0);
	}
	return 0;
}
`

// TestSyscallsVfork: children that run in their parent's place give back what they have had.
func TestSyscallsVfork(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("system calls are moved on x86-64")
	}
	prog := testtool.Compile(t, "vforking", vforking, "-O1", "-w", "-static")
	opts := options(t)
	opts.Syscalls, opts.Plan.NoFunctions = true, true
	res, err := fentry.Run(context.Background(), exec.Command(prog), opts)
	if err != nil || res.Status.ExitStatus() != 0 || res.Lost != 0 || res.Tasks != 3001 {
		t.Fatalf("%+v, %v", res, err)
	}
	tr, err := trace.Open(opts.Dir)
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	calls := map[uint64]int{}
	err = tr.Walk(trace.WalkOptions{}, func(ev *trace.Event) error {
		if number, ok := ev.Func.Syscall(); ok && ev.Kind == trace.Entry {
			calls[number]++
		}
		return nil
	})
	if err != nil || calls[121] != 3000 || calls[58] != 3000 || calls[61] != 3000 {
		t.Errorf("%v, %v", calls, err)
	}
}
