/* The heap grows when a line says so: "done" if all of it could be had. It has begun when the program says "ready". */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

__attribute__((noipa)) static void touch(char *first, long size)
{
	first[0] = 1;
	first[size / 2] = 1;
	first[size - 1] = 1;
}

static int grow(long size)
{
	char *at = sbrk(size);
	if (at == (char *)-1)
		return 0;
	touch(at, size);
	return 1;
}

int main(void)
{
	char line[100];
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (!grow(4096))
		return 1;
	prctl(PR_SET_NAME, "ready");
	puts("ready");
	while (fgets(line, sizeof line, stdin)) {
		int could = 1;
		for (long n = atol(line); n > 0 && could; n--)
			could = grow(1 << 20);
		puts(could ? "done" : "failed");
	}
	return 5;
}
