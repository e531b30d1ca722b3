// posix_spawn, posix_spawnp, popen and system, each with its own status.
#include "count.h"
#include <spawn.h>
#include <sys/wait.h>

extern char **environ;

FN static int leaf(int n) { COUNT(); return n + 1; }
FN static int spawn(const char *script, int by_path)
{
	COUNT();
	char *argv[] = {(char *)"sh", (char *)"-c", (char *)script, NULL};
	pid_t p;
	posix_spawn_file_actions_t fa;
	posix_spawn_file_actions_init(&fa);
	posix_spawn_file_actions_adddup2(&fa, 1, 2);
	int e = by_path ? posix_spawnp(&p, "sh", &fa, NULL, argv, environ) : posix_spawn(&p, "/bin/sh", &fa, NULL, argv, environ);
	posix_spawn_file_actions_destroy(&fa);
	if (e)
		return -e;
	int st;
	waitpid(p, &st, 0);
	return leaf(WEXITSTATUS(st));
}
FN static int reader(void)
{
	COUNT();
	char line[64] = "";
	FILE *f = popen("echo from popen", "r");
	if (!f || !fgets(line, sizeof line, f))
		return -1;
	say("%s", line);
	return leaf(pclose(f));
}
int main(void)
{
	COUNT();
	say("spawn %d\n", spawn("echo to stderr >&2; exit 11", 0));
	say("spawnp %d\n", spawn("exit 12", 1));
	say("missing %d\n", spawn("exec /does/not/exist 2>/dev/null", 0));
	say("popen %d\n", reader());
	say("system %d\n", leaf(WEXITSTATUS(system("exit 13"))));
	return leaf(0);
}
