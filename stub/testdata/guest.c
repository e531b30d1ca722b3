/* A shared object that is traced as a guest: guest-home.c loads it. */
#define NI __attribute__((noinline, noipa))

extern void fentry_begin(unsigned long *) __attribute__((visibility("hidden")));
extern unsigned char harness_switches[] __attribute__((visibility("hidden")));

typedef long tail(long n, void *other);
long n_g_leaf, n_g_sum, n_g_tail, joined;

__attribute__((constructor)) static void load(void)
{
	fentry_begin(0);
	joined = harness_switches[0] & 1;
}

NI static long g_leaf(long x)
{
	n_g_leaf++;
	return x + 1;
}

/* Calls its own functions, and the home's by f. */
NI long g_sum(long n, long (*f)(long))
{
	long r = 0;
	n_g_sum++;
	for (long i = 0; i < n; i++)
		r += g_leaf(i) + (f ? f(i) : 0);
	return r;
}

/* Jumps to the other image's function, which jumps back. */
NI long g_tail(long n, void *other)
{
	n_g_tail++;
	return n == 0 ? 1 : ((tail *)other)(n - 1, (void *)g_tail);
}
