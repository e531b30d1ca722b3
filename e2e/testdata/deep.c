// 1,000,000 calls deep, on a thread with a big stack and again on a context of its own.
// musl has no swapcontext()
//e2e:compilers gcc clang
#include "count.h"
#include <pthread.h>
#include <ucontext.h>

#define STACK (1ul << 30)

FN static unsigned long down(unsigned long n)
{
	COUNT();
	unsigned long r = n ? down(n - 1) + 1 : 0;
	__asm__ volatile("" : "+r"(r));
	return r;
}
FN static void *thread(void *p) { COUNT(); *(unsigned long *)p = down(1000000); return NULL; }
static ucontext_t home, far;
static unsigned long from_context;
FN static void body(void) { COUNT(); from_context = down(1000000); }
int main(void)
{
	COUNT();
	char *stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (stack == MAP_FAILED)
		abort();
	pthread_attr_t at;
	pthread_attr_init(&at);
	pthread_attr_setstack(&at, stack, STACK);
	pthread_t t;
	unsigned long r = 0;
	if (pthread_create(&t, &at, thread, &r))
		abort();
	pthread_join(t, NULL);
	say("thread %lu\n", r);
	madvise(stack, STACK, MADV_DONTNEED);
	getcontext(&far);
	far.uc_stack.ss_sp = stack;
	far.uc_stack.ss_size = STACK;
	far.uc_link = &home;
	makecontext(&far, body, 0);
	swapcontext(&home, &far);
	say("context %lu\n", from_context);
	return 0;
}
