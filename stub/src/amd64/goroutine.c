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
#include "start.h"
#include "sys.h"

hidden void fentry_slow_go(u32 id, u64 g);

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

static void event(struct control *c, u32 id, u64 goroutine)
{
	if (!c->goroutine)
		c->own_stack = c->stack;
	if (goroutine && goroutine != c->goroutine) {
		c->goroutine = goroutine;
		go_to(c, goroutine | FT_GOROUTINE_STACK);
	}
	int aside = !goroutine && c->goroutine;
	if (aside)
		go_to(c, c->own_stack);
	put(c, counter(), fentry_own.base + id);
	if (aside)
		go_to(c, c->goroutine | FT_GOROUTINE_STACK);
}

/* fentry_slow_go records the event with an id of the image, of the goroutine whose structure is at g. */
hidden void fentry_slow_go(u32 id, u64 g)
{
	struct sigset old = block();
	own_thread();
	struct control *c = traced_thread();
	if (c)
		event(c, id, *(u64 *)(g + fentry_image.goroutine));
	unblock(old);
}
