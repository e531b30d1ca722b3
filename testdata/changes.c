/* Has its own tracer change what is done at calls and which are recorded, as a recorder does that is killed at once: while
   other threads make calls. Each has left the tracer when the next change begins. ends with status 7. Where the tracer has what
   is changed says whoever compiles this. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define NOINLINE __attribute__((noinline, noclone))

enum { ROUNDS = 400, THREADS = 3 };

typedef unsigned long u64;
typedef unsigned u32;

struct actions { u64 image, memory, size, counts; u32 count; };
struct roots { u64 image; const unsigned char *bitmap; };
struct change { u32 depth, roots; u64 threshold; u32 flags, acted; struct roots root; struct actions act; };

static pthread_barrier_t begin, end;
static volatile int count, last;

NOINLINE int leaf(int n) { count++; return n + 1; }
NOINLINE int outer(int n) { int r = leaf(n) + leaf(n); count++; return r; }

static void work(void)
{
	for (int i = 0; i < 300; i++)
		outer(i);
}

static void *once(void *unused) { work(); return unused; }

static void *thread(void *unused)
{
	pthread_t t;
	for (int i = 0; i < ROUNDS; i++) {
		pthread_barrier_wait(&begin);
		if (!pthread_create(&t, 0, once, 0)) {
			work();
			pthread_join(t, 0);
		}
		pthread_barrier_wait(&end);
	}
	return unused;
}

static u64 word(u64 at) { return *(volatile u64 *)at; }
static u32 half(u64 at) { return *(volatile u32 *)at; }

/* changed is the change of a round: a table of actions that is a copy, or limits and roots. */
static struct change changed(u64 state, int round)
{
	u32 sites = half(state + STATE_SITES);
	struct change c = { 0 };
	if (round >= ROUNDS / 2) {
		static unsigned char all[4096];
		memset(all, 0xff, sizeof all);
		c.flags = CHANGE_FRAMES | CHANGE_ROOTS;
		c.depth = 100;
		c.roots = 1;
		c.root = (struct roots){ state, all };
		return c;
	}
	u64 acting = word(state + STATE_ACTING);
	u32 n = half(acting + ACTING_COUNT);
	u64 table = n * ACTION_SIZE + (sites + 1) * 4, size = table + n * 4 + 4095 & -4096UL;
	char *memory = mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	memcpy(memory, (char *)word(acting + ACTING_ACTIONS), table);
	c.acted = 1;
	/* It stands where the roots would be. */
	struct actions a = { state, (u64)memory, size, (u64)memory + (table + 7 & -8UL), n };
	memcpy(&c.root, &a, sizeof a);
	return c;
}

int main(void)
{
	pthread_t t[THREADS];
	pthread_attr_t small;
	u64 state = word(word(MEETING + MEETING_IMAGES));
	u64 (*change)(const struct change *) = (u64 (*)(const struct change *))word(MEETING + MEETING_CHANGE);
	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, 1 << 16);
	pthread_barrier_init(&begin, 0, THREADS + 1);
	pthread_barrier_init(&end, 0, THREADS + 1);
	for (int i = 0; i < THREADS; i++)
		pthread_create(t + i, &small, thread, 0);
	for (int i = 0; i < ROUNDS; i++) {
		struct change c = changed(state, i);
		pthread_barrier_wait(&begin);
		u64 is = change(&c);
		pthread_barrier_wait(&end);
		if (is != 1) {
			printf("change %d: %lu\n", i, is);
			return 1;
		}
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(t[i], 0);
	return 7;
}
