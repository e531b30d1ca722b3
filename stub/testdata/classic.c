/* What traced functions do to their stacks and registers, compiled with -pg and
   linked with the library. Prints how often each function was called. */
#define _GNU_SOURCE
#include <alloca.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOTRACE __attribute__((no_instrument_function, noinline))
#define TRACED __attribute__((noinline))

#define FUNCTIONS(x) \
	x(main) x(leaf) x(fib) x(tail1) x(tail2) x(rec) x(sum) x(extended) x(pair) x(vector) x(many) x(aligned) \
	x(dynamic) x(jumper) x(jump) x(handler) x(worker) x(deep) x(outer) x(looped)
#define ENUM(f) N_##f,
enum { FUNCTIONS(ENUM) N };
static int *count;
/* the barrier keeps calls from being moved, merged or turned into loops */
#define COUNT(f) do { __atomic_fetch_add(&count[N_##f], 1, __ATOMIC_RELAXED); __asm__ volatile("" ::: "memory"); } while (0)

#define CHECK(c) do { if (!(c)) { printf("line %d: %s\n", __LINE__, #c); exit(1); } } while (0)

TRACED int leaf(int x) { COUNT(leaf); return x + 1; }

TRACED int fib(int n);
static int (*volatile fib_)(int) = fib;
TRACED int fib(int n) { COUNT(fib); return n < 2 ? n : fib_(n - 1) + fib_(n - 2); }

TRACED int tail2(int n);
static int (*volatile tail2_)(int) = tail2;
TRACED int tail1(int n) { COUNT(tail1); return n == 0 ? 7 : tail2_(n - 1); }
static int (*volatile tail1_)(int) = tail1;
TRACED int tail2(int n) { COUNT(tail2); return n == 0 ? 8 : tail1_(n - 1); }

TRACED long rec(long n);
static long (*volatile rec_)(long) = rec;
TRACED long rec(long n) { COUNT(rec); return n == 0 ? 0 : 1 + rec_(n - 1); }

TRACED double sum(int n, ...)
{
	va_list v;
	double s = 0;
	COUNT(sum);
	va_start(v, n);
	while (n-- > 0)
		s += va_arg(v, double);
	va_end(v);
	return s;
}
TRACED long double extended(long double a) { COUNT(extended); return a * 2; }
struct pair { double a; long b; };
TRACED struct pair pair(double a, long b) { struct pair p = { a + 1, b + 1 }; COUNT(pair); return p; }
typedef float v4 __attribute__((vector_size(16)));
TRACED v4 vector(v4 a, v4 b) { COUNT(vector); return a + b; }
TRACED int many(int a, int b, int c, int d, int e, int f, int g, int h, int i) { COUNT(many); return a + b + c + d + e + f + 10 * g + 100 * h + 1000 * i; }
/* arguments on the stack and a frame that is aligned more: gcc copies the return address */
TRACED long aligned(int a, int b, int c, int d, int e, int f, int g, int h)
{
	volatile char room[64] __attribute__((aligned(64)));
	char *p = alloca(leaf(16));
	COUNT(aligned);
	room[0] = 1;
	p[0] = 2;
	return ((long)room & 63) + a + b + c + d + e + f + 10 * g + 100 * h + room[0] + p[0];
}
TRACED int dynamic(int n) { char *p = alloca(n); COUNT(dynamic); memset(p, 1, n); return p[n - 1] + leaf(n); }

static jmp_buf env;
TRACED void jump(int n) { COUNT(jump); if (n == 0) longjmp(env, 1); jump(n - 1); leaf(n); }
TRACED int jumper(void) { COUNT(jumper); if (setjmp(env) == 0) jump(10); return leaf(1); }

/* nested functions are gcc's: the static chain has to survive */
TRACED int outer(int k)
{
	COUNT(outer);
#ifndef __clang__
	int inner(int x) { count[N_leaf]++, count[N_leaf]--; return x + k; }
	int (*volatile p)(int) = inner;
	return p(3);
#else
	return k + 3;
#endif
}

