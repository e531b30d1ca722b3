/* Events of Go's functions that are not recorded in place: the first of a goroutine on a thread, those for which there is
   no room, and those on stacks that are no goroutine's.

   Calls follow goroutines, so where a thread goes on with another one the trace has a record of it, and the block the
   goroutine's number, which the fast path compares. Two kinds of events are not a goroutine's: what runs on the thread's
   own stack (g0), and what a signal's handler calls. The latter can come between any two instructions of a fast path that
   has just made sure of its goroutine. So each such event is put between two records, to the thread's own stack and
   back, and leaves nothing behind that anybody could notice.

   Static programs of Go's have no thread pointer in the sense of the ABI: the word at fs:0 is a part of a thread's
   structure (runtime.m) that the program does not use on Linux, and is 0 at first. It gets a number that no other thread
   has, by which blocks know their owner. */
#include "chunk.h"
#include "image.h"
#include "quick.h"
#include "start.h"
#include "sys.h"

/* The registers that fentry_go_slow has saved. */
struct saved { u64 unused, r11, r10, r9, r8, rdi, rsi, rdx, rcx, rax; };

hidden void fentry_slow_go(u32 id, u64 g, const struct saved *r);

/* runtime.g behind the number of the goroutine's parent */
enum { MADE_AT = 8, START = 24 };

/* A record that an event has with it. Two of the runtime's functions tell what nobody else knows: runtime.gopark is called
   with the reason why a goroutine waits, and runtime.newproc1 returns a new one. Of the latter, this is all that is
   recorded. */
struct besides { u32 type, n; u64 words[4]; };

enum { END = 1u << 31 };

static void look(struct besides *b, u32 id, const struct saved *r)
{
	b->type = b->n = 0;
	if (id == fentry_image.park) {
		b->type = FT_REC_ARGS;
		b->n = 1;
		b->words[0] = (u8)r->rcx;
	} else if (id == (fentry_image.created | END)) {
		const u64 *parent = (const u64 *)(r->rax + fentry_image.parent);
		b->type = FT_REC_GOROUTINE;
		b->n = 4;
		b->words[0] = *(u64 *)(r->rax + fentry_image.goroutine);
		b->words[1] = *parent;
		b->words[2] = parent[START / 8];
		b->words[3] = parent[MADE_AT / 8];
	}
}

/* own_thread makes the running thread tell itself apart from others. */
static void own_thread(void)
{
	static u64 threads;
	u64 n = (add(&threads, 1) + 1) << BLOCKS_SHIFT;
	if (!thread_pointer())
		__asm__ volatile("mov %0, %%fs:0" : : "r"(n) : "memory");
}

static void go_to(struct control *c, u64 stack)
{
	c->stack = stack;
	record1(c, counter(), FT_REC_STACK, stack);
}

static void event(struct control *c, u32 id, u64 goroutine, const struct besides *b)
{
	if (b->type == FT_REC_GOROUTINE) {
		record(c, counter(), b->type, b->words, b->n);
		return;
	}
	if (!c->goroutine)
		c->own_stack = c->stack;
	if (goroutine && goroutine != c->goroutine) {
		c->goroutine = goroutine;
		go_to(c, goroutine | FT_GOROUTINE_STACK);
	}
	int aside = !goroutine && c->goroutine;
	if (aside)
		go_to(c, c->own_stack);
	room(c, 2 + b->n);
	put(c, counter(), fentry_own.base + id);
	if (b->n)
		record(c, counter(), b->type, b->words, b->n);
	if (aside)
		go_to(c, c->goroutine | FT_GOROUTINE_STACK);
}

static u64 *append(u64 *w, u32 t, u32 type, const u64 *words, u32 n)
{
	w = open_record(w, t, type, n);
	for (u32 i = 0; i < n; i++)
		w[i] = words[i];
	end_record(w);
	return w + n;
}

/* quick does the same without a system call, where everything is in place and there is room for all of it: goroutines
   change often. A handler that comes in between finds words that are reserved, and the goroutine that they end with. */
static int quick(u32 id, u64 goroutine, const struct besides *b)
{
	struct control *c = images_armed() ? quick_block() : 0;
	u64 was = c ? load(&c->goroutine) : 0, to = goroutine | FT_GOROUTINE_STACK;
	int made = b->type == FT_REC_GOROUTINE, aside = !goroutine && !made, moved = goroutine && goroutine != was && !made;
	u32 t, n = (made ? 0 : 1) + (b->n ? 1 + b->n : 0) + (aside ? 4 : moved ? 2 : 0);
	if (!was)
		return 0;
	if (moved) {
		store(&c->goroutine, goroutine);
		store(&c->stack, to);
	}
	u64 *w = quick_reserve(c, n, &t);
	if (!w) {
		store(&c->goroutine, was);
		store(&c->stack, was | FT_GOROUTINE_STACK);
		return 0;
	}
	if (aside)
		w = append(w, t, FT_REC_STACK, &c->own_stack, 1);
	else if (moved)
		w = append(w, t, FT_REC_STACK, &to, 1);
	if (!made)
		store(w++, (u64)(fentry_own.base + id) << 32 | t);
	if (b->n)
		w = append(w, t, b->type, b->words, b->n);
	to = was | FT_GOROUTINE_STACK;
	if (aside)
		append(w, t, FT_REC_STACK, &to, 1);
	return 1;
}

/* fentry_slow_go records the event with an id of the image, of the goroutine whose structure is at g. */
hidden void fentry_slow_go(u32 id, u64 g, const struct saved *r)
{
	u64 goroutine = *(u64 *)(g + fentry_image.goroutine);
	struct besides b;
	look(&b, id, r);
	if (quick(id, goroutine, &b))
		return;
	struct sigset old = block();
	own_thread();
	struct control *c = traced_thread();
	if (c)
		event(c, id, goroutine, &b);
	unblock(old);
}
