/* The memory of control blocks, and how a thread finds its own.

   A block is 4096 bytes of an arena, at the thread's control base. Where that is a
   register (gs on amd64), a new thread inherits its creator's, whose owner it is
   not, and so comes here. Where the program uses that register itself, or threads
   were there before the runtime, blocks are found by the thread pointer, in a table,
   which is a cache: an entry may be another thread's. Where the control base is
   thread-local memory of ours (arm64), there is 0 in a new thread; only the executable has
   that, so if there are other images, blocks are in the table as well.

   Arenas are wiped in a forked child; the last page of each is not and tells the
   child whose child it is.

   There can be tens of thousands of threads, so nothing that a new thread does looks at
   all blocks one by one: not taken yet are those behind a mark, and where a thread
   pointer has to be searched, the twins are, which stand close together. */
#include "blocks.h"
#include "chunk.h"
#include "image.h"
#include "process.h"
#include "sys.h"
#include "wipe.h"

enum { BLOCK = 4096, BLOCKS = 64 };

_Static_assert(sizeof(struct twin) * BLOCKS <= BLOCK, "twin");
_Static_assert(sizeof(struct control) <= BLOCK - sizeof(u32), "mark");

static u8 *arenas[ARENAS];


static u32 cursor; /* where to look for a free block */

hidden u32 based; /* a control base was set, which new threads inherit */

hidden u64 fentry_first_thread[8]; /* see early_thread */

/* At exec stop a recorder points gs here: a block without an owner. */
hidden struct null_block fentry_null_cb __attribute__((aligned(64)));

/* new_arena makes an arena, unless another thread has done so. */
static u8 *new_arena(u32 i)
{
	u8 *a = map_private((BLOCKS + 1) * BLOCK);
	if (!a)
		return 0;
	if (cas(&arenas[i], (u8 *)0, a)) {
		wiped_on_fork(a, BLOCKS * BLOCK);
		return a;
	}
	sys(SYS_munmap, a, (BLOCKS + 1) * BLOCK, 0, 0, 0, 0);
	return load(&arenas[i]);
}

/* arena returns an arena, and sees to it that all before it are there: who searches
   stops at the first that is not. */
static u8 *arena(u32 i)
{
	u8 *a = load(&arenas[i]);
	for (u32 k = 0; !a && k <= i; k++)
		if (!load(&arenas[k]) && !new_arena(k))
			return 0;
	return load(&arenas[i]);
}

static struct control *block_at(u8 *a, u32 i) { return (struct control *)(a + i * BLOCK); }
static struct twin *twin_at(u8 *a, u32 i) { return (struct twin *)(a + BLOCKS * BLOCK) + i; }

/* mark is the number of blocks that have been taken: the rest of the first block, which
   is wiped with it. */
static u32 *mark(u8 *first) { return (u32 *)(first + BLOCK) - 1; }

/* find_twin returns the twin of a block, or 0 if p is no block. */
hidden struct twin *find_twin(u64 p)
{
	for (u32 i = 0; i < ARENAS; i++) {
		u8 *a = load(&arenas[i]);
		if (!a)
			return 0;
		if (p - (u64)a < BLOCKS * BLOCK)
			return p % BLOCK ? 0 : twin_at(a, (u32)((p - (u64)a) / BLOCK));
	}
	return 0;
}

/* take_block makes a dead thread's block this thread's. */
hidden int take_block(struct control *c, u32 pid, u32 tid)
{
	u32 old = load(&c->tid);
	if (old == 0 || c->pid != pid || thread_alive(pid, old) || !cas(&c->tid, old, tid))
		return 0;
	give_up_chunks(c);
	return 1;
}

/* free_block finds a block for a new thread: that of a dead one, if one is met
   soon; never used ones are plenty. Where blocks are found by thread pointer, a
   dead thread's may be in use already by a new one with the same thread pointer,
   which does not know. */
hidden struct control *free_block(u32 pid, u32 tid)
{
	for (u32 n = 0; n < 4 && !fentry_blocks; n++) {
		u32 i = add(&cursor, 1) % (ARENAS * BLOCKS);
		u8 *a = load(&arenas[i / BLOCKS]);
		if (!a || load(&block_at(a, i % BLOCKS)->tid) == 0) {
			store(&cursor, 0);
			continue;
		}
		if (take_block(block_at(a, i % BLOCKS), pid, tid))
			return block_at(a, i % BLOCKS);
	}
	u8 *first = arena(0);
	if (!first)
		return 0;
	while (load(mark(first)) < ARENAS * BLOCKS) {
		u32 i = add(mark(first), 1);
		u8 *a = i < ARENAS * BLOCKS ? arena(i / BLOCKS) : 0;
		if (!a)
			break;
		if (cas(&block_at(a, i % BLOCKS)->tid, 0, tid))
			return block_at(a, i % BLOCKS);
	}
	for (u32 i = 0; i < ARENAS * BLOCKS; i++) {
		u8 *a = load(&arenas[i / BLOCKS]);
		if (!a)
			return 0;
		if (cas(&block_at(a, i % BLOCKS)->tid, 0, tid) || take_block(block_at(a, i % BLOCKS), pid, tid))
			return block_at(a, i % BLOCKS);
	}
	return 0;
}

/* share_base makes the table of blocks by thread pointer. Where the control base is not the
   runtime's own, it is given up for good; else those look into the table who cannot use it. */