static volatile int stop;
TRACED void handler(int s) { (void)s; COUNT(handler); leaf(1); }
TRACED void looped(void) { COUNT(looped); leaf(2); }

static int rounds;
TRACED void *worker(void *p) { COUNT(worker); for (int i = 0; i < rounds; i++) fib_(8); return p; }
TRACED void *deep(void *p) { COUNT(deep); *(long *)p = rec_(*(long *)p); return p; }

NOTRACE static void calls(void)
{
	CHECK(fib(15) == 610);
	CHECK(tail1(1000) == 7 && tail1(1001) == 8);
	CHECK(rec(1000) == 1000);
	CHECK(sum(3, 1.5, 2.25, 4.0) == 7.75);
	CHECK(extended(1.25L) == 2.5L);
	struct pair p = pair(1.5, 41);
	CHECK(p.a == 2.5 && p.b == 42);
	v4 a = { 1, 2, 3, 4 }, b = vector(a, a);
	CHECK(b[0] == 2 && b[3] == 8);
	CHECK(many(1, 1, 1, 1, 1, 1, 2, 3, 4) == 4326);
	CHECK(aligned(1, 1, 1, 1, 1, 1, 2, 3) == 6 + 20 + 300 + 3);
	CHECK(dynamic(1000) == 1002);
	CHECK(outer(4) == 7);
}
NOTRACE static void jumps(void)
{
	for (int i = 0; i < 50; i++)
		CHECK(jumper() == 2);
	fib(5);
}
NOTRACE static void threads(int n)
{
	pthread_t t[64];
	rounds = 20;
	for (int i = 0; i < n; i++)
		CHECK(pthread_create(&t[i], 0, worker, 0) == 0);
	for (int i = 0; i < n; i++)
		pthread_join(t[i], 0);
}
NOTRACE static void signals(int alternate)
{
	struct sigaction sa = { .sa_handler = handler, .sa_flags = SA_RESTART | (alternate ? SA_ONSTACK : 0) };
	stack_t ss = { .ss_sp = malloc(1 << 16), .ss_size = 1 << 16 };
	struct itimerval it = { { 0, 200 }, { 0, 200 } }, off = { { 0, 0 }, { 0, 0 } };
	sigaltstack(&ss, 0);
	sigaction(SIGALRM, &sa, 0);
	setitimer(ITIMER_REAL, &it, 0);
	while (__atomic_load_n(&count[N_handler], __ATOMIC_RELAXED) < 200)
		looped();
	setitimer(ITIMER_REAL, &off, 0);
}
NOTRACE static void forks(void)
{
	for (int i = 0; i < 5; i++) {
		pid_t p = fork();
		if (p == 0) {
			fib(10);
			_exit(0);
		}
		waitpid(p, 0, 0);
		fib(5);
	}
}
NOTRACE static void recursion(long n)
{
	pthread_attr_t a;
	pthread_t t;
	long got = n;
	size_t size = 512 << 20;
	void *stack = mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	CHECK(stack != MAP_FAILED);
	pthread_attr_init(&a);
	pthread_attr_setstack(&a, stack, size);
	CHECK(pthread_create(&t, &a, deep, &got) == 0);
	pthread_join(t, 0);
	CHECK(got == n);
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "calls";
	count = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	COUNT(main);
	if (!strcmp(what, "calls"))
		calls();
	else if (!strcmp(what, "jumps"))
		jumps();
	else if (!strcmp(what, "threads"))
		threads(32);
	else if (!strcmp(what, "signals"))
		signals(0);
	else if (!strcmp(what, "altstack"))
		signals(1);
	else if (!strcmp(what, "forks"))
		forks();
	else if (!strcmp(what, "recursion"))
		recursion(1000000);
	else
		return 2;
#define PRINT(f) if (count[N_##f]) printf(#f " %d\n", count[N_##f]);
	FUNCTIONS(PRINT)
	return 0;
}
