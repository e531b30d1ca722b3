// Forked children forbid themselves one system call each, or nearly all, in every way, and go on: they call functions
// deeply and often, in a thread that had called none before and in a signal handler on a stack of its own. Except for the
// end they make no system calls themselves. The last ones execute something. Prints how each has ended.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <linux/futex.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noipa))
enum { ROUNDS = 20000, DEPTH = 4000 };

static volatile int started, go, done;
static _Atomic long sum;

NOINLINE long leaf(long n) { return n * 3 + 1; }
NOINLINE long nested(int depth) { return depth == 0 ? leaf(1) : nested(depth - 1) + 1; }

NOINLINE static void work(void)
{
	for (int i = 0; i < ROUNDS; i++)
		sum += leaf(i);
	sum += nested(DEPTH);
}

NOINLINE long handled(long n) { return leaf(n); }

static void handler(int signal, siginfo_t *info, void *context)
{
	(void)signal, (void)info;
	sum += handled(1);
	((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP] += 2; // behind ud2
}

static void *thread(void *arg)
{
	started = 1;
	while (!go)
		;
	work();
	done = 1;
	for (;;)
		;
	return arg;
}

// leave makes exit_group itself, as what libraries do before it is nobody's business.
__attribute__((noreturn)) static void leave(int status)
{
	for (;;)
		__asm__ volatile("syscall" :: "a"(SYS_exit_group), "D"(status) : "rcx", "r11", "memory");
}

// install has a filter installed, by prctl for this thread or by seccomp for all.
static int install(struct sock_filter *code, size_t n, int by_prctl)
{
	struct sock_fprog prog = {(unsigned short)n, code};
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		return -1;
	if (by_prctl)
		return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog);
	return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &prog);
}

// forbid answers one call with action.
static int forbid(unsigned nr, unsigned action, int by_prctl)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, nr, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, action),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	return install(code, sizeof code / sizeof *code, by_prctl);
}

// forbid_all allows the end and the way back from a handler. It is written with what else filters can do.
static int forbid_all(unsigned action, int by_prctl)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LDX | BPF_W | BPF_IMM, 1),
		BPF_STMT(BPF_STX, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_STMT(BPF_ALU | BPF_LSH | BPF_K, 4),
		BPF_STMT(BPF_ST, 5),
		BPF_STMT(BPF_LDX | BPF_W | BPF_MEM, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_MEM, 5),
		BPF_STMT(BPF_ALU | BPF_ADD | BPF_X, 0),
		BPF_STMT(BPF_ALU | BPF_SUB | BPF_K, 1),
		BPF_STMT(BPF_ALU | BPF_RSH | BPF_K, 4),
		BPF_STMT(BPF_MISC | BPF_TAX, 0),
		BPF_STMT(BPF_LD | BPF_W | BPF_IMM, SYS_exit_group),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_X, 0, 3, 0),
		BPF_STMT(BPF_LD | BPF_W | BPF_IMM, SYS_rt_sigreturn),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_X, 0, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, action),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	return install(code, sizeof code / sizeof *code, by_prctl);
}

// forbid_some forbids some of what a call can do, by its second or third argument.
static int forbid_some(unsigned nr, int arg, unsigned value, unsigned action, int by_prctl)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, nr, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (unsigned)(offsetof(struct seccomp_data, args) + 8 * (size_t)arg)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, action),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	return install(code, sizeof code / sizeof *code, by_prctl);
}

// forbid_shifted forbids one call by a filter that shifts by 32 bits, which are none.
static int forbid_shifted(unsigned nr, unsigned action)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LDX | BPF_W | BPF_IMM, 32),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_STMT(BPF_ALU | BPF_LSH | BPF_X, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, nr, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, action),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	return install(code, sizeof code / sizeof *code, 0);
}

static void body(void)
{
	go = 1;
	work();
	__asm__ volatile("ud2");
	while (!done)
		;
	leave(sum == 2 * (3L * ROUNDS * (ROUNDS - 1) / 2 + ROUNDS + 4 + DEPTH) + 4 ? 0 : 9);
}

// child forks, and returns in the child. It is ready for what comes then.
static int child(void)
{
	fflush(stdout);
	if (fork())
		return 0;
	stack_t stack = {.ss_sp = malloc(1 << 16), .ss_size = 1 << 16};
	struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_ONSTACK};
	pthread_t t;
	if (sigaltstack(&stack, 0) || sigaction(SIGILL, &action, 0) || pthread_create(&t, 0, thread, 0))
		leave(2);
	while (!started)
		;
	return 1;
}

