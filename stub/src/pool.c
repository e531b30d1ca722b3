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

   Writers below a signal handler may hold a slot in a chunk that is full (held).

   A recorder that does not answer for a while is dead, or it is stopped and will go on. A
   dead one ends tracing. Of the other one the process remembers that it is silent: nobody
   waits for it any more, and events are given up and counted (chunk.c) until its heartbeat
   is another one. */
#include "pool.h"
#include "poolmap.h"
#include "process.h"
#include "say.h"
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

#define ASK_AGAIN 1000000000UL /* ns between looks whether a silent recorder lives */

/* A recorder that does not answer: its heartbeat then, and when it was looked for. */
static struct { u32 is, beat; u64 asked; } silence;

/* recorder_is_dead says so, as far as this process may know. A recorder whose parent has
   not waited for it is dead, too. In another PID namespace its id is another process's, or
   nobody's: one that is silent may always come back. */
hidden int recorder_is_dead(void)
{
	u32 pid = *HEADER(u32, FT_H_RECORDER);
	u64 ns = *HEADER(u64, FT_H_RECORDER_NS);
	struct process p;
	if (ns && ns != pid_namespace())
		return 0;
	return !thread_alive(pid, pid) || (read_process(pid, &p) && p.state == 'Z');
}

/* be_silent is what becomes of a recorder that has not moved its heartbeat. */
static void be_silent(u32 beat)
{
	if (recorder_is_dead()) {
		stop_tracing("the recorder has died", 0);
		return;
	}
	silence.beat = beat;
	store(&silence.asked, clock_ns(CLOCK_MONOTONIC_));
	if (!swap(&silence.is, 1))
		say("the recorder does not answer: until it does, events are lost, and counted", 0, 0, 0);
}

/* recorder_is_silent says whether there is no use in waiting for the recorder. */
static int recorder_is_silent(void)
{
	if (!load(&silence.is))
		return 0;
	u64 now = clock_ns(CLOCK_MONOTONIC_);
	if (load(HEADER(u32, FT_H_HEARTBEAT)) != silence.beat)
		store(&silence.is, 0);
	else if (now - load(&silence.asked) > ASK_AGAIN)
		be_silent(silence.beat);
	return load(&silence.is);
}

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

/* plenty says whether most of the chunks of full size behind chunk k are free. */
static int plenty(u32 k)
{
	enum { LOOK = 32 };
	u32 free = 0;
	for (u32 i = 1; i <= LOOK; i++)
		free += load(chunk_state((k + i) % pool.full)) == FT_STATE_FREE;
	return pool.full > 2 * LOOK && free >= LOOK * 3 / 4;
}

/* pool_ahead takes n free chunks, or as many as there are, that lie in a row behind chunk k of full size, and returns how
   many bytes that is. They are for a thread that will soon need them; where others may, because few are free, it takes none. */
