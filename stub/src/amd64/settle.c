/* Which slots a fast path has reserved, where a signal handler came in between.

   Without a clock nothing hides what a reservation costs. A compare and exchange of the next
   slot takes 9 cycles, and two of them are most of what a call costs, as each waits for
   the one before. An addition takes one, but does not tell which slot it was that it took.
   So the fast path of a call looks at the next slot before and behind the addition: if what it sees
   behind is what it added, the slot is the one it saw. Else a traced handler ran before the
   addition, behind it, or both, and perhaps went on to another chunk. It is too late
   then to begin anew: a slot that is reserved and never written keeps its chunk from being
   read until the thread has ended.

   A handler's events are all written when it returns. So of the slots from the one that was
   seen to the next one, those that are zero are the ones that are looked for. If they are
   not the only ones, or the chunk is another one, the thread reserves anew, and leaves a
   hole; that takes a handler that fills a chunk between two instructions, or
   switches to another coroutine there. Nothing is written twice or counted
   twice in any case. What goes to the scrap has been counted by its reservation.

   xadd tells, but takes 8 cycles; a restartable sequence needs a C library that has
   registered for it. */
#include "chunk.h"
#include "slow.h"
#include "start.h"
#include "sys.h"

/* in says whether a is in the size bytes from base. */
static int in(u64 a, u64 base, u64 size) { return a - base < size; }

/* hole returns the address of the n bytes of zeros between the events of a chunk from from
   on; 0: there are none, or others too. */
static u64 hole(const struct control *c, u64 from, u64 n)
{
	u64 first = 0, zeros = 0, last = 0, end = c->chunk.base + c->chunk.size;
	if (c->next < end)
		end = c->next;
	for (u64 p = from; p < end; p += 8) {
		u64 w = load((u64 *)p);
		u32 id = (u32)(w >> 32);
		if (w && (id & FT_RECORD_MASK) == FT_RECORD_BASE)
			p += 8UL * (id & FT_RECORD_WORDS);
		if (w)
			continue;
		if (!zeros++)
			first = p;
		last = p;
	}
	return zeros == n / 8 && last == first + n - 8 ? first : 0;
}

/* settle finds the n bytes that this thread has reserved since it saw seen as the next slot.
   The slot is 0 if they cannot be told from others: then they are reserved anew. */
static struct reserved settle(struct control *c, u64 seen, u64 n)
{
	static const struct reserved anew = { 0, 0 }, nowhere = { (u64)scrap, 0 };
	int from_scrap = in(seen, (u64)scrap, sizeof scrap);
	u64 base = c->chunk.base, from = seen;
	if (!base) {
		/* Where the old chunk has the slot, it was not counted. */
		const struct chunk *k = &c->old[0];
		if (!c->scrap || (k->base && in(seen, k->base, k->size) && !load((u64 *)seen)))
			return anew;
		return nowhere;
	}
	if (from_scrap)
		return hole(c, base + FT_CHUNK_HEADER, n) ? anew : nowhere;
	if (!in(seen, base, c->chunk.size))
		return anew;
	if (c->lap && c->lap <= seen)
		from = c->lap; /* where an event begins, also if that was given up meanwhile */
	u64 slot = hole(c, from, n);
	if (!slot)
		return anew;
	return (struct reserved){ slot, (u32)(slot + c->order) };
}

/* fentry_slow_settle is where fast paths come to that have found another next slot than the
   n bytes behind seen. Without a block, what they write goes nowhere. */
hidden struct reserved fentry_slow_settle(u64 seen, u64 n)
{
	struct sigset old = block();
	struct control *c = traced_thread();
	struct reserved r = { (u64)scrap, 0 };
	if (c)
		r = settle(c, seen, n);
	unblock(old);
	return r;
}
