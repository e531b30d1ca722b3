/* A program that executes its argument with the rest of them when a line comes. It has begun when its name is "ready". */
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

__attribute__((noipa)) static int awaited(char *line, int size) { return fgets(line, size, stdin) != NULL; }

/* It begins with a call, so it is left alone in a process that runs already, which is said. */
__attribute__((noipa)) static int number(void) { return getpid() + 1; }

int main(int argc, char **argv)
{
	char line[2]; /* no more than a line, as the rest is for who comes */
	setvbuf(stdin, NULL, _IONBF, 0);
	prctl(PR_SET_NAME, "ready");
	if (!awaited(line, sizeof line) || argc < 2 || !number())
		return 1;
	execv(argv[1], argv + 1);
	return 2;
}
