// The program keeps its own per-thread data behind gs, and changes it while it runs.
//e2e:machines amd64
#include "count.h"
#include <pthread.h>
#include <sys/syscall.h>

enum { ARCH_SET_GS = 0x1001, ARCH_GET_GS = 0x1004 }; // asm/prctl.h

struct mine { uint64_t magic, calls; };

FN static uint64_t read_gs(void)
{
	COUNT();
	uint64_t v;
	__asm__ volatile("mov %%gs:0,%0" : "=r"(v));
	return v;
}
FN static void bump(void) { COUNT(); __asm__ volatile("incq %%gs:8" ::: "memory"); }
FN static unsigned work(unsigned n) { COUNT(); return n ? KEEP(work(n - 1)) + 1 : 0; }
FN static int use(struct mine *m, uint64_t magic)
{
	COUNT();
	m->magic = magic;
	m->calls = 0;
	if (syscall(SYS_arch_prctl, ARCH_SET_GS, m))
		abort();
	for (int i = 0; i < 2000; i++) {
		bump();
		work((unsigned)i % 7);
		if (read_gs() != magic)
			return -1;
	}
	return (int)m->calls;
}
FN static void *thread(void *p)
{
	COUNT();
	work(5);
	struct mine m;
	*(int *)p = use(&m, 0x1000 + (uintptr_t)p % 7);
	return NULL;
}
int main(void)
{
	COUNT();
	work(9);
	static struct mine a, b;
	say("first %d\n", use(&a, 0x1234));
	say("second %d\n", use(&b, 0x5678));
	pthread_t t[8];
	int r[8], s = 0;
	for (int i = 0; i < 8; i++)
		pthread_create(&t[i], NULL, thread, &r[i]);
	for (int i = 0; i < 8; i++) {
		pthread_join(t[i], NULL);
		s += r[i];
	}
	unsigned long base = 1;
	syscall(SYS_arch_prctl, ARCH_GET_GS, &base);
	say("threads %d kept %d\n", s, base == (unsigned long)&b);
	return 0;
}
