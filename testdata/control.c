/* Does what standard input says, a line each: "work N" calls each function N times, "thread N" the same in a new thread,
   "fork N" in a child, "slow" takes a few milliseconds, "load LIBRARY N" calls library_function N times, "unload LIBRARY N"
   unloads it, and with N takes its place, "fail N" sets errno. "busy N" has N threads do nothing but call empty without an end, "storm N" fork children. "map N" maps N GiB that it does not touch. "hold 1" has a word on
   the stack that leads into the middle of outer, until "hold 0". "raise N" has a signal come. "keep N" forks children that
   work as long as this one is their parent, "reload LIBRARY" one that loads it again and again, "orphan N" one that works as long as
   this one is there, and whose parent has ended. It answers "done" to each, and ends with status 7. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone))

#ifdef __CET__
#define ENTRY 4 /* endbr64 */
#else
#define ENTRY 0
#endif

static volatile int count;

NOINLINE int leaf(int n) { count++; return n + 1; }
NOINLINE int middle(int n) { int r = leaf(n); count++; return r; }
NOINLINE int outer(int n) { int r = middle(n) + leaf(n); count++; return r; }
NOINLINE int other(int n) { int r = leaf(n); count++; return r; }

NOINLINE int slow(int n)
{
	struct timespec t = { 0, 20000000 };
	nanosleep(&t, 0);
	return leaf(n);
}

NOINLINE int work(int n)
{
	int r = 0;
	for (int i = 0; i < n; i++) {
		r += outer(i) + other(i);
		syscall(SYS_getppid);
	}
	return r;
}

NOINLINE int fails(int n) { errno = n; return -1; }

static void *thread(void *n) { return (void *)(long)work((int)(long)n); }

NOINLINE void empty(void) { __asm__ volatile(""); }

static void *busy(void *n)
{
	for (;;)
		empty();
	return n;
}

static void *storm(void *n)
{
	for (;;) {
		pid_t child = fork();
		if (!child) {
			work(1000);
			_exit(3);
		}
		waitpid(child, 0, 0);
	}
	return n;
}

static char *volatile *held;

NOINLINE void obey(char *line)
{
	char name[200];
	int n = 0, status;
	pthread_t t;
	if (sscanf(line, "work %d", &n) == 1) {
		work(n);
	} else if (sscanf(line, "thread %d", &n) == 1) {
		pthread_create(&t, 0, thread, (void *)(long)n);
		pthread_join(t, 0);
	} else if (sscanf(line, "fork %d", &n) == 1) {
		pid_t child = fork();
		if (!child) {
			work(n);
			_exit(3);
		}
		waitpid(child, &status, 0);
	} else if (!strcmp(line, "slow\n")) {
		slow(n);
	} else if (sscanf(line, "storm %d", &n) == 1) {
		while (n--)
			pthread_create(&t, 0, storm, 0);
	} else if (sscanf(line, "raise %d", &n) == 1) {
		raise(n);
	} else if (sscanf(line, "busy %d", &n) == 1) {
		while (n--)
			pthread_create(&t, 0, busy, 0);
	} else if (sscanf(line, "hold %d", &n) == 1) {
		*held = n ? (char *)outer + ENTRY + 2 : 0;
	} else if (sscanf(line, "map %d", &n) == 1) {
		mmap(0, (size_t)n << 30, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	} else if (sscanf(line, "keep %d", &n) == 1) {
		pid_t parent = getpid();
		while (n--)
			if (!fork()) {
				for (; getppid() == parent; usleep(1000))
					work(1);
				_exit(3);
			}
	} else if (sscanf(line, "reload %199s", name) == 1) {
		pid_t parent = getpid();
		if (!fork()) {
			while (getppid() == parent)
				dlclose(dlopen(name, RTLD_NOW));
			_exit(3);
		}
	} else if (sscanf(line, "orphan %d", &n) == 1) {
		pid_t first = getpid(), child = fork();
		if (!child) {
			if (!fork())
				for (; !kill(first, 0); usleep(1000))
					work(n);
			_exit(3);
		}
		waitpid(child, &status, 0);
	} else if (sscanf(line, "fail %d", &n) == 1) {
		fails(n);
	} else if (sscanf(line, "load %199s %d", name, &n) == 2) {
		void *l = dlopen(name, RTLD_NOW);
		int (*f)(int) = l ? (int (*)(int))dlsym(l, "library_function") : 0;
		for (int i = 0; f && i < n; i++)
			f(i);
		if (!f)
			printf("%s\n", dlerror());
	} else if (sscanf(line, "unload %199s %d", name, &n) == 2) {
		void *l = dlopen(name, RTLD_NOW);
		Dl_info at = { 0 };
		dladdr(dlsym(l, "library_function"), &at);
		for (; l; l = dlopen(name, RTLD_NOW | RTLD_NOLOAD)) {
			dlclose(l);
			if (dlclose(l))
				break;
		}
		if (n && mmap(at.dli_fbase, 1, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) != at.dli_fbase)
			perror("mmap");
	}
}

int main(void)
{
	char line[300];
	char *volatile word = 0;
	held = &word;
	setvbuf(stdout, 0, _IOLBF, 0);
	printf("%d\n", getpid());
	while (fgets(line, sizeof line, stdin)) {
		obey(line);
		puts("done");
	}
	return 7;
}
