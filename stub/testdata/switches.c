/* Switches functions off and on by their bytes: argv has the ids of outer and leaf. */
#include <stdio.h>
#include <stdlib.h>
#define NI __attribute__((noinline))

extern volatile unsigned char harness_switches[];
static int id_outer, id_leaf;
static long n_outer, n_leaf;

static inline __attribute__((always_inline)) int is_on(int id) { return harness_switches[id - 1] & 1; }
static inline __attribute__((always_inline)) void set(int id, int v) { harness_switches[id - 1] = (unsigned char)v; }

NI static int leaf(int x)
{
	n_leaf += is_on(id_leaf);
	__asm__ volatile("" : "+r"(x));
	return x + 1;
}

/* Switches itself and leaf off while it runs, and leaf on again. */
NI static int outer(int x)
{
	n_outer += is_on(id_outer);
	x = leaf(x);
	set(id_outer, 0);
	set(id_leaf, 0);
	x += leaf(x);
	set(id_leaf, 1);
	x = leaf(x);
	__asm__ volatile("" : "+r"(x));
	return x + 1;
}

int main(int argc, char **argv)
{
	int x = 0;
	if (argc != 3)
		return 2;
	id_outer = atoi(argv[1]);
	id_leaf = atoi(argv[2]);
	if (!is_on(id_outer) || !is_on(id_leaf))
		return 3; /* all are armed at the start */
	for (int i = 0; i < 10; i++) {
		x += outer(x) & 1;
		if (i % 5 == 4)
			set(id_outer, 1);
	}
	for (int bit = 1; bit < 8; bit++) {
		set(id_leaf, 1 << bit); /* a reason of any kind */
		x += leaf(x) & 1;
	}
	set(id_leaf, 0xfe);
	x += leaf(x) & 1;
	set(id_leaf, 1);
	x += leaf(x) & 1;
	printf("outer %ld\nleaf %ld\nmain 1\n", n_outer, n_leaf);
	return x < 0;
}
