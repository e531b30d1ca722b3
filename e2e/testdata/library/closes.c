// Loads and closes libraries, in two threads at once, and others that cannot be loaded; says whether they are gone, and
// what is left of them. The exit status is 1 if anything is.
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { TIMES = 1200, WARM = 200 };

int closed_libraries;

static volatile int stops;
__attribute__((noinline)) void stop(void) { stops++; }
__attribute__((noinline)) void go_on(void) { stops--; }

static pthread_barrier_t turn;

// mappings counts those whose line has some text.
static int mappings(const char *text)
{
	static char b[1 << 20];
	int fd = open("/proc/self/maps", O_RDONLY), n = 0;
	ssize_t have = 0, r;
	while ((r = read(fd, b + have, sizeof b - 1 - have)) > 0)
		have += r;
	close(fd);
	b[have] = 0;
	for (char *p = b, *e; (e = strchr(p, '\n')); p = e + 1) {
		*e = 0;
		n += strstr(p, text) != 0;
	}
	return n;
}

// own counts those that are not of a recorder's buffer, of which more is mapped when the recorder is late.
static int own(void) { return mappings("-") - mappings("/memfd:fentry-pool"); }

// resident is how much memory is the process's own: what it shares with a recorder is not.
static long resident(void)
{
	long pages = 0, shared = 0;
	char b[99] = "";
	int fd = open("/proc/self/statm", O_RDONLY);
	if (read(fd, b, sizeof b - 1) > 0)
		sscanf(b, "%*d %ld %ld", &pages, &shared);
	close(fd);
	return (pages - shared) * sysconf(_SC_PAGESIZE);
}

static void use(const char *path, const char *name)
{
	void *h = dlopen(path, RTLD_NOW);
	if (!h) {
		puts(dlerror());
		exit(2);
	}
	((int (*)(int))dlsym(h, name))(1);
	dlclose(h);
}

static void *other(void *arg)
{
	(void)arg;
	for (int i = 0; i < TIMES; i++) {
		pthread_barrier_wait(&turn);
		use("./libtwo.so", "two_leaf");
		pthread_barrier_wait(&turn);
	}
	return 0;
}

int main(void)
{
	pthread_t thread;
	long before = 0, after;
	int all = 0;
	pthread_barrier_init(&turn, 0, 2);
	pthread_create(&thread, 0, other, 0);
	for (int i = 0; i < TIMES; i++) {
		void *hole = 0;
		if (i % 7 == 3) // what comes is somewhere else
			hole = mmap(0, 1 << 20, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (i % 10 == 0)
			stop();
		if (i % 5 == 0 && dlopen("./libfails.so", RTLD_NOW))
			return 3;
		pthread_barrier_wait(&turn);
		use("./libone.so", "one_leaf");
		pthread_barrier_wait(&turn);
		if (i % 10 == 0)
			go_on();
		if (hole)
			munmap(hole, 1 << 20);
		if (i == WARM) {
			before = resident();
			all = own();
		}
	}
	after = resident();
	pthread_join(thread, 0);
	int left = mappings("libone") + mappings("libtwo") + mappings("libfails") + mappings("libneeded");
	printf("%d closed\n", closed_libraries);
	if (left)
		printf("%d still mapped\n", left);
	if (own() > all + 8)
		printf("%d mappings, were %d\n", own(), all);
	if (after > before + (1 << 20))
		printf("%ld KiB, were %ld\n", after >> 10, before >> 10);
	return closed_libraries != 2 * TIMES || left || own() > all + 8 || after > before + (1 << 20);
}
