// The addresses where the tracer would keep return addresses of a thread's stack are in use by the program.
//e2e:run taken
//e2e:libs -pthread
//e2e:may-lose taken
#include "count.h"
#include <pthread.h>

enum { STACK = 8 << 20 };

FN int leaf(int a)
{
	COUNT();
	return a ^ 1;
}

FN int middle(int a)
{
	COUNT();
	return leaf(a) + leaf(a + 1);
}

FN static void *thread(void *arg)
{
	COUNT();
	int *sum = arg;
	for (int i = 0; i < 1000; i++)
		*sum += middle(i);
	return arg;
}

FN int on_thread(char *stack)
{
	COUNT();
	pthread_attr_t attr;
	pthread_t t;
	int sum = 0;
	pthread_attr_init(&attr);
	if (pthread_attr_setstack(&attr, stack, STACK) != 0 || pthread_create(&t, &attr, thread, &sum) != 0 || pthread_join(t, NULL) != 0)
		abort();
	return sum;
}

FN int main(void)
{
	COUNT();
	char *stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (stack == MAP_FAILED)
		abort();
	// All around: what is mapped for a stack may be more than the stack.
	uintptr_t taken = ((uintptr_t)stack ^ 1UL << 46) - (64UL << 20);
	if (mmap((void *)taken, 128UL << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0) != (void *)taken)
		abort();
	say("%d\n", on_thread(stack));
	say("%d\n", middle(3));
	return 0;
}
