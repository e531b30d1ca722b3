// Lowers its own limits below what it already uses and goes on: descriptors, address space, file size, stack, core, locked memory.
//e2e:run nofile
//e2e:run as
//e2e:run fsize
//e2e:run stack
//e2e:run data
//e2e:run nproc
//e2e:may-lose data
//e2e:may-lose emulated:nofile
#include "count.h"
#include <errno.h>
#include <pthread.h>
#include <sys/resource.h>

FN static unsigned work(unsigned n) { COUNT(); return n ? KEEP(work(n - 1)) * 3 + 1 : 1; }
FN static unsigned loop(int n) { COUNT(); unsigned s = 0; for (int i = 0; i < n; i++) s += work((unsigned)i % 10); return s; }
FN static unsigned deep(int n)
{
	COUNT();
	volatile char pad[1000];
	pad[0] = 1;
	return n ? KEEP(deep(n - 1)) + (unsigned)pad[0] : 0;
}
FN static void limit(int what, rlim_t n)
{
	COUNT();
	struct rlimit r = {n, n};
	if (setrlimit(what, &r))
		say("setrlimit: %s\n", strerror(errno));
}
FN static void *thread(void *p) { COUNT(); *(unsigned *)p = loop(20000); return NULL; }
int main(int argc, char **argv)
{
	COUNT();
	const char *what = argc > 1 ? argv[1] : "nofile";
	unsigned a = loop(1000), r = 0;
	if (!strcmp(what, "nofile")) {
		limit(RLIMIT_NOFILE, 4);
		say("opens %d\n", open("/dev/null", O_RDONLY) >= 0);
	} else if (!strcmp(what, "as")) {
		limit(RLIMIT_AS, 512 << 20);
		say("maps %d\n", mmap(NULL, 1ul << 30, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED);
	} else if (!strcmp(what, "fsize")) {
		limit(RLIMIT_FSIZE, 2 << 20); // enough for gmon.out, too little for a trace
	} else if (!strcmp(what, "stack")) {
		limit(RLIMIT_STACK, 1 << 20);
		say("deep %u\n", deep(600));
	} else if (!strcmp(what, "data")) {
		limit(RLIMIT_DATA, 16 << 20);
	} else if (!strcmp(what, "nproc")) {
		limit(RLIMIT_CORE, 0);
		limit(RLIMIT_MEMLOCK, 0);
		limit(RLIMIT_NICE, 0);
		limit(RLIMIT_SIGPENDING, 0);
	}
	unsigned b = loop(100000);
	pthread_attr_t at;
	pthread_attr_init(&at);
	pthread_attr_setstacksize(&at, 256 << 10);
	pthread_t t;
	int e = pthread_create(&t, &at, thread, &r);
	if (!e)
		pthread_join(t, NULL);
	say("%s %x %x thread %d %x\n", what, a, b, e, r);
	return 0;
}
