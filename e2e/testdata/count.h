// Ground truth for the tests: every function of a fixture counts its own calls.
//
// COUNT() as a function's first statement adds one to a counter of the function's name, COUNT_AS("A::f()") names it.
// ABANDON(n) says that n calls end without a return (longjmp, throw, exit, a signal that kills).
// The counters live in the file named by FIXTURE_COUNTS, mapped shared: forked children add to the same numbers, an
// exec'd program finds its own by name, and no kind of death loses them. Without the variable they are private.
//
// The file is 4096 records of 64 bytes: a NUL-padded name of 56 bytes and a 64-bit count.
#ifndef COUNT_H
#define COUNT_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1
#endif
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

#define FN __attribute__((noinline))
#ifdef __clang__
#define NOTRACE __attribute__((noinline, no_instrument_function, xray_never_instrument, patchable_function_entry(0, 0)))
#else
#define NOTRACE __attribute__((noinline, no_instrument_function, patchable_function_entry(0, 0)))
#endif

struct counter {
	const char *name;
	uint64_t *slot; // NULL until counters_open has run: count in early
	uint64_t early;
	uint64_t pad;
} __attribute__((aligned(32)));

struct counter_record {
	char name[56];
	uint64_t calls;
};
#define COUNTER_RECORDS 4096

extern struct counter __start_counters[] __attribute__((weak, visibility("hidden")));
extern struct counter __stop_counters[] __attribute__((weak, visibility("hidden")));

static inline __attribute__((always_inline, no_instrument_function)) void counter_add(struct counter *c, uint64_t n)
{
	uint64_t *slot = __atomic_load_n(&c->slot, __ATOMIC_ACQUIRE);
	__atomic_fetch_add(slot ? slot : &c->early, n, __ATOMIC_RELAXED);
}

#define COUNT_N(text, n)                                                                             \
	do {                                                                                         \
		static struct counter counter_ __attribute__((section("counters"), used)) = {text, 0, 0, 0}; \
		counter_add(&counter_, (n));                                                         \
	} while (0)
#define COUNT_AS(text) COUNT_N(text, 1)
#define COUNT() COUNT_N(__func__, 1)
#define ABANDON(n) COUNT_N("(abandoned)", (uint64_t)(int64_t)(n))

// KEEP(f(x)) keeps a call in tail position a call: compilers turn self-recursion into loops, which count but do not call.
#define KEEP(call)                                     \
	({                                             \
		__typeof__(call) kept_ = (call);       \
		__asm__ volatile("" : "+r"(kept_));    \
		kept_;                                 \
	})

// say writes without a buffer that fork could duplicate.
#define say(...) dprintf(1, __VA_ARGS__)

// counters_merge adds what was counted early to the file. It runs again at the end, for threads that were about to add when the file was opened.
static NOTRACE __attribute__((destructor(101), used)) void counters_merge(void)
{
	for (struct counter *c = __start_counters; c < __stop_counters; c++)
		if (c->slot && c->early)
			__atomic_fetch_add(c->slot, __atomic_exchange_n(&c->early, 0, __ATOMIC_RELAXED), __ATOMIC_RELAXED);
}

static NOTRACE __attribute__((constructor(101), used)) void counters_open(void)
{
	const char *path = getenv("FIXTURE_COUNTS");
	if (!path || !*path)
		return;
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
	if (fd < 0)
		return;
	size_t size = sizeof(struct counter_record) * COUNTER_RECORDS;
	flock(fd, LOCK_EX);
	if (lseek(fd, 0, SEEK_END) == 0 && ftruncate(fd, (off_t)size) != 0)
		abort();
	struct counter_record *rec =
		(struct counter_record *)mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (rec == MAP_FAILED)
		abort();
	for (struct counter *c = __start_counters; c < __stop_counters; c++) {
		if (!c->name)
			continue;
		int i = 0;
		while (rec[i].name[0] && strcmp(rec[i].name, c->name) != 0)
			i++;
		strcpy(rec[i].name, c->name);
		__atomic_store_n(&c->slot, &rec[i].calls, __ATOMIC_RELEASE);
	}
	counters_merge();
	flock(fd, LOCK_UN);
	close(fd);
}
#endif
