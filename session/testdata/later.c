/* Loads its library when it runs, by two paths and again and again, also in a child, and prints
   what it gets. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void copies(const char *path)
{
	char line[4096];
	int n = 0;
	FILE *f = fopen("/proc/self/maps", "r");
	while (f && fgets(line, sizeof line, f)) {
		char *p = strchr(line, '/');
		if (p && strstr(p, "library") && strstr(line, "r-xp") && ++n)
			printf("maps %s", p);
	}
	fclose(f);
	printf("copies %d\n", n);
}

static int load(const char *path)
{
	void *h = dlopen(path, RTLD_NOW);
	if (!h) {
		printf("%s\n", dlerror());
		exit(9);
	}
	int (*answer)(void) = (int (*)(void))dlsym(h, "answer");
	int a = answer();
	dlclose(h);
	return a;
}

int main(int argc, char **argv)
{
	if (argc > 3) { /* when it is told to */
		printf("ready\n");
		fflush(stdout);
		getchar();
	}
	int first = load(argv[1]), sum = 0;
	void *h = dlopen(argv[1], RTLD_NOW), *i = dlopen(argv[2], RTLD_NOW);
	printf("answer %d, %s\n", first, h == i ? "one" : "two");
	copies(argv[1]);
	dlclose(h);
	dlclose(i);
	for (int k = 0; k < 100; k++)
		sum += load(argv[1 + k % 2]);
	printf("sum %d\n", sum);
	fflush(stdout);
	pid_t pid = fork();
	int status = 0;
	if (!pid)
		_exit(load(argv[2]));
	waitpid(pid, &status, 0);
	printf("child %d, none %d\n", WEXITSTATUS(status), dlopen("/nosuch/library.so", RTLD_NOW) != 0);
	return 7;
}
