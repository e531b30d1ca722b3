/* Ways into the kernel other than the syscall instruction, as many times as the argument says, and what came of them. What
   this machine does not have is "none". */
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static sigjmp_buf back;
static void refused(int sig) { siglongjmp(back, sig); }

__attribute__((noinline)) static int by_interrupt(void)
{
	int r;
	__asm__ volatile("int $0x80" : "=a"(r) : "a"(20 /* getpid */) : "memory", "cc", "r8", "r9", "r10", "r11");
	return r == getpid();
}

__attribute__((noinline)) static int by_vsyscall(void)
{
	long (*vtime)(long *) = (long (*)(long *))0xffffffffff600400;
	long before = time(0) - 1;
	return vtime(0) >= before;
}

__attribute__((noinline)) static int by_vdso(void)
{
	struct timespec t;
	struct timeval v;
	return !clock_gettime(CLOCK_MONOTONIC, &t) && t.tv_nsec >= 0 && !gettimeofday(&v, 0) && v.tv_sec > 0;
}

/* The vdso asks the kernel for these. */
__attribute__((noinline)) static int behind_vdso(void)
{
	struct timespec t;
	return !clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t) && t.tv_nsec >= 0;
}

__attribute__((noinline)) static int by_instruction(void)
{
	struct timespec t;
	return !syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &t) && syscall(SYS_getppid) > 0;
}

static void try(const char *name, int (*way)(void), int n)
{
	volatile int done = 0;
	int sig = sigsetjmp(back, 1);
	for (int i = 0; !sig && i < n; i++)
		done += way();
	if (sig)
		printf("%s none\n", name);
	else
		printf("%s %d\n", name, done);
}

int main(int argc, char **argv)
{
	int n = argc > 1 ? atoi(argv[1]) : 1;
	signal(SIGSEGV, refused);
	try("int80", by_interrupt, n);
	try("vsyscall", by_vsyscall, n);
	try("vdso", by_vdso, n);
	try("vdsocall", behind_vdso, n);
	try("syscall", by_instruction, n);
	return 0;
}
