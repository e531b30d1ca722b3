/* Shows what a program can see of how it was started, and which of two versions it is. */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef ANSWER
#define ANSWER 1
#endif

int main(int argc, char **argv)
{
	char exe[4096];
	ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
	printf("answer %d\nexe %.*s\n", ANSWER, (int)n, n < 0 ? "" : exe);
	for (int i = 0; i < argc; i++)
		printf("arg %s\n", argv[i]);
	printf("own file %s\n", open("/proc/self/exe", O_RDONLY) >= 0 ? "opens" : "does not open");
	DIR *d = opendir("/proc/self/fd");
	char open_fds[64] = "";
	for (struct dirent *e; (e = readdir(d));)
		if (e->d_name[0] != '.' && atoi(e->d_name) < 64)
			open_fds[atoi(e->d_name)] = 1;
	printf("descriptors");
	for (int i = 0; i < 64; i++)
		if (open_fds[i])
			printf(" %d", i);
	struct sigaction sa;
	sigset_t mask;
	sigprocmask(SIG_BLOCK, 0, &mask);
	for (int s = 1; s < 32; s++) {
		if (sigaction(s, 0, &sa) == 0 && sa.sa_handler == SIG_IGN)
			printf("\nignored %d", s);
		if (sigismember(&mask, s))
			printf("\nblocked %d", s);
	}
	printf("\n");
	fflush(stdout);
	if (argc > 1 && !strcmp(argv[1], "kill"))
		raise(SIGUSR1);
	return 7;
}
