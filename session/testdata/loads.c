/* Prints what a program can see of its library: the answer, the file's name in maps, and how
   often it is there. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int answer(void), signals(void);

int main(int argc, char **argv)
{
	char line[4096], *who = getenv("LIBRARY");
	int copies = 0;
	FILE *f = fopen("/proc/self/maps", "r");
	printf("%s answer %d signals %d\n", who ? who : "-", answer(), signals());
	while (f && fgets(line, sizeof line, f)) {
		char *path = strchr(line, '/');
		if (path && strstr(path, "library") && strstr(line, "r-xp") && ++copies)
			printf("maps %s", path);
	}
	printf("copies %d, %s\n", copies, argc > 1 ? argv[1] : "");
	return 7;
}
