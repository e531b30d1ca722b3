/* Chunks of a recorder's pool: shared memory that the recorder drains.

   Of the pool a process maps what it uses, in pieces: under a limit of its address
   space the pool would leave it little room. Under an emulator of user programs,
   which cannot make a second mapping from one (mremap with an old size of 0), it is
   all mapped at the start.

   Where pages are larger than the header, pieces begin within a page. */
#include "pool.h"
#include "process.h"
#include "source.h"
#include "sys.h"
#include "wipe.h"

enum {
	SLICE = 50000000, /* ns: how long to wait before looking around again */
	PATIENCE = 60,    /* slices without a heartbeat after which the recorder is taken for dead */
	HOPE = 4,         /* slices to wait when all chunks belong to tasks: some may be dead */
	PIECE = 8,        /* chunks mapped at once */
};

static u32 chunks;
static u64 first;  /* bytes to the first chunk */
static u32 search; /* where to look for a free chunk */
static u64 *pieces; /* addresses, 0: not mapped */
static u8 *touched; /* by chunk: this process has its page tables */

static u32 *state(u32 i) { return (u32 *)(source.header + FT_STATES_OFF) + i; }

/* pool_open maps the header of the pool behind fd; head is the start of it. */
hidden int pool_open(i64 fd, const u8 *head)
{
	u32 count = *(u32 *)(head + FT_H_CHUNKS), size = *(u32 *)(head + FT_H_CHUNK_SIZE), header = *(u32 *)(head + FT_H_HEADER_SIZE);
	if (header % 4096 || header < FT_STATES_OFF + 4UL * count || *(u32 *)(head + FT_H_CLOSED))
		return 0;
	u64 all = wipe_is_emulated() ? (u64)count * size : 0;
	i64 m = sys(SYS_mmap, 0, header + all, PROT_RW, MAP_SHARED_, fd, 0);
	touched = map_private(count + 8UL * (count / PIECE + 1));
	if (failed(m) || !touched)
		return 0;
	pieces = (u64 *)touched;
	touched += 8UL * (count / PIECE + 1);
	for (u32 i = 0; all && i < count; i += PIECE)
		pieces[i / PIECE] = (u64)m + header + (u64)i * size;
	chunks = count;
	first = header;
	source.chunk_size = size;
	source.header = (u8 *)m;
	source.kind = POOL;
	return 1;
}

/* address returns where chunk i is mapped. It is mapped if may_map is set. 0: it
   is not, or cannot be. */
static u64 address(u32 i, int may_map)
{
	u64 *p = &pieces[i / PIECE], base = load(p);
	if (!base && may_map) {
		/* The same memory again, from the header on, less what is before the piece. */
		u64 off = first + (u64)(i / PIECE * PIECE) * source.chunk_size;
		u64 n = chunks - i / PIECE * PIECE;
		u64 size = (n < PIECE ? n : PIECE) * source.chunk_size;
		i64 r = sys(SYS_mremap, source.header, 0, off + size, MREMAP_MAYMOVE_, 0, 0);
		if (failed(r))
			return 0;
		sys(SYS_munmap, r, off & -page_size, 0, 0, 0, 0);
		base = (u64)r + off;
		if (!cas(p, 0, base)) {
			sys(SYS_munmap, base & -page_size, size + (off & (page_size - 1)), 0, 0, 0, 0);
			base = load(p);
		}
	}
	return base ? base + (u64)(i % PIECE) * source.chunk_size : 0;
}

/* claim takes a free chunk: one that is mapped, if there is one. */
static int claim(struct chunk *out)
{
	u32 from = load(&search);
	for (u32 n = 0; n < 2 * chunks; n++) {
		u32 i = (from + n) % chunks;
		if (load(state(i)) != FT_STATE_FREE)
			continue;
		u64 base = address(i, n >= chunks);
		if (!base || !cas(state(i), FT_STATE_FREE, FT_STATE_OWNED))
			continue;
		store(&search, i + 1);
		out->index = i;
		out->base = base;
		if (!touched[i]) {
			u64 before = base & (page_size - 1);
			sys(SYS_madvise, base - before, source.chunk_size + before, MADV_POPULATE_WRITE_, 0, 0, 0);
			touched[i] = 1;
		}
		return 1;
	}
	return 0;
}

/* own_oldest takes the oldest chunk that this thread filled back, for the newest
   events to go to. The recorder, or for its sake nobody, may have it by now. */
static int own_oldest(struct control *c, struct chunk *out)
{
	while (c->mine_from != c->mine_to) {
		u32 i = c->mine[c->mine_from++ % lengthof(c->mine)];
		u8 *h = (u8 *)address(i, 0);
		if (!h || !cas(state(i), FT_STATE_FULL, FT_STATE_OWNED))
			continue;
		if (*(u64 *)(h + FT_C_KEY) != c->key || *(u32 *)(h + FT_C_TID) != c->tid) {
			store(state(i), FT_STATE_FULL);
			continue;
		}
		memset(h, 0, source.chunk_size);
		out->base = (u64)h;
		out->index = i;
		return 1;
	}
	return 0;
}

/* pool_full hands a chunk of this thread to the recorder. */
hidden void pool_full(struct control *c, struct chunk *k)
{
	c->mine[c->mine_to++ % lengthof(c->mine)] = k->index;
	if (c->mine_to - c->mine_from > lengthof(c->mine))
		c->mine_from = c->mine_to - (u32)lengthof(c->mine);
	store(state(k->index), FT_STATE_FULL);
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
	for (u32 i = 0; i < chunks; i++) {
		u32 s = load(state(i));
		if (s != FT_STATE_OWNED)
			return 1;
	}
	return 0;
}

/* pool_chunk gets a free chunk, as the pool's policy says. */
hidden int pool_chunk(struct control *c, struct chunk *out)
{
	u32 beat = load(HEADER(u32, FT_H_HEARTBEAT)), quiet = 0, idle = 0;
	u32 policy = *HEADER(u32, FT_H_POLICY);
	for (;;) {
		if (load(HEADER(u32, FT_H_CLOSED))) {
			stop_tracing(0, 0);
			return 0;
		}
		u32 freed = load(HEADER(u32, FT_H_FREED));
		if (claim(out)) {
			c->starved = 0;
			return 1;
		}
		if (policy == FT_POLICY_OVERWRITE && own_oldest(c, out))
			return 1;
		if (policy == FT_POLICY_DROP)
			return 0;
		/* Chunks that this thread holds back are no use to anybody now, and with
		   many threads they may be all there are. */
		int busy = recorder_busy();
		if ((quiet > 0 || !busy) && release_old(c))
			continue;
		if (!busy && (c->starved || idle++ == HOPE)) {
			c->starved = 1;
			return 0;
		}
		add(HEADER(u32, FT_H_WAITERS), 1);
		futex_wait(HEADER(u32, FT_H_FREED), freed, SLICE);
		add(HEADER(u32, FT_H_WAITERS), -1);
		if (load(HEADER(u32, FT_H_HEARTBEAT)) != beat) {
			beat = load(HEADER(u32, FT_H_HEARTBEAT));
			quiet = 0;
		} else if (++quiet == PATIENCE) {
			stop_tracing("the recorder does not answer", 0);
			return 0;
		}
	}
}
