// For gdb: breaks in leaf, four traced calls below main, and in a thread; `core` ends in abort() there.
//e2e:cflags -g
#include "count.h"
#include <pthread.h>

static int dump;
FN int leaf(int n);
int leaf(int n)
{
	COUNT();
	if (dump) {
		ABANDON(5);
		abort();
	}
	return n + 1;
}
int inner(int, double, int);
int middle(int);
int outer(int);
void *in_thread(void *);
FN int inner(int a, double b, int c) { COUNT(); int r = leaf(a + c) + (int)b; __asm__ volatile(""); return r; }
FN int middle(int n) { COUNT(); int r = inner(n, 2.5, 3); __asm__ volatile(""); return r; }
FN int outer(int n) { COUNT(); int r = n ? outer(n - 1) : middle(4); __asm__ volatile(""); return r; }
FN void *in_thread(void *p) { COUNT(); *(int *)p = outer(0); __asm__ volatile(""); return p; }
int main(int argc, char **argv)
{
	COUNT();
	dump = argc > 1 && !strcmp(argv[1], "core");
	int r = outer(0), s = 0;
	pthread_t t;
	pthread_create(&t, NULL, in_thread, &s);
	pthread_join(t, NULL);
	say("%d %d\n", r, s);
	return 0;
}
