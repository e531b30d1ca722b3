/* Threads that are cancelled while they wait in the kernel, by the C library's means; and a routine of this program's, as
   glibc has it from 2.41 on, with a caller through which a handler unwinds. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>
#ifdef __GLIBC__
#include <unwind.h>
#endif

long routine(volatile int *word, long n, long a, long b, long c, long d, long e, long f);
extern const char routine_end[];

#ifdef __x86_64__
#define PC(context) ((context)->uc_mcontext.gregs[REG_RIP])
#define BODY "mov (%rdi), %eax; testb $8, (%rdi); jne refused\n" \
	"mov %rdi, %r11; mov %rsi, %rax; mov %rdx, %rdi; mov %rcx, %rsi; mov %r8, %rdx; mov %r9, %r10\n" \
	"mov 8(%rsp), %r8; mov 16(%rsp), %r9; mov %r11, 8(%rsp)\n" \
	"syscall\n"
#define REFUSE "mov $-125, %rax"
#else
#define PC(context) ((context)->uc_mcontext.pc)
#define BODY "ldr w0, [x0]; tbnz w0, #3, refused\n" \
	"mov x8, x1; mov x0, x2; mov x1, x3; mov x2, x4; mov x3, x5; mov x4, x6; mov x5, x7\n" \
	"svc #0\n"
#define REFUSE "mov x0, #-125"
#endif
__asm__(".text; .p2align 4; .type routine, %function\n"
	"routine: .cfi_startproc\n" BODY
	"routine_end: ret\n"
	".cfi_endproc; .size routine, . - routine\n"
	".type refused, %function; refused: .cfi_startproc; " REFUSE "; ret; .cfi_endproc; .size refused, . - refused");

static volatile long reads; /* the thread that is about to read, and does nothing else any more */

/* asleep returns when the thread that is about to read waits in the kernel. */
static void asleep(void)
{
	char path[64], state = 0;
	for (; state != 'S'; usleep(1000)) {
		if (!reads)
			continue;
		snprintf(path, sizeof path, "/proc/self/task/%ld/stat", reads);
		FILE *f = fopen(path, "r");
		if (!f || fscanf(f, "%*d (%*[^)]) %c", &state) != 1)
			_exit(8);
		fclose(f);
	}
	reads = 0;
}

static void *alarms(void *arg)
{
	asleep();
	pthread_kill(*(pthread_t *)arg, SIGALRM);
	return 0;
}

static int in[2], frames, seen, in_range;
static volatile int word;

/* With six arguments, two of them on the stack. */
__attribute__((noinline)) static long via(long n, long a, long b, long c, long d, long e, long f)
{
	return routine(&word, n, a, b, c, d, e, f);
}

__attribute__((noinline)) static int last(void)
{
	static char b[8];
	printf("%ld\n", via(SYS_pwritev, in[1], 0, 0, 1, 2, 3)); /* not a file that has positions */
	reads = syscall(SYS_gettid);
	printf("%ld\n", via(SYS_read, in[0], (long)b, 8, 0, 0, 0));
	word = 8;
	printf("%ld\n", via(SYS_read, in[0], (long)b, 8, 0, 0, 0));
	return b[0];
}

#ifdef __GLIBC__
static _Unwind_Reason_Code frame(struct _Unwind_Context *c, void *arg)
{
	frames++;
	seen |= (void *)_Unwind_FindEnclosingFunction((void *)_Unwind_GetIP(c)) == arg;
	return _URC_NO_REASON;
}
#endif

static void alarmed(int sig, siginfo_t *info, void *context)
{
	(void)sig, (void)info;
	long at = (long)PC((ucontext_t *)context);
	in_range = at >= (long)routine && at <= (long)routine_end;
#ifdef __GLIBC__
	_Unwind_Backtrace(frame, (void *)last);
#endif
	if (write(in[1], "abc", 3) != 3)
		_exit(9);
}

static void *waits(void *arg)
{
	char b[8];
	reads = syscall(SYS_gettid);
	while (read(in[0], b, sizeof b) != 99)
		;
	return arg;
}

static void *masked(void *arg)
{
	char b[8];
	int old;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &old);
	if (write(in[1], "x", 1) != 1)
		return arg;
	pthread_barrier_wait(arg);
	pthread_barrier_wait(arg); /* cancelled now */
	printf("%zd\n", read(in[0], b, sizeof b));
	pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &old);
	read(in[0], b, sizeof b);
	return arg;
}

int main(void)
{
	pthread_t t;
	void *result;
	if (pipe(in))
		return 1;
	struct sigaction sa = { .sa_sigaction = alarmed, .sa_flags = SA_SIGINFO | SA_RESTART };
	sigaction(SIGALRM, &sa, 0);
	pthread_t self = pthread_self();
	pthread_create(&t, 0, alarms, &self);
	int got = last();
	pthread_join(t, 0);
	printf("%c, %d frames, last %d, in range %d\n", got, frames, seen, in_range);

	pthread_create(&t, 0, waits, 0);
	asleep();
	pthread_cancel(t);
	pthread_join(t, &result);
	printf("%d\n", result == PTHREAD_CANCELED);

	pthread_barrier_t b;
	pthread_barrier_init(&b, 0, 2);
	pthread_create(&t, 0, masked, &b);
	pthread_barrier_wait(&b);
	pthread_cancel(t);
	pthread_barrier_wait(&b);
	pthread_join(t, &result);
	printf("%d\n", result == PTHREAD_CANCELED);
	return 0;
}
