/* What programs do to their stacks, threads and processes. The argument says what;
   the output counts the calls of the functions that matter. */
#define _GNU_SOURCE
#ifdef __x86_64__
#include <asm/prctl.h>
#endif
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>
#define NI __attribute__((noipa))
#define PLAIN __attribute__((noipa, patchable_function_entry(0)))

static _Atomic long n_leaf, n_nest, n_handler, n_inner, n_work, n_odd, n_jump, n_step, n_big;
NI void leaf(void) { n_leaf++; __asm__ volatile(""); }
NI void nest(int n) { n_nest++; if (n > 0) nest(n - 1); else leaf(); __asm__ volatile(""); }
NI void inner(void) { n_inner++; __asm__ volatile(""); }
PLAIN static void calm(long n);
NI void handler(int s) { calm(++n_handler); inner(); inner(); __asm__ volatile(""); }
NI long odd(long n);
NI long even(long n) { return n == 0 ? 1 : odd(n - 1); }
NI long odd(long n) { n_odd++; return n == 0 ? 0 : even(n - 1); }

PLAIN static void print(const char *name, long n) { if (n) printf("%s %ld\n", name, n); }
PLAIN static void counts(void)
{
	print("leaf", n_leaf); print("nest", n_nest); print("handler", n_handler);
	print("inner", n_inner); print("work", n_work); print("odd", n_odd);
	print("jump", n_jump); print("step", n_step); print("big", n_big);
}

/* signals at a high rate while traced functions run, until there have been enough: where a handler takes longer than it is
   to the next one, the program would never go on; alt: on a stack of their own */
static timer_t often;
PLAIN static void calm(long n)
{
	struct itimerspec never = { { 0, 0 }, { 0, 0 } };
	if (n >= 20000) timer_settime(often, 0, &never, 0);
}
PLAIN static void signals(int alt)
{
	static char mem[1 << 16];
	struct sigaction sa = { .sa_handler = handler, .sa_flags = SA_RESTART | (alt ? SA_ONSTACK : 0) };
	if (alt) {
		stack_t ss = { .ss_sp = alt == 2 ? malloc(sizeof mem) : mem, .ss_size = sizeof mem };
		sigaltstack(&ss, 0);
	}
	sigaction(SIGALRM, &sa, 0);
	struct sigevent ev = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGALRM };
	timer_create(CLOCK_MONOTONIC, &ev, &often);
	struct itimerspec it = { { 0, 50000 }, { 0, 50000 } };
	timer_settime(often, 0, &it, 0);
	for (int i = 0; i < 8000; i++) { nest(10); even(5); }
	memset(&it, 0, sizeof it);
	timer_settime(often, 0, &it, 0);
}

/* longjmp over traced frames, and out of a signal handler on either stack */
static jmp_buf env;
static sigjmp_buf senv;
NI void jump(int n) { n_jump++; if (n == 0) longjmp(env, 1); jump(n - 1); __asm__ volatile(""); }
NI void jumper(void) { inner(); siglongjmp(senv, 1); }
PLAIN static void on_usr1(int s) { n_handler++; jumper(); }
NI void raiser(void) { raise(SIGUSR1); __asm__ volatile(""); }
NI void handler(int s);
PLAIN static void jumps(void)
{
	static char mem[1 << 16];
	for (int i = 0; i < 1000; i++) {
		if (setjmp(env) == 0) jump(i % 20);
		nest(2);
	}
	for (int alt = 0; alt < 2; alt++) {
		struct sigaction sa = { .sa_handler = on_usr1, .sa_flags = alt ? SA_ONSTACK : 0 };
		stack_t ss = { .ss_sp = mem, .ss_size = sizeof mem };
		sigaltstack(&ss, 0);
		sigaction(SIGUSR1, &sa, 0);
		for (int i = 0; i < 500; i++) {
			if (sigsetjmp(senv, 1) == 0) raiser();
			nest(1);
			even(4);
		}
	}
	n_handler = 0; /* not traced */
}

NI void *work(void *arg)
{
	n_work++;
	char name[16];
	snprintf(name, sizeof name, "worker-%ld", (long)arg);
	prctl(PR_SET_NAME, name);
	for (int i = 0; i < 200; i++) nest(3);
	return arg;
}
PLAIN static void threads(int at_once, int all)
{
	pthread_t t[64];
	for (int done = 0; done < all; done += at_once) {
		for (int i = 0; i < at_once; i++) if (pthread_create(&t[i], 0, work, (void *)(long)i)) abort();
		for (int i = 0; i < at_once; i++) pthread_join(t[i], 0);
	}
}

