// The classic daemon: fork, setsid, fork, chdir, umask, descriptors onto /dev/null. It reports through a pipe, which ends when it does.
#include "count.h"
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

FN static unsigned work(unsigned n) { COUNT(); return n * 2246822519u ^ n >> 3; }
FN static unsigned serve(int rounds)
{
	COUNT();
	unsigned h = 1;
	for (int i = 0; i < rounds; i++)
		h = work(h);
	return h;
}
FN static void become_daemon(int out)
{
	COUNT();
	if (fork() > 0)
		_exit(0);
	if (setsid() < 0)
		_exit(1);
	signal(SIGHUP, SIG_IGN);
	if (fork() > 0)
		_exit(0);
	if (chdir("/") < 0)
		_exit(1);
	umask(0);
	int null = open("/dev/null", O_RDWR);
	for (int i = 0; i < 3; i++)
		dup2(null, i);
	long max = sysconf(_SC_OPEN_MAX);
	for (int fd = 3; fd < max && fd < 4096; fd++)
		if (fd != out)
			close(fd);
}
FN static void daemon_main(int out)
{
	COUNT();
	become_daemon(out);
	usleep(50000);
	dprintf(out, "daemon computed %x\n", serve(20000));
	ABANDON(1); // this frame; become_daemon was entered in one process and left in another
	_exit(0);
}
int main(void)
{
	COUNT();
	int p[2];
	if (pipe(p))
		return 1;
	pid_t c = fork();
	if (c == 0) {
		close(p[0]);
		daemon_main(p[1]);
	}
	close(p[1]);
	char buf[128];
	ssize_t n, all = 0;
	while ((n = read(p[0], buf + all, sizeof buf - 1 - (size_t)all)) > 0)
		all += n;
	buf[all] = 0;
	int st;
	waitpid(c, &st, 0);
	say("%sfirst child %d\n", buf, st);
	say("main %x\n", serve(10));
	return 0;
}
