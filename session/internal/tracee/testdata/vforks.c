// Makes children by vfork, one after the other, that each take .3 s: it waits for them nearly all the time. It says when it begins.
#include <stdio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

int main(void)
{
	struct timespec t = { 0, 300 * 1000 * 1000 };

	puts("");
	fflush(stdout);
	for (;;) {
		pid_t pid = vfork();

		if (pid == 0) {
			nanosleep(&t, NULL);
			_exit(0);
		}
		if (pid < 0 || waitpid(pid, NULL, 0) != pid)
			return 1;
	}
}
