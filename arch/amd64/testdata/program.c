/* A program with functions of the usual shapes; it prints what they compute. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N __attribute__((noinline, noclone))

static int counter;
static const char *const words[] = {"one", "two", "three", "four"};
static double weights[4] = {0.5, 1.5, 2.5, 3.5};

N int count(void) { return ++counter; }
N int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
N int even(int n);
N int odd(int n) { return n == 0 ? 0 : even(n - 1); }
N int even(int n) { return n == 0 ? 1 : odd(n - 1); }

N const char *word(unsigned i)
{
	switch (i) {
	case 0: return words[3];
	case 1: return words[2];
	case 2: return words[1];
	case 3: return words[0];
	case 7: return "seven";
	}
	return "many";
}

N double weigh(int n)
{
	double s = 0;
	for (int i = 0; i < n; i++)
		s += weights[i & 3] * i;
	return s;
}

N int sum(int n, ...)
{
	va_list ap;
	int s = 0;
	va_start(ap, n);
	while (n-- > 0)
		s += va_arg(ap, int);
	va_end(ap);
	return s;
}

struct big { long a[9]; };
N struct big make(long n)
{
	struct big b;
	for (int i = 0; i < 9; i++)
		b.a[i] = n * i;
	return b;
}
N long total(struct big b)
{
	long s = 0;
	for (int i = 0; i < 9; i++)
		s += b.a[i];
	return s;
}

N int compare(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

N unsigned hash(const char *s)
{
	unsigned h = 5381;
	while (*s)
		h = h * 33 ^ (unsigned char)*s++;
	return h;
}

N char *reverse(char *s)
{
	size_t n = strlen(s);
	char *r = malloc(n + 1);
	for (size_t i = 0; i < n; i++)
		r[i] = s[n - 1 - i];
	r[n] = 0;
	return r;
}

N long collatz(long n)
{
	long steps = 0;
	while (n != 1) {
		n = n & 1 ? 3 * n + 1 : n / 2;
		steps++;
	}
	return steps;
}

int main(void)
{
	int v[64];
	for (int i = 0; i < 64; i++)
		v[i] = hash(word(i & 7)) >> (i & 15) & 1023;
	qsort(v, 64, sizeof *v, compare);
	for (int i = 0; i < 64; i += 7)
		printf("%d ", v[i]);
	printf("\nfib %d even %d %d\n", fib(18), even(10), odd(10));
	for (int i = 0; i < 9; i++)
		printf("%s %d\n", word(i), count());
	printf("%.3f %d %ld\n", weigh(100), sum(4, 1, 20, 300, 4000), total(make(7)));
	char *r = reverse("never odd or even");
	printf("%s %ld\n", r, collatz(27));
	free(r);
	return 0;
}
