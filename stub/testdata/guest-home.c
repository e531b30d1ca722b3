/* Loads a traced shared object, whose path is argv[1], and calls it and is called back,
   by calls and by jumps, with a thread; closes it, and loads it again. It stays where it
   is. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>
#define NI __attribute__((noinline, noipa))

typedef long tail(long n, void *other);
static long n_h_leaf, n_h_tail, n_round;
static long (*g_sum)(long, long (*)(long));
static tail *g_tail;

NI static long h_leaf(long x)
{
	__atomic_fetch_add(&n_h_leaf, 1, __ATOMIC_RELAXED);
	return x + 2;
}

NI static long h_tail(long n, void *other)
{
	n_h_tail++;
	return n == 0 ? 1 : ((tail *)other)(n - 1, (void *)h_tail);
}

static void fail(const char *what)
{
	printf("failed: %s\n", what);
	exit(1);
}

static void *thread(void *sum)
{
	long (*f)(long, long (*)(long)) = sum;
	return f(1, h_leaf) == 1 + 2 ? sum : 0;
}

NI static void round(const char *path, long *counts)
{
	void *h = dlopen(path, RTLD_NOW);
	n_round++;
	if (!h)
		fail(dlerror());
	g_sum = (long (*)(long, long (*)(long)))dlsym(h, "g_sum");
	g_tail = (tail *)dlsym(h, "g_tail");
	if (!*(long *)dlsym(h, "joined"))
		fail("the guest has not joined");
	if (g_sum(1000, 0) != 500500 || g_sum(100, h_leaf) != 5050 + 5150)
		fail("sum");
	if (h_tail(100001, (void *)g_tail) != 1 || g_tail(7, (void *)h_tail) != 1)
		fail("tail calls");
	pthread_t t;
	void *r;
	if (pthread_create(&t, 0, thread, (void *)g_sum) || pthread_join(t, &r) || !r)
		fail("thread");
	counts[0] = *(long *)dlsym(h, "n_g_leaf");
	counts[1] = *(long *)dlsym(h, "n_g_sum");
	counts[2] = *(long *)dlsym(h, "n_g_tail");
	dlclose(h);
}

int main(int argc, char **argv)
{
	long counts[3] = { 0, 0, 0 };
	if (argc != 2)
		return 2;
#ifdef GUEST_GS
	/* The program uses gs itself: blocks are found by the thread pointer. */
	static long mine[512];
	syscall(SYS_arch_prctl, 0x1001 /* ARCH_SET_GS */, mine);
#endif
	for (int i = 0; i < 3; i++)
		round(argv[1], counts);
	printf("g_leaf %ld\ng_sum %ld\ng_tail %ld\n", counts[0], counts[1], counts[2]);
	printf("h_leaf %ld\nh_tail %ld\nround %ld\nmain 1\n", n_h_leaf, n_h_tail, n_round);
	return 0;
}
