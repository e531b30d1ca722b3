/* Counts the words of its input by length. Nothing in it knows of tracing. */
#include <ctype.h>
#include <stdio.h>

#define MAX 16

static int count[MAX + 1];

__attribute__((noinline)) static int read_word(FILE *f)
{
	int c, n = 0;

	while ((c = getc(f)) != EOF && isspace(c))
		;
	for (; c != EOF && !isspace(c); c = getc(f))
		n++;
	return n;
}

__attribute__((noinline)) static void count_word(int n)
{
	count[n > MAX ? MAX : n]++;
}

__attribute__((noinline)) static void count_words(FILE *f)
{
	int n;

	while ((n = read_word(f)) > 0)
		count_word(n);
}

__attribute__((noinline)) static void print_counts(void)
{
	for (int i = 1; i <= MAX; i++)
		if (count[i])
			printf("%2d letters: %d\n", i, count[i]);
}

int main(void)
{
	count_words(stdin);
	print_counts();
	return 0;
}
