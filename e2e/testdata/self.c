// Looks at itself: /proc/self/exe, argv[0], the auxiliary vector, its environment, its parent, its own file, and a library beside it by $ORIGIN.
//e2e:args one two
//e2e:library origin
//e2e:path same
// its library is made for glibc
//e2e:compilers gcc clang
#include "count.h"
#include <sys/auxv.h>
#include <sys/stat.h>

extern char **environ;
extern int origin_value(int (*)(int));

FN static int callback(int n) { COUNT(); return n * 2; }
FN static void show_link(const char *link)
{
	COUNT();
	char buf[4096];
	ssize_t n = readlink(link, buf, sizeof buf - 1);
	if (n < 0)
		n = 0;
	buf[n] = 0;
	char *base = strrchr(buf, '/');
	say("%s ends in %s\n", link, base ? base : buf);
}
FN static void show_environment(void)
{
	COUNT();
	int n = 0;
	for (char **e = environ; *e; e++)
		if (strncmp(*e, "FENTRY_", 7)) // a program patched on disk is told its trace directory this way
			say("env %d %s\n", n++, *e);
}
int main(int argc, char **argv)
{
	COUNT();
	for (int i = 0; i < argc; i++)
		say("argv %d %s\n", i, argv[i]);
	show_link("/proc/self/exe");
	say("execfn %s\n", (const char *)getauxval(AT_EXECFN));
	show_environment();
	pid_t parent = getppid();
	say("parent %d session %d group %d\n", parent > 1, getsid(0) > 0, getpgrp() > 0);
	struct stat a, b;
	say("same file %d\n", !stat("/proc/self/exe", &a) && !stat(argv[0], &b) && a.st_ino == b.st_ino && a.st_dev == b.st_dev);
	FILE *f = fopen("/proc/self/exe", "rb");
	char magic[4] = "";
	say("magic %d\n", f && fread(magic, 4, 1, f) == 1 && !memcmp(magic, "\177ELF", 4));
	char comm[32] = "";
	f = fopen("/proc/self/comm", "r");
	say("comm %s", f && fgets(comm, sizeof comm, f) ? comm : "?\n");
	say("origin %d\n", origin_value(callback));
	say("parent stays %d\n", parent == getppid());
	return 0;
}
