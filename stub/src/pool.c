/* Chunks of a recorder's pool: shared memory that the recorder drains.

   There are two areas. Most events are in chunks of full size; but of those there are
   a thousand, and each thread has one to itself as long as it lives, whether it records
   anything or not. So a thread's first chunk is a small one, of which there are many,
   and threads go on in small ones while those of full size are scarce: while tasks own
   most of them. The recorder, who looks at all states anyway, says when that is
   (SCARCE); a thread that finds none of full size looks itself.

   A free small chunk is found by a bit, and is taken by its state: the bit is only a
   hint. It is set just before the chunk becomes free and cleared, by the one that has taken
   the chunk, after it was taken and before anything is written there. So it may say free of
   a chunk that is not, if a task is killed in between, but says so of none that is full,
   which the recorder would pass over. A lock-free list of the
   free ones would be shorter to search, but a task that is killed in the middle of it
   takes the rest along.

   Writers below a signal handler may hold a slot in a chunk that is full (held). */
#include "pool.h"
#include "poolmap.h"
#include "process.h"
#include "source.h"
#include "sys.h"

enum { HOPE = 4 }; /* times in a row to wait when all chunks belong to tasks: some may be dead */

/* ns: how long to wait before looking around again, how much longer for each other task
   that waits, or with thousands all of them together would do nothing but look around,
   and how long at most. */
#define SLICE         50000000UL
#define SLICE_EACH    1000000UL
#define SLICE_LONGEST 2000000000UL
#define PATIENCE      5000000000UL /* ns without a heartbeat after which the recorder is taken for dead */

static u32 search, search_small; /* where to look for a free chunk */

/* own makes a free chunk this thread's. */
static int own(u32 i, u64 base, struct chunk *out)
{
	if (!base || !cas(chunk_state(i), FT_STATE_FREE, FT_STATE_OWNED))
		return 0;
	*out = (struct chunk){ base, i, pool_chunk_size(i) };
	pool_populate(i, base);
	return 1;
}

/* claim_full takes a free chunk of full size: one that is mapped, if there is one. */
static int claim_full(struct chunk *out)
{
	u32 from = load(&search), free = 0;
	for (u32 n = 0; n < 2 * pool.full && (free || n < pool.full); n++) {
		u32 i = (from + n) % pool.full;
		if (load(chunk_state(i)) != FT_STATE_FREE)
			continue;
		free = 1;
		if (own(i, pool_address(i, n >= pool.full), out)) {
			store(&search, i + 1);
			return 1;
		}
	}
	return 0;
}

/* claim_small takes a free small chunk. */
static int claim_small(struct chunk *out)
{
	u32 words = (pool.small + 63) / 64, from = load(&search_small);
	for (u32 n = 0; n < words; n++) {
		u32 w = (from + n) % words;
		for (u64 free = load(&pool.free_small[w]); free; free &= free - 1) {
			u32 k = 64 * w + (u32)__builtin_ctzl(free), i = pool.full + k;
			if (k >= pool.small || load(chunk_state(i)) != FT_STATE_FREE)
				continue;
			u64 base = pool_address(i, 1);
			if (!base)
				return 0;
			if (!own(i, base, out))
				continue;
			clear_bits(&pool.free_small[w], 1UL << (k % 64));
			store(&search_small, w);
			return 1;
		}
	}
	return 0;
}

/* tasks_own_most says whether tasks own most of the chunks of full size. */
static int tasks_own_most(void)
{
	u32 owned = 0;
	for (u32 i = 0; i < pool.full; i++)
		owned += load(chunk_state(i)) == FT_STATE_OWNED;
	return owned >= pool.full - pool.full / 4;
}

/* claim takes a free chunk of at least so many bytes. While the recorder is behind, small
   ones are no way out: the size of the pool is what its user has chosen. */
static int claim(struct control *c, struct chunk *out, u32 least)
{
	int fits = pool.small && least <= pool.small_size;
	int small = fits && (c->number == 0 || load(HEADER(u32, FT_H_SCARCE)));
	if ((small && claim_small(out)) || claim_full(out))
		return 1;
	return fits && !small && tasks_own_most() && claim_small(out);
}

/* own_oldest takes the oldest chunk that this thread filled back, for the newest
   events to go to. The recorder, or for its sake nobody, may have it by now. */
static int own_oldest(struct control *c, struct chunk *out, u32 least)
{
	while (c->mine_from != c->mine_to) {
		u32 i = c->mine[c->mine_from++ % lengthof(c->mine)];
		u8 *h = (u8 *)pool_address(i, 0);
		if (!h || pool_chunk_size(i) < least || !cas(chunk_state(i), FT_STATE_FULL, FT_STATE_OWNED))
			continue;
		if (*(u64 *)(h + FT_C_KEY) != c->key || *(u32 *)(h + FT_C_TID) != c->tid) {
			store(chunk_state(i), FT_STATE_FULL);
			continue;
		}
		*out = (struct chunk){ (u64)h, i, pool_chunk_size(i) };
		memset(h, 0, out->size);
		return 1;
	}
	return 0;
}

