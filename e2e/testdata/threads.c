// 64 threads at a time with names, then 2000 short-lived ones one after another.
//e2e:comm worker-00 worker-31 worker-63
#include "count.h"
#include <pthread.h>

static pthread_barrier_t all;
static uint64_t sums[64];

FN static uint64_t leaf(uint64_t x) { COUNT(); return x * 2654435761u + 1; }
FN static uint64_t branch(uint64_t x, int n)
{
	COUNT();
	if (n == 0)
		return leaf(x);
	return KEEP(branch(x + 1, n - 1)) ^ leaf(x);
}
FN static void *worker(void *p)
{
	COUNT();
	uintptr_t me = (uintptr_t)p;
	char name[16];
	snprintf(name, sizeof name, "worker-%02d", (int)me);
	pthread_setname_np(pthread_self(), name);
	pthread_barrier_wait(&all);
	uint64_t s = 0;
	for (int i = 0; i < 500; i++)
		s += branch(me, i % 8);
	sums[me] = s;
	return p;
}
FN static void *brief(void *p) { COUNT(); return (void *)leaf((uintptr_t)p); }
FN static uint64_t wide(void)
{
	COUNT();
	pthread_t t[64];
	uint64_t s = 0;
	pthread_barrier_init(&all, NULL, 64);
	for (uintptr_t i = 0; i < 64; i++)
		if (pthread_create(&t[i], NULL, worker, (void *)i))
			abort();
	for (int i = 0; i < 64; i++) {
		pthread_join(t[i], NULL);
		s ^= sums[i];
	}
	return s;
}
FN static uint64_t many(void)
{
	COUNT();
	uint64_t s = 0;
	for (uintptr_t i = 0; i < 2000; i++) {
		pthread_t t;
		void *r;
		if (pthread_create(&t, NULL, brief, (void *)i))
			abort();
		pthread_join(t, &r);
		s += (uintptr_t)r;
	}
	return s;
}
int main(void)
{
	COUNT();
	say("wide %llx\n", (unsigned long long)wide());
	say("many %llx\n", (unsigned long long)many());
	return 0;
}
