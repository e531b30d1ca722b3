/* Restartable sequences: counters of processors that threads add to without a lock. Each thread is interrupted once in the
   middle of one, by a trap, and has to begin again. Between them are system calls. */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/rseq.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { THREADS = 4, ROUNDS = 20000, MOST = 4096 };
static struct { long n; char pad[56]; } counters[MOST];
static long aborts, traps;
static __thread volatile int was_trapped;

static void trapped(int sig)
{
	was_trapped = sig == SIGTRAP;
	__atomic_fetch_add(&traps, sig == SIGTRAP, __ATOMIC_SEQ_CST);
}

static struct rseq *mine(void) { return (struct rseq *)((char *)__builtin_thread_pointer() + __rseq_offset); }

/* add adds one to the counter of the processor that it runs on, or returns 0 if it was interrupted. With trap it is. */
__attribute__((noinline)) static int add(struct rseq *r, int trap)
{
	unsigned cpu = *(volatile unsigned *)&r->cpu_id_start;
	__asm__ goto(".pushsection __rseq_cs, \"aw\"\n\t.balign 32\n"
		"3:\t.long 0, 0\n\t.quad 1f, 2f - 1f, 4f\n\t.popsection\n\t"
		"leaq	3b(%%rip), %%rax\n\tmovq	%%rax, %[cs]\n"
		"1:\tcmpl	%[cpu], %[now]\n\tjne	%l[again]\n\t"
		"testl	%[trap], %[trap]\n\tjz	5f\n\tint3\n"
		"5:\tincq	%[counter]\n"
		"2:\n\t.pushsection .text.unlikely, \"ax\"\n\t.byte 0x0f, 0xb9, 0x3d\n\t.long %c[signature]\n"
		"4:\tjmp	%l[again]\n\t.popsection"
		: : [cs] "m"(r->rseq_cs), [cpu] "r"(cpu), [now] "m"(r->cpu_id), [trap] "r"(trap), [counter] "m"(counters[cpu].n),
		    [signature] "i"(RSEQ_SIG)
		: "rax", "memory", "cc" : again);
	return 1;
again:
	__atomic_fetch_add(&aborts, 1, __ATOMIC_SEQ_CST);
	return 0;
}

static void *thread(void *arg)
{
	for (int i = 0; i < ROUNDS; i++) {
		/* Until the trap has come: the scheduler can interrupt a thread just before it. */
		while (!add(mine(), !was_trapped))
			;
		if (i % 100 == 0)
			syscall(SYS_getppid);
	}
	return arg;
}

int main(void)
{
	pthread_t t[THREADS];
	long sum = 0;
	if (!__rseq_size) {
		puts("none");
		return 0;
	}
	signal(SIGTRAP, trapped);
	for (int i = 0; i < THREADS; i++)
		pthread_create(&t[i], 0, thread, 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(t[i], 0);
	for (int i = 0; i < MOST; i++)
		sum += counters[i].n;
	printf("sum %ld, traps %ld, enough aborts %d\n", sum, traps, aborts >= traps);
	return 0;
}
