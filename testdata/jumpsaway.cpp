/* Exceptions, and threads that are cancelled, that pass through functions which end by jumping to another image: the library
   that the same source is with LIBRARY. It is called "ready" when both have been come round to, and runs
   until its standard input ends; with an argument it says its process id first. */
#include <atomic>
#include <cstdio>
#include <pthread.h>
#include <stdexcept>
#include <sys/prctl.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone))

void throws(int i);

#ifdef LIBRARY
void throws(int i)
{
	throw std::runtime_error("thrown");
}
#else
static std::atomic<long> wrong, rounds, destroyed, cancelled;
static std::atomic<bool> over;

NOINLINE int leaf(int i)
{
	asm volatile("" ::: "memory");
	return i + rounds.load(std::memory_order_relaxed) % 2;
}

NOINLINE void direct(int i) { throws(i); }                  /* through a stub, or the global offset table */
NOINLINE void inner(int i) { asm volatile(""); direct(i + leaf(i)); } /* through direct */
NOINLINE void pointer(void (*f)(int), int i) { f(i); }       /* through a register */
NOINLINE void either(int i) { if (i & 1) throws(i); asm volatile(""); direct(i); }

template <typename F> static void expect(F f)
{
	try {
		f();
	} catch (const std::exception &) {
		return;
	}
	wrong++;
}

static void *exceptions(void *)
{
	for (; !over; rounds++) {
		expect([] { direct(1); });
		expect([] { inner(2); });
		expect([] { pointer(throws, 3); });
		expect([] { either(leaf(4)); });
	}
	return nullptr;
}

struct Counted {
	~Counted() { destroyed++; }
};

static int pipes[2];

NOINLINE ssize_t wait(char *c) { return read(pipes[0], c, 1); }

static void *waits(void *)
{
	Counted counted;
	char c;
	return (void *)(wait(&c) + leaf(1));
}

static void *cancels(void *)
{
	/* With a copy of libgcc in the program, libgcc_s unwinds cancelled threads and calls the copy's personality routine, which
	   aborts before the copy has unwound anything itself. */
	while (!rounds)
		usleep(100);
	while (!over) {
		pthread_t t;
		pthread_create(&t, nullptr, waits, nullptr);
		usleep(500);
		pthread_cancel(t);
		pthread_join(t, nullptr);
		cancelled++;
	}
	return nullptr;
}

int main(int argc, char **)
{
	pthread_t a, b;
	if (pipe(pipes))
		return 1;
	pthread_create(&a, nullptr, exceptions, nullptr);
	pthread_create(&b, nullptr, cancels, nullptr);
	while (!rounds || !cancelled)
		usleep(1000);
	prctl(PR_SET_NAME, "ready");
	if (argc > 1) {
		printf("%d\n", getpid());
		fflush(stdout);
	}
	char c;
	while (read(0, &c, 1) > 0)
		;
	over = true;
	pthread_join(a, nullptr);
	pthread_join(b, nullptr);
	if (wrong || !rounds || !cancelled || destroyed != cancelled)
		printf("%ld of %ld exceptions were not caught, %ld of %ld threads were cleaned up\n", wrong.load(), rounds.load(),
			destroyed.load(), cancelled.load());
	else
		puts("right");
	return 7;
}
#endif