hidden u64 pool_ahead(const struct chunk *k, u32 n)
{
	static u32 pairs;
	enum { HAS = 1, HAS_NOT };
	u64 bytes = 0;
	if (!load(&pairs))
		store(&pairs, has_pairs() ? HAS : HAS_NOT);
	if (pairs != HAS || k->index + n >= pool.full || load(HEADER(u32, FT_H_SCARCE)) || !plenty(k->index))
		return 0;
	for (u32 i = 1; i <= n; i++, bytes += source.chunk_size) {
		struct chunk next;
		u64 base = pool_address(k->index + i, 1);
		if (base != k->base + i * source.chunk_size || !own(k->index + i, base, &next))
			break;
	}
	store(&search, k->index + 1 + (u32)(bytes / source.chunk_size));
	return bytes;
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
				break; /* nor are those next to it */
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

/* count_overwritten counts the events of a chunk that this thread has filled as given up. */
static void count_overwritten(const u8 *h, u32 size)
{
	u32 used = *(u32 *)(h + FT_C_SIZE);
	const u64 *p = (const u64 *)(h + FT_CHUNK_HEADER), *end = (const u64 *)(h + (used < size ? used : size));
	u64 n = 0;
	for (; p < end; p++) {
		u32 id = (u32)(*p >> 32);
		n += is_event(*p);
		if ((id & FT_RECORD_MASK) == FT_RECORD_BASE)
			p += id & FT_RECORD_WORDS;
	}
	add(HEADER(u64, FT_H_OVERWRITTEN), n);
}

/* mine_at is a chunk that this thread filled, by its place in the list of those. */
static struct mine *mine_at(struct control *c, u32 i) { return &c->mine[i % lengthof(c->mine)]; }

/* forget_mine takes the entry at place i out of the list. */
static void forget_mine(struct control *c, u32 i)
{
	for (; i != c->mine_from; i--)
		*mine_at(c, i) = *mine_at(c, i - 1);
	c->mine_from++;
}

/* still_mine says whether a chunk that is this thread's to take is the one that it filled. */
static int still_mine(const struct control *c, const u8 *h, u32 number)
{
	return *(const u64 *)(h + FT_C_KEY) == c->key && *(const u32 *)(h + FT_C_TID) == c->tid &&
	       *(const u32 *)(h + FT_C_NUMBER) == number;
}

/* own_oldest takes the oldest chunk that this thread filled back, for the newest events to go to. The recorder has
   claimed some for the time of a snapshot, which stay in the list: they come back, and a thread that forgot
   them would have that much less. Others it has freed since, and they may be anybody's, even this thread's again. */
static int own_oldest(struct control *c, struct chunk *out, u32 least)
{
	for (u32 i = c->mine_from; i != c->mine_to; i++) {
		struct mine m = *mine_at(c, i);
		u8 *h = (u8 *)pool_address(m.index, 0);
		if (h && pool_chunk_size(m.index) < least)
			continue;
		if (!h || !still_mine(c, h, m.number)) {
			forget_mine(c, i);
			continue;
		}
		if (!cas(chunk_state(m.index), FT_STATE_FULL, FT_STATE_OWNED)) {
			if (load(chunk_state(m.index)) == FT_STATE_FREE)
				forget_mine(c, i);
			continue;
		}
		forget_mine(c, i);
		if (!still_mine(c, h, m.number)) {
			cas(chunk_state(m.index), FT_STATE_OWNED, FT_STATE_FULL);
			continue;
		}
		*out = (struct chunk){ (u64)h, m.index, pool_chunk_size(m.index) };
		count_overwritten(h, out->size);
		memset(h, 0, out->size);
		return 1;
	}
	return 0;
}

/* pool_keeps says whether a chunk that this thread leaves is worth keeping for writers
   that may still hold a slot in it. If chunks are few, only one that does have such a
   slot, or a record that is still to be finished, is: the recorder can wait for a slot,
   too, but only as long as no task waits. */
hidden int pool_keeps(const struct chunk *k)
{
	if (k->index < pool.full && !load(HEADER(u32, FT_H_SCARCE)))
		return 1;
	u32 used = *(u32 *)(k->base + FT_C_SIZE);
	u64 end = k->base + (used < k->size ? used : k->size);
	for (u64 p = k->base + FT_CHUNK_HEADER; p < end; p += 8) {
		u32 id = (u32)(load((u64 *)p) >> 32);
		int is_record = (id & FT_RECORD_MASK) == FT_RECORD_BASE;
		if (id == 0 || (is_record && id & FT_RECORD_OPEN))
			return 1;
		if (is_record)
			p += 8UL * (id & FT_RECORD_WORDS);
	}
	return 0;
}

/* pool_wake has the recorder look what has changed. */
hidden void pool_wake(void)
{
	add(HEADER(u32, FT_H_FILLED), 1);
	futex_wake(HEADER(u32, FT_H_FILLED), 1);
}

/* pool_full hands a chunk of this thread to the recorder. */
hidden void pool_full(struct control *c, struct chunk *k)
{
	if (*(unsigned short *)(k->base + FT_C_KIND) == FT_KIND_EVENTS) { /* others are no older events */
		*mine_at(c, c->mine_to++) = (struct mine){ k->index, *(u32 *)(k->base + FT_C_NUMBER) };
		if (c->mine_to - c->mine_from > lengthof(c->mine))
			c->mine_from = c->mine_to - (u32)lengthof(c->mine);
	}
	store(chunk_state(k->index), FT_STATE_FULL);
	pool_wake();
}

/* release hands over the oldest chunk that this thread holds back, or with all set, when
   there is none, the current one. It returns 0 when there is nothing to hand over. */
static int release(struct control *c, int all)
{
	struct chunk *k = c->old[1].base ? &c->old[1] : c->old[0].base || !all ? &c->old[0] : &c->chunk;
	if (!k->base)
		return 0;
	if (k == &c->chunk)
		seal_current(c);
	pool_full(c, k);
	k->base = 0;
	return 1;
}

/* last_resort is for a thread that has no chunk at all: a small one is enough to lose
   events in that are counted. */
static int last_resort(struct control *c, struct chunk *out, u32 least)
{
	return !c->chunk.base && pool.small && least <= pool.small_size && claim_small(out);
}

/* recorder_busy says whether the recorder has chunks that it will free, and that this
   process can use. */
static int recorder_busy(void)
{
	for (u32 i = 0; i < pool.full + pool.small; i++) {
		u32 s = load(chunk_state(i));
		if (s != FT_STATE_OWNED && (s != FT_STATE_FREE || i < pool.full) && pool_reachable(i))
			return 1;
	}
	return 0;
}

/* A wait for a chunk. */
struct wait {
	u32 beat, freed; /* what the recorder counted when it was looked at last */
	u32 idle;        /* times in a row that nothing was to be hoped for */
	u64 silent;      /* ns asked to sleep since that heartbeat */
	int again;       /* it is not the first sleep */
};

/* wait_a_while sleeps until the recorder has freed something after it had counted freed,
   but not for long. It returns 0 when the recorder has been silent for too long. Only time
   that the thread has asked to sleep counts, not what it was late to wake: on a machine
   that is so busy, the recorder is late as well. */
static int wait_a_while(struct wait *w, u32 freed)
{
	u64 slice = SLICE + SLICE_EACH * add(HEADER(u32, FT_H_WAITERS), 1);
	if (slice > SLICE_LONGEST)
		slice = SLICE_LONGEST;
	u64 from = clock_ns(CLOCK_MONOTONIC_);
	futex_wait(HEADER(u32, FT_H_FREED), freed, slice);
	add(HEADER(u32, FT_H_WAITERS), -1);
	u64 slept = clock_ns(CLOCK_MONOTONIC_) - from;
	w->silent += slept < slice ? slept : slice;
	u32 beat = load(HEADER(u32, FT_H_HEARTBEAT));
	if (!w->again || beat != w->beat) {
		w->beat = beat;
		w->silent = 0;
	}
	w->again = 1;
	return w->silent < PATIENCE;
}

/* pool_chunk gets a free chunk of at least so many bytes, as the pool's policy says.

   With policy block, a thread waits as long as a chunk can be hoped for, and there are two
   reasons to give up. Nobody is there to free one: no heartbeat. Or there is nothing to
   free: all chunks are other tasks', which may be idle with them for ever, and hold what
   this thread would have to give them before they go on; so it gives what it has first.
   One look does not say so, since others may just have been faster. As long as the recorder
   frees chunks at all, tasks do hand some over, and one of them will be this thread's. */
hidden int pool_chunk(struct control *c, struct chunk *out, u32 least)
{
	struct wait w = { load(HEADER(u32, FT_H_HEARTBEAT)), load(HEADER(u32, FT_H_FREED)), 0, 0, 0 };
	u32 policy = *HEADER(u32, FT_H_POLICY);
	for (;;) {
		if (load(HEADER(u32, FT_H_CLOSED)))
			stop_tracing(0, 0);
		if (load(&source.kind) != POOL)
			return 0;
		u32 freed = load(HEADER(u32, FT_H_FREED));
		if (claim(c, out, least)) {
			c->starved = 0;
			return 1;
		}
		if (policy == FT_POLICY_OVERWRITE && own_oldest(c, out, least))
			return 1;
		if (policy == FT_POLICY_DROP || recorder_is_silent())
			return last_resort(c, out, least);
		/* Chunks that this thread holds back are no use to anybody now, and with
		   many threads they may be all there are. */
		int busy = recorder_busy();
		if ((w.again || !busy) && release(c, !busy))
			continue;
		if (busy || freed != w.freed)
			w.idle = 0;
		w.freed = freed;
		if (!busy && (c->starved || w.idle++ == HOPE)) {
			c->starved = 1;
			return last_resort(c, out, least);
		}
		if (!wait_a_while(&w, freed))
			be_silent(w.beat);
	}
}