static void ended(const char *what, unsigned n)
{
	int status;
	if (wait(&status) < 0)
		status = 255 << 8;
	printf("%s %u: %s %d\n", what, n, WIFEXITED(status) ? "exit" : "signal", WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
}

int main(int argc, char **argv)
{
	if (argc > 1)
		return (int)leaf(atoi(argv[1])) % 100;
	static const unsigned calls[] = {
		SYS_mmap, SYS_munmap, SYS_mremap, SYS_mprotect, SYS_madvise, SYS_futex, SYS_rt_sigprocmask, SYS_sigaltstack, SYS_prctl,
		SYS_clock_gettime, SYS_arch_prctl, SYS_gettid, SYS_getpid, SYS_getppid, SYS_geteuid, SYS_tgkill, SYS_sched_yield,
		SYS_process_vm_readv, SYS_openat, SYS_readlinkat, SYS_getdents64, SYS_read, SYS_write, SYS_close, SYS_fstat, SYS_fcntl,
	};
	static const unsigned actions[] = {SECCOMP_RET_KILL_PROCESS, SECCOMP_RET_TRAP, SECCOMP_RET_ERRNO | EPERM};
	for (unsigned i = 0; i < sizeof calls / sizeof *calls; i++) {
		if (child())
			forbid(calls[i], actions[i % 3], i & 1) ? leave(3) : body();
		ended("one call", calls[i]);
		if (child())
			forbid(calls[i], actions[(i + 1) % 3], ~i & 1) ? leave(3) : body();
		ended("one call", calls[i]);
	}
	for (unsigned i = 0; i < 6; i++) {
		if (child())
			forbid_all(actions[i % 3], i & 1) ? leave(3) : body();
		ended("all calls", i);
	}
	if (child())
		forbid_some(SYS_futex, 1, FUTEX_WAKE, SECCOMP_RET_KILL_PROCESS, 0) ? leave(3) : body();
	ended("some", 1);
	if (child())
		forbid_some(SYS_madvise, 2, 18 /* MADV_WIPEONFORK */, SECCOMP_RET_KILL_PROCESS, 1) ? leave(3) : body();
	ended("some", 2);
	if (child()) { // one filter after the other
		forbid(SYS_gettid, SECCOMP_RET_KILL_PROCESS, 0) || forbid(SYS_mmap, SECCOMP_RET_KILL_PROCESS, 0) ? leave(3) : body();
	}
	ended("two", 0);
	if (child()) // the first answers in place of the kernel
		forbid_some(SYS_rt_sigprocmask, 0, -1U, SECCOMP_RET_ERRNO | EPERM, 0) || forbid(SYS_mmap, SECCOMP_RET_KILL_PROCESS, 0) ? leave(3) : body();
	ended("two", 1);
	if (child())
		forbid_shifted(SYS_mmap, SECCOMP_RET_KILL_PROCESS) ? leave(3) : body();
	ended("shifted", 0);
	struct sock_fprog nowhere = {1, (void *)-8L};
	if (child()) // none, but questions
		syscall(SYS_seccomp, SECCOMP_SET_MODE_STRICT, 1, 0) != -1 || syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, 0) != -1 ||
			prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, 8) != -1 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, -1L) != -1 ||
			prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &nowhere) != -1 ? leave(3) : body();
	ended("none", 0);
	fflush(stdout);
	for (int i = 0; i < 2; i++) { // libraries say that they go
		fflush(stdout);
		if (fork() == 0)
			exit(forbid(SYS_rt_sigprocmask, SECCOMP_RET_KILL_PROCESS, i) ? 3 : 5);
		ended("leaves", (unsigned)i);
	}
	if (fork() == 0) {
		if (forbid_some(SYS_mmap, 3, MAP_SHARED, SECCOMP_RET_KILL_PROCESS, 0))
			leave(3);
		execl("/proc/self/exe", argv[0], "7", (char *)0);
		leave(4);
	}
	ended("executes, with mappings of its own", 0);
	fflush(stdout);
	if (fork() == 0)
		exit(forbid(SYS_gettid, SECCOMP_RET_KILL_PROCESS, 0) || !dlopen("libm.so.6", RTLD_NOW) ? 3 : 6);
	ended("loads", 0);
	for (int i = 0; i < 2; i++) {
		if (fork() == 0) {
			if (i == 0 ? forbid(SYS_sched_yield, SECCOMP_RET_KILL_PROCESS, 1) : forbid(SYS_sched_yield, SECCOMP_RET_ERRNO | EPERM, 0))
				leave(3);
			execl("/proc/self/exe", argv[0], "7", (char *)0);
			leave(4);
		}
		ended("executes", (unsigned)i);
	}
	return 0;
}
