/* The program "fentry demo" traces: small enough to read its whole trace, with
 * the things that make call graphs interesting: recursive descent, recursion,
 * a tail call, errors that leave several calls at once, threads.
 *
 * Built by build.sh; what it prints is in demo.out and the number of calls of
 * each function is the same in every run.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Without these the compiler would melt the program into two functions. */
#define FN __attribute__((noipa))

/* The profiling call of a program that nobody traces. */
__asm__(".globl __fentry__\n"
	".type __fentry__, @function\n"
	"__fentry__: ret\n"
	".size __fentry__, .-__fentry__\n");

/* A calculator: expression = term {+ term}, term = factor {* factor}. */

static const char *input;
static jmp_buf failed;
static const char *why;

FN void parse_error(const char *reason)
{
	why = reason;
	longjmp(failed, 1);
}

FN long parse_expression(void);

FN long parse_number(void)
{
	char *end;
	long n = strtol(input, &end, 10);

	if (end == input)
		parse_error("a number is missing");
	input = end;
	return n;
}

FN long parse_factor(void)
{
	if (*input != '(')
		return parse_number();	/* a tail call */
	input++;
	long v = parse_expression();
	if (*input != ')')
		parse_error("a parenthesis is missing");
	input++;
	return v;
}

FN long divide(long a, long b)
{
	if (b == 0)
		parse_error("division by zero");
	return a / b;
}

FN long parse_term(void)
{
	long v = parse_factor();

	while (*input == '*' || *input == '/') {
		if (*input++ == '*')
			v *= parse_factor();
		else
			v = divide(v, parse_factor());
	}
	return v;
}

FN long parse_expression(void)
{
	long v = parse_term();

	while (*input == '+' || *input == '-') {
		if (*input++ == '+')
			v += parse_term();
		else
			v -= parse_term();
	}
	return v;
}

FN void calculate(const char *s)
{
	input = s;
	if (setjmp(failed)) {
		printf("%s: %s\n", s, why);
		return;
	}
	printf("%s = %ld\n", s, parse_expression());
}

/* Quicksort, and the numbers for it. */

static unsigned seed = 42;

FN unsigned next_random(void)
{
	seed = seed * 1103515245 + 12345;
	return seed >> 16 & 0xff;
}

FN int partition(int *v, int n)
{
	int pivot = v[n - 1], at = 0;

	for (int i = 0; i < n; i++)
		if (v[i] < pivot) {
			int t = v[i];
			v[i] = v[at];
			v[at++] = t;
		}
	v[n - 1] = v[at];
	v[at] = pivot;
	return at;
}

FN void quicksort(int *v, int n)
{
	if (n < 2)
		return;
	int p = partition(v, n);
	quicksort(v, p);
	quicksort(v + p + 1, n - p - 1);
}

FN void sort_numbers(void)
{
	int v[16];

	for (int i = 0; i < 16; i++)
		v[i] = next_random();
	quicksort(v, 16);
	printf("sorted:");
	for (int i = 0; i < 16; i++)
		printf(" %d", v[i]);
	printf("\n");
}

/* Threads: each searches a part of the numbers for the longest Collatz chain. */

struct range {
	int from, to, best, steps;
};

FN int collatz(unsigned long n)
{
	int steps = 0;

	for (; n != 1; steps++)
		n = n % 2 ? 3 * n + 1 : n / 2;
	return steps;
}

FN void *search(void *arg)
{
	struct range *r = arg;

	for (int n = r->from; n < r->to; n++) {
		int steps = collatz(n);
		if (steps > r->steps) {
			r->steps = steps;
			r->best = n;
		}
	}
	return 0;
}

FN void search_in_threads(void)
{
	struct range r[3] = { { 1, 100 }, { 100, 200 }, { 200, 300 } };
	pthread_t t[3];
	int best = 0;

	for (int i = 0; i < 3; i++)
		if (pthread_create(&t[i], 0, search, &r[i])) {
			perror("pthread_create");
			exit(1);
		}
	for (int i = 0; i < 3; i++) {
		pthread_join(t[i], 0);
		if (r[i].steps > r[best].steps)
			best = i;
	}
	printf("longest Collatz chain below 300: %d steps from %d\n", r[best].steps, r[best].best);
}

int main(void)
{
	calculate("12*(3+4)-5");
	calculate("2*(1+8/(4-2*2))");
	sort_numbers();
	search_in_threads();
	return 0;
}