/* children: what they count is summed up through shared memory */
struct shared { _Atomic long leaf, nest; };
PLAIN static void forks(void)
{
	struct shared *s = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	for (int i = 0; i < 20; i++) {
		long l = n_leaf, n = n_nest;
		pid_t p = fork();
		if (p == 0) {
			for (int k = 0; k <= i; k++) nest(k % 5);
			if (i % 3 == 0 && fork() == 0) {
				nest(7);
				s->leaf += n_leaf - l; s->nest += n_nest - n;
				_exit(0);
			} else if (i % 3 == 0)
				wait(0);
			s->leaf += n_leaf - l; s->nest += n_nest - n;
			/* the grandchild counted the child's calls, too */
			if (i % 3 == 0) { long cn = 0, cl = 0; for (int k = 0; k <= i; k++) { cn += k % 5 + 1; cl++; } s->leaf -= cl; s->nest -= cn; }
			_exit(0);
		}
		waitpid(p, 0, 0);
		/* qemu makes a fork of it: then a call there is counted in other memory */
		static volatile int same;
		p = vfork();
		if (p == 0) {
			if (same) leaf();
			same = 1;
			_exit(0);
		}
		waitpid(p, 0, 0);
		nest(1);
	}
	n_leaf += s->leaf; n_nest += s->nest;
}
NI void spawner(int n)
{
	if (n > 0) { spawner(n - 1); __asm__ volatile(""); return; }
	pid_t p = fork(); /* in the middle of open calls, which return in both */
	if (p) waitpid(p, 0, 0);
}
PLAIN static void middle(void)
{
	pid_t me = getpid();
	for (int i = 0; i < 50; i++) {
		spawner(i % 10);
		leaf();
		if (getpid() != me) { even(3); _exit(0); }
	}
	n_leaf *= 2; /* each child calls it once, and counts in its own memory */
	n_odd = 100;
}
PLAIN static void again(char **argv)
{
	extern char **environ;
	char *args[] = { argv[0], "quiet", 0 };
	pid_t p;
	for (int i = 0; i < 3; i++) {
		if (posix_spawn(&p, argv[0], 0, 0, args, environ)) abort();
		waitpid(p, 0, 0);
	}
	nest(2);
	printf("leaf 5\nnest 19\n");
	fflush(stdout);
	execv(argv[0], args);
	abort();
}

/* coroutines on stacks of their own */
static ucontext_t uc_main, uc[3];
NI void step(int id) { n_step++; __asm__ volatile(""); }
NI void yield(int from, int to) { swapcontext(&uc[from], &uc[to]); __asm__ volatile(""); }
NI void co(int id) { for (int i = 0; i < 100; i++) { step(id); yield(id, (id + 1) % 3); nest(i % 4); } }
PLAIN static void coroutines(size_t size, int apart)
{
	for (int i = 0; i < 3; i++) {
		getcontext(&uc[i]);
		char *m = apart ? mmap(0, 64 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0) : malloc(size);
		uc[i].uc_stack.ss_sp = m + (apart ? 32 << 20 : 0);
		uc[i].uc_stack.ss_size = size;
		uc[i].uc_link = &uc_main;
		makecontext(&uc[i], (void (*)(void))co, 1, i);
	}
	/* the first one to finish ends it: the others stay suspended in yield */
	swapcontext(&uc_main, &uc[0]);
}

static long depth;
NI void deep(long n) { depth++; if (n > 1) deep(n - 1); __asm__ volatile(""); }
NI void *deeper(void *a) { deep((long)a); return 0; }
PLAIN static void recursion(long n)
{
	pthread_attr_t at;
	pthread_t t;
	pthread_attr_init(&at);
	pthread_attr_setstacksize(&at, (size_t)n * 64 + (1 << 20));
	if (pthread_create(&t, &at, deeper, (void *)n)) abort();
	pthread_join(t, 0);
	printf("deep %ld\n", depth);
}
NI int big(int n)
{
	char a[6 << 20];
	n_big++;
	memset(a, n, 64);
	memset(a + sizeof a - 64, n, 64);
	__asm__ volatile("" : : "r"(a) : "memory");
	if (n > 0) return big(n - 1) + a[5];
	leaf();
	return 0;
}

NI void finish(int how) { leaf(); if (how == 0) exit(3); if (how == 1) _exit(3); if (how == 2) abort(); if (how == 3) kill(getpid(), SIGKILL); if (how == 4) pthread_exit(0); }

int main(int argc, char **argv) __attribute__((patchable_function_entry(0)));
int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
#ifdef __x86_64__
	static long mine[4] = { 1, 2, 3, 4 };
	if (getenv("SURVIVE_GS") && syscall(SYS_arch_prctl, ARCH_SET_GS, mine)) abort();
#endif
	int n = argc > 2 ? atoi(argv[2]) : 0;
	if (!strcmp(what, "calls") || !strcmp(what, "quiet")) nest(3);
	else if (!strcmp(what, "signals")) signals(n);
	else if (!strcmp(what, "jumps")) jumps();
	else if (!strcmp(what, "threads")) threads(n, atoi(argv[3]));
	else if (!strcmp(what, "forks")) forks();
	else if (!strcmp(what, "middle")) middle();
	else if (!strcmp(what, "again")) again(argv);
	else if (!strcmp(what, "coroutines")) coroutines(64 << 10, n);
	else if (!strcmp(what, "recursion")) recursion(n);
	else if (!strcmp(what, "big")) {
		pthread_attr_t at;
		pthread_t t;
		pthread_attr_init(&at);
		pthread_attr_setstacksize(&at, 256 << 20);
		if (pthread_create(&t, &at, (void *(*)(void *))big, (void *)20)) abort();
		pthread_join(t, 0);
	} else if (!strcmp(what, "finish")) finish(n);
	else if (!strcmp(what, "closefds")) {
		for (int i = 0; i < 40; i++) {
			close_range(3, ~0U, 0);
			for (int k = 0; k < 500; k++) nest(50);
		}
	} else if (!strcmp(what, "many")) {
		for (int i = 0; i < n; i++) nest(10);
	} else if (!strcmp(what, "until")) { /* there is a file */
		while (access(argv[2], F_OK))
			for (int i = 0; i < 100; i++) nest(10);
	} else return 2;
#ifdef __x86_64__
	if (getenv("SURVIVE_GS")) {
		long v;
		__asm__("mov %%gs:24, %0" : "=r"(v));
		if (v != 4 || mine[0] != 1 || mine[1] != 2 || mine[2] != 3) abort();
	}
#endif
	if (strcmp(what, "quiet")) counts();
	return 0;
}