/* pool_keeps says whether a chunk that this thread leaves is worth keeping for writers
   that may still hold a slot in it. If chunks are few, only one that does have such a
   slot is: the recorder can wait for a slot, too, but only as long as no task waits. */
hidden int pool_keeps(const struct chunk *k)
{
	if (k->index < pool.full && !load(HEADER(u32, FT_H_SCARCE)))
		return 1;
	u32 used = *(u32 *)(k->base + FT_C_SIZE);
	u64 end = k->base + (used < k->size ? used : k->size);
	for (u64 p = k->base + FT_CHUNK_HEADER; p < end; p += 8) {
		u32 id = (u32)(load((u64 *)p) >> 32);
		if (id == 0)
			return 1;
		if ((id & FT_RECORD_MASK) == FT_RECORD_BASE)
			p += 8UL * (id & FT_RECORD_WORDS);
	}
	return 0;
}

/* pool_full hands a chunk of this thread to the recorder. */
hidden void pool_full(struct control *c, struct chunk *k)
{
	if (*(unsigned short *)(k->base + FT_C_KIND) == FT_KIND_EVENTS) { /* others are no older events */
		c->mine[c->mine_to++ % lengthof(c->mine)] = k->index;
		if (c->mine_to - c->mine_from > lengthof(c->mine))
			c->mine_from = c->mine_to - (u32)lengthof(c->mine);
	}
	store(chunk_state(k->index), FT_STATE_FULL);
	add(HEADER(u32, FT_H_FILLED), 1);
	futex_wake(HEADER(u32, FT_H_FILLED), 1);
}

/* release_old hands over the oldest chunk that this thread holds back. It returns 0 when
   there is none. */
static int release_old(struct control *c)
{
	struct chunk *k = c->old[1].base ? &c->old[1] : &c->old[0];
	if (!k->base)
		return 0;
	pool_full(c, k);
	k->base = 0;
	return 1;
}

/* recorder_busy says whether the recorder has chunks that it will free. */
static int recorder_busy(void)
{
	for (u32 i = 0; i < pool.full + pool.small; i++) {
		u32 s = load(chunk_state(i));
		if (s != FT_STATE_OWNED && (s != FT_STATE_FREE || i < pool.full))
			return 1;
	}
	return 0;
}

/* pool_chunk gets a free chunk of at least so many bytes, as the pool's policy says.

   With policy block, a thread waits as long as a chunk can be hoped for, and there are two
   reasons to give up. Nobody is there to free one: no heartbeat. Only time that the thread
   has asked to sleep counts for that, not what it was late to wake: on a machine that is so
   busy, the recorder is late as well. Or there is nothing to free: all chunks are other
   tasks', which may be idle with them for ever, and hold what this thread would have to
   give them before they go on. One look does not say so, since others may just have been
   faster. As long as the recorder frees chunks at all, tasks do hand some over, and one of
   them will be this thread's. */
hidden int pool_chunk(struct control *c, struct chunk *out, u32 least)
{
	u32 beat = load(HEADER(u32, FT_H_HEARTBEAT)), idle = 0, seen = load(HEADER(u32, FT_H_FREED));
	u64 silent = 0; /* ns asked to sleep since that heartbeat */
	int waited = 0;
	u32 policy = *HEADER(u32, FT_H_POLICY);
	for (;;) {
		if (load(HEADER(u32, FT_H_CLOSED))) {
			stop_tracing(0, 0);
			return 0;
		}
		u32 freed = load(HEADER(u32, FT_H_FREED));
		if (claim(c, out, least)) {
			c->starved = 0;
			return 1;
		}
		if (policy == FT_POLICY_OVERWRITE && own_oldest(c, out, least))
			return 1;
		if (policy == FT_POLICY_DROP)
			return 0;
		/* Chunks that this thread holds back are no use to anybody now, and with
		   many threads they may be all there are. */
		int busy = recorder_busy();
		if ((waited || !busy) && release_old(c))
			continue;
		if (busy || freed != seen)
			idle = 0;
		seen = freed;
		if (!busy && (c->starved || idle++ == HOPE)) {
			c->starved = 1;
			return 0;
		}
		u64 slice = SLICE + SLICE_EACH * add(HEADER(u32, FT_H_WAITERS), 1);
		if (slice > SLICE_LONGEST)
			slice = SLICE_LONGEST;
		u64 from = clock_ns(CLOCK_MONOTONIC_);
		futex_wait(HEADER(u32, FT_H_FREED), freed, slice);
		add(HEADER(u32, FT_H_WAITERS), -1);
		u64 slept = clock_ns(CLOCK_MONOTONIC_) - from;
		silent += slept < slice ? slept : slice;
		if (!waited || load(HEADER(u32, FT_H_HEARTBEAT)) != beat) {
			beat = load(HEADER(u32, FT_H_HEARTBEAT));
			silent = 0;
		} else if (silent >= PATIENCE) {
			stop_tracing("the recorder does not answer", 0);
			return 0;
		}
		waited = 1;
	}
}
