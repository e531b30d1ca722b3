/* Executes itself in every way that a C library has, as often as it is told, or slowly. Each
   program that begins calls child once. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
static char *self, *name;
static volatile int alarms, calm;

/* alarm_soon: the next alarm comes after 0.3 to 5 ms. With one every 0.3 ms a fork, which the kernel begins anew when a signal
   comes, would never be done on a slow machine. */
static void alarm_soon(void)
{
	struct itimerval next = { { 0, 0 }, { 0, 300 + alarms * 37 % 48 * 100 } };
	setitimer(ITIMER_REAL, &next, 0);
}

static void on_alarm(int sig)
{
	alarms += sig != 0;
	if (!calm)
		alarm_soon();
}

/* child says which program this is, and what it has inherited. */
__attribute__((noinline)) static int child(char **argv)
{
	char line[256];
	FILE *f = fopen("/proc/self/status", "r");
	printf("%s:", argv[2]);
	while (f && fgets(line, sizeof line, f))
		if (!strncmp(line, "TracerPid", 9) || !strncmp(line, "SigBlk", 6) || !strncmp(line, "SigIgn", 6))
			printf(" %s", strtok(strchr(line, '\t') + 1, "\n"));
	puts("");
	return atoi(argv[3]);
}

static int status_of(pid_t pid)
{
	int s;
	while (waitpid(pid, &s, 0) < 0 && errno == EINTR)
		;
	return WIFEXITED(s) ? WEXITSTATUS(s) : 1000 + WTERMSIG(s);
}

static void *from_thread(void *way)
{
	char *argv[] = { self, "child", way, "7", 0 };
	execv(self, argv);
	return 0;
}

static int ways(void)
{
	static const char *const all[] = {
		"execv", "vfork", "execl", "execvp", "blocked", "ignored", "killed", "posix_spawn", "posix_spawnp", "thread",
#ifdef __GLIBC__
		"fexecve", "execveat",
#endif
		"nothing", "no program", "directory",
	};
	for (unsigned i = 0; i < sizeof all / sizeof *all; i++) {
		char *way = strdup(all[i]), *argv[] = { self, "child", way, "3", 0 };
		pid_t pid = -1;
		fflush(stdout);
		if (!strcmp(way, "posix_spawn"))
			posix_spawn(&pid, self, 0, 0, argv, environ);
		else if (!strcmp(way, "posix_spawnp"))
			posix_spawnp(&pid, name, 0, 0, argv, environ);
		else if (!strcmp(way, "vfork")) {
			if ((pid = vfork()) == 0) {
				execv(self, argv);
				_exit(99);
			}
		} else if ((pid = fork()) == 0) {
			sigset_t some;
			pthread_t t;
			sigemptyset(&some);
			sigaddset(&some, SIGUSR1);
			if (!strcmp(way, "blocked"))
				sigprocmask(SIG_BLOCK, &some, 0);
			if (!strcmp(way, "ignored"))
				signal(SIGUSR2, SIG_IGN);
			if (!strcmp(way, "execl"))
				execl(self, self, "child", way, "4", (char *)0);
			if (!strcmp(way, "execvp"))
				execvp(name, argv);
			if (!strcmp(way, "nothing"))
				execl("/nonexistent/program", "x", (char *)0);
			if (!strcmp(way, "no program"))
				execl("/etc/passwd", "x", (char *)0);
			if (!strcmp(way, "directory"))
				execl("/", "x", (char *)0);
			if (!strcmp(way, "killed")) {
				sigprocmask(SIG_BLOCK, &some, 0);
				raise(SIGUSR1); /* it comes when the program lets it in */
				execl(self, self, "unblock", (char *)0);
			}
			if (!strcmp(way, "thread") && !pthread_create(&t, 0, from_thread, way))
				pthread_join(t, 0);
#ifdef __GLIBC__
			int fd = open(self, O_RDONLY | O_CLOEXEC);
			if (!strcmp(way, "fexecve"))
				fexecve(fd, argv, environ);
			if (!strcmp(way, "execveat"))
				execveat(fd, "", argv, environ, AT_EMPTY_PATH);
#endif
			if (!strcmp(way, "execv") || !strcmp(way, "blocked") || !strcmp(way, "ignored"))
				execv(self, argv);
			_exit(errno);
		}
		int s = status_of(pid);
		printf("%s %d\n", way, s);
	}
	fflush(stdout);
	execl(self, self, "child", "last", "9", (char *)0);
	return 1;
}

/* storm executes n programs while a timer interrupts it; some of the calls fail. */
static int storm(int n)
{
	struct sigaction a = { .sa_handler = on_alarm, .sa_flags = SA_RESTART };
	struct itimerval never = { { 0, 0 }, { 0, 0 } };
	char *argv[] = { self, "child", "storm", "0", 0 };
	int bad = 0;
	sigaction(SIGALRM, &a, 0);
	alarm_soon();
	for (int i = 0; i < n; i++) {
		pid_t pid = -1;
		fflush(stdout);
		if (i % 3 == 0)
			posix_spawn(&pid, self, 0, 0, argv, environ);
		else if ((pid = i % 3 == 1 ? vfork() : fork()) == 0) {
			execl("/etc/passwd", "x", (char *)0);
			execv(self, argv);
			_exit(99);
		}
		bad += pid < 0 || status_of(pid) != 0;
	}
	calm = 1;
	setitimer(ITIMER_REAL, &never, 0);
	printf("%d failed, interrupted %d\n", bad, alarms > 0);
	return bad;
}

int main(int argc, char **argv)
{
	self = realpath("/proc/self/exe", 0);
	name = strrchr(self, '/') + 1;
	if (argc > 3 && !strcmp(argv[1], "child"))
		return child(argv);
	if (argc > 1 && !strcmp(argv[1], "unblock")) {
		sigset_t none;
		sigemptyset(&none);
		sigprocmask(SIG_SETMASK, &none, 0);
		return 1;
	}
	if (argc > 2 && !strcmp(argv[1], "storm"))
		return storm(atoi(argv[2]));
	if (argc > 2 && !strcmp(argv[1], "slow")) { /* until told to go on, and then some programs more */
		char *again[] = { self, "child", "slow", "0", 0 };
		pid_t pid;
		puts("ready");
		fflush(stdout);
		getchar();
		for (int i = 0; i < atoi(argv[2]); i++)
			if (posix_spawn(&pid, self, 0, 0, again, environ) || status_of(pid))
				return 1;
		puts("done");
		return 0;
	}
	if (argc > 2 && !strcmp(argv[1], "user")) { /* executes another file */
		pid_t pid = fork();
		if (pid == 0) {
			execl(argv[2], argv[2], "id", (char *)0);
			_exit(99);
		}
		return status_of(pid);
	}
	if (argc > 1 && !strcmp(argv[1], "id"))
		return printf("%d\n", (int)geteuid()) < 0;
	return ways();
}
