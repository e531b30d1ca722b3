// A filter: reads its standard input to the end, answers on both outputs, ends with a status of its own.
//e2e:stdin the quick brown fox\njumps over\n\nthe lazy dog\n
#include "count.h"
#include <ctype.h>

FN static int upper(int c) { COUNT(); return toupper(c); }
FN static int line(char *s)
{
	COUNT();
	int words = 0;
	for (int in = 0; *s; s++) {
		*s = (char)upper(*s);
		words += *s == 32 || *s == 10 ? (in = 0) : !in++;
	}
	return words;
}
int main(void)
{
	COUNT();
	char buf[256];
	int n = 0, words = 0;
	while (fgets(buf, sizeof buf, stdin)) {
		words += line(buf);
		fputs(buf, stdout);
		fprintf(stderr, "line %d\n", ++n);
	}
	printf("%d words, no newline at the end", words);
	return words;
}