hidden int share_base(void)
{
	if (load(&fentry_blocks))
		return 1;
	struct control **t = map_private((BLOCKS_MASK + 1) * sizeof *t);
	if (!t)
		return 0;
	if (!images_share_base(t))
		sys(SYS_munmap, t, (BLOCKS_MASK + 1) * sizeof *t, 0, 0, 0, 0);
	return 1;
}

/* own_libtid is the C library's copy of the thread's id, 0: it is not asked. Go's programs have no such library. */
hidden u32 *own_libtid(u32 tid)
{
	return OWN_BASE && wipe_is_emulated() && !fentry_image.goroutine ? libc_tid(tid) : 0;
}

/* publish makes the fast paths find the block of the running thread. */
hidden int publish(struct control *c)
{
	if (unsure(c)) /* musl forgets the id of a thread that is ending */
		c->libtid = own_libtid(c->tid);
	if (has_base() || !load(&fentry_blocks)) {
		if (!failed(set_control_base(c, wipe_is_emulated() && !fentry_image.goroutine))) {
			store(&based, 1);
			if (!load(&fentry_blocks))
				return 1;
		} else if (!share_base()) { /* a program can forbid itself to set it */
			return 0;
		}
	}
	if (!c->libtid)
		c->libtid = libc_tid(c->tid);
	if (!c->libtid && !OWN_BASE)
		c->libtid = &c->tid; /* nobody knows better */
	struct control **t = load(&fentry_blocks);
	store(&t[blocks_index(~c->owner)], c);
	return 1;
}

/* table_block returns what the table has for a thread pointer: a block, whoever's, or 0. */
hidden struct control *table_block(u64 owner)
{
	struct control **t = load(&fentry_blocks);
	return t ? load(&t[blocks_index(~owner)]) : 0;
}

/* blocks_wipe does to all blocks what the kernel has only pretended to do. */
hidden void blocks_wipe(void)
{
	for (u32 i = 0; i < ARENAS && arenas[i]; i++)
		wipe(arenas[i], BLOCKS * BLOCK);
}

/* blocks_bases tells all blocks where the ids of the image begin that finds them by the control
   base, when it joins. */
hidden void blocks_bases(void)
{
	for (u32 i = 0; i < ARENAS; i++) {
		u8 *a = load(&arenas[i]);
		for (u32 k = 0; a && k < BLOCKS; k++)
			images_bases(&block_at(a, k)->id_base, &block_at(a, k)->id_enter);
	}
}

/* find_block searches the block of the thread with a thread pointer: of one that
   lives in this process or, with a pid other than this process's in its twin, of
   the one that forked. A child made by vfork finds its parent's. */
hidden struct control *find_block(u64 owner, int forked)
{
	struct control *c = table_block(owner);
	if (c && !forked && c->owner == owner)
		return c;
	for (u32 i = 0; i < ARENAS; i++) {
		u8 *a = load(&arenas[i]);
		if (!a)
			return 0;
		for (u32 k = 0; k < BLOCKS; k++)
			if (twin_at(a, k)->owner == owner && (forked ? !load(&block_at(a, k)->tid) : block_at(a, k)->owner == owner))
				return block_at(a, k);
	}
	return 0;
}

/* leader_block returns the block of the process's first thread, whose thread-local
   memory libcs set up, or zero again, while the program starts. */
hidden struct control *leader_block(u32 pid)
{
	for (u32 i = 0; i < ARENAS; i++) {
		u8 *a = load(&arenas[i]);
		if (!a)
			return 0;
		for (u32 k = 0; k < BLOCKS; k++)
			if (load(&block_at(a, k)->tid) == pid && block_at(a, k)->pid == pid)
				return block_at(a, k);
	}
	return 0;
}

/* next_block returns the block of a thread of this process that comes at place *i or behind it, and sets *i to the place
   behind; 0: there is none. */
hidden struct control *next_block(u32 *i)
{
	u32 pid = getpid();
	while (*i < ARENAS * BLOCKS) {
		u8 *a = load(&arenas[*i / BLOCKS]);
		if (!a)
			return 0;
		struct control *c = block_at(a, (*i)++ % BLOCKS);
		if (load(&c->tid) && c->pid == pid)
			return c;
	}
	return 0;
}

/* blocks_leave unmaps all blocks, and what belongs to them. No thread finds one any more. */
hidden void blocks_leave(void)
{
	if (fentry_blocks)
		sys(SYS_munmap, fentry_blocks, (BLOCKS_MASK + 1) * sizeof *fentry_blocks, 0, 0, 0, 0);
	for (u32 i = 0; i < ARENAS && arenas[i]; i++) {
		for (u32 k = 0; k < BLOCKS; k++) {
			struct control *c = block_at(arenas[i], k);
			u32 n = c->nstacks;
			if (c->backtraces)
				sys(SYS_munmap, c->backtraces, BACKTRACES, 0, 0, 0, 0);
			for (struct stack *t = c->stacks, *before; t && t != c->few; t = before, n /= 4) {
				before = *stacks_before(t, n);
				sys(SYS_munmap, t, stacks_size(n), 0, 0, 0, 0);
			}
		}
		sys(SYS_munmap, arenas[i], (BLOCKS + 1) * BLOCK, 0, 0, 0, 0);
		arenas[i] = 0;
	}
}
