/* The threads of the process and their control blocks.

   A block is 4096 bytes of an arena, at the thread's control base. Where that is a
   register (gs on amd64), a new thread inherits its creator's, whose owner it is
   not, and so comes here. Where the program uses that register itself, or threads
   were there before the runtime, blocks are found by the thread pointer, in a table,
   which is a cache: an entry may be another thread's. Where the control base is
   thread-local memory of ours (arm64), there is 0 in a new thread.

   Arenas are wiped in a forked child; the last page of each is not and tells the
   child whose child it is. Emulators of user programs only pretend to do that. On
   arm64, where this matters, fast paths then compare the C library's copy of the
   thread's id, which changes in a child, with the block's, and wiping is done here. */
#include "runtime.h"
#include "block.h"

enum { BLOCK = 4096, BLOCKS = 64, ARENAS = 256 };

/* What a forked child finds of its parent. */
struct twin { u32 pid, tid; u64 owner; };
_Static_assert(sizeof(struct twin) * BLOCKS <= BLOCK, "twin");

static u8 *arenas[ARENAS];

/* What has to be zero in a forked child. */
static struct { u8 *p; u64 size; } wiped[ARENAS + 4];
static u32 nwiped;

/* pretended says whether madvise is answered by somebody who does nothing. */
hidden int pretended(void)
{
	static u32 known; /* 1: no, 2: yes */
	u32 k = load(&known);
	if (!k) {
		void *p = map_private(1); /* a page, of whatever size */
		k = p && !failed(sys(SYS_madvise, p, 1, 0x7ffffff0 /* there is no such advice */, 0, 0, 0)) ? 2 : 1;
		sys(SYS_munmap, p, 1, 0, 0, 0, 0);
		store(&known, k);
	}
	return k == 2;
}

/* wipe_on_fork makes private memory zero in forked children. */
hidden void wipe_on_fork(void *p, u64 size)
{
	sys(SYS_madvise, p, size, MADV_WIPEONFORK_, 0, 0, 0);
	u32 i = add(&nwiped, 1);
	wiped[i].size = size;
	store(&wiped[i].p, (u8 *)p);
}

/* wipe does what the kernel has only pretended to do. */
static void wipe(void)
{
	for (u32 i = 0; i < lengthof(wiped); i++)
		if (wiped[i].p)
			sys(SYS_mmap, wiped[i].p, wiped[i].size, PROT_RW, MAP_PRIVATE_ | MAP_ANON | MAP_NORESERVE_ | MAP_FIXED_, -1, 0);
}
hidden struct control **fentry_blocks; /* by thread pointer; 0: blocks are at the control base */

static u32 cursor; /* where to look for a free block */

static u32 based; /* a control base was set, which new threads inherit */

/* At exec stop a recorder points gs here: nobody's block. */
hidden struct null_block fentry_null_cb __attribute__((aligned(64)));

static u8 *arena(u32 i)
{
	u8 *a = load(&arenas[i]);
	if (a)
		return a;
	a = map_private((BLOCKS + 1) * BLOCK);
	if (!a)
		return 0;
	if (cas(&arenas[i], (u8 *)0, a)) {
		wipe_on_fork(a, BLOCKS * BLOCK);
		return a;
	}
	sys(SYS_munmap, a, (BLOCKS + 1) * BLOCK, 0, 0, 0, 0);
	return load(&arenas[i]);
}

static struct control *block_at(u8 *a, u32 i) { return (struct control *)(a + i * BLOCK); }
static struct twin *twin_at(u8 *a, u32 i) { return (struct twin *)(a + BLOCKS * BLOCK) + i; }

/* find_twin returns the twin of a block, or 0 if p is no block. */
static struct twin *find_twin(u64 p)
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

hidden int thread_alive(u32 pid, u32 tid) { return sys(SYS_tgkill, pid, tid, 0, 0, 0, 0) != -3 /* ESRCH */; }

/* take makes a dead thread's block this thread's. */
static int take(struct control *c, u32 pid, u32 tid)
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
static struct control *free_block(u32 pid, u32 tid)
{
	for (u32 n = 0; n < 4 && !fentry_blocks; n++) {
		u32 i = add(&cursor, 1) % (ARENAS * BLOCKS);
		u8 *a = load(&arenas[i / BLOCKS]);
		if (!a || load(&block_at(a, i % BLOCKS)->tid) == 0) {
			store(&cursor, 0);
			continue;
		}
		if (take(block_at(a, i % BLOCKS), pid, tid))
			return block_at(a, i % BLOCKS);
	}
	for (u32 i = 0; i < ARENAS; i++) {
		u8 *a = arena(i);
		if (!a)
			return 0;
		for (u32 k = 0; k < BLOCKS; k++)
			if (cas(&block_at(a, k)->tid, 0, tid))
				return block_at(a, k);
	}
	for (u32 i = 0; i < ARENAS * BLOCKS; i++)
		if (take(block_at(arenas[i / BLOCKS], i % BLOCKS), pid, tid))
			return block_at(arenas[i / BLOCKS], i % BLOCKS);
	return 0;
}

/* share_base gives up the control base for good. */
hidden int share_base(void)
{
	if (OWN_BASE)
		return 0;
	if (load(&fentry_blocks))
		return 1;
	struct control **t = map_private((BLOCKS_MASK + 1) * sizeof *t);
	if (!t)
		return 0;
	if (!cas(&fentry_blocks, (struct control **)0, t))
		sys(SYS_munmap, t, (BLOCKS_MASK + 1) * sizeof *t, 0, 0, 0, 0);
	return 1;
}

/* publish makes the fast paths find the block of the running thread. */
static int publish(struct control *c)
{
	struct control **t = load(&fentry_blocks);
	if (!t) {
		if (failed(set_control_base(c, pretended())))
			return 0;
		store(&based, 1);
		return 1;
	}
	store(&t[~c->owner >> BLOCKS_SHIFT & BLOCKS_MASK], c);
	return 1;
}

/* begin_task makes a block that is this thread's by its tid, 0: none, work for it. */
static struct control *begin_task(struct control *c, u32 pid, u32 tid, u64 owner)
{
	if (!c)
		return 0;
	struct twin *w = find_twin((u64)c);
	u64 *table = c->table, *active = c->active;
	memset(c, 0, offsetof(struct control, tid));
	memset(&c->pid, 0, sizeof *c - offsetof(struct control, pid));
	c->pid = pid;
	c->self = c;
	c->stacks = c->few;
	c->nstacks = lengthof(c->few);
	c->libtid = OWN_BASE && pretended() ? libc_tid(tid) : 0;
	c->key = counter();
	c->high = (u32)(c->key >> 32);
	if (table) { /* a dead thread's; never one of another process, those are wiped */
		c->table = table;
		c->active = active;
		memset(active, 0, 8UL * (fentry_config.sites + 1UL));
	}
	if (fentry_config.mode == MODE_PROFILE && !profile_thread(c)) {
		store(&c->tid, 0);
		return 0;
	}
	w->pid = pid;
	w->tid = tid;
	w->owner = owner;
	c->owner = owner;
	if (publish(c))
		return c;
	c->owner = 0;
	store(&c->tid, 0);
	return 0;
}

/* find_block searches the block of the thread with a thread pointer: of one that
   lives in this process or, with a pid other than this process's in its twin, of
   the one that forked. A child made by vfork finds its parent's. */
static struct control *find_block(u64 owner, int forked)
{
	for (u32 i = 0; i < ARENAS; i++) {
		u8 *a = load(&arenas[i]);
		if (!a)
			return 0;
		for (u32 k = 0; k < BLOCKS; k++)
			if (forked ? twin_at(a, k)->owner == owner && !load(&block_at(a, k)->tid) : block_at(a, k)->owner == owner)
				return block_at(a, k);
	}
	return 0;
}

/* leader_block returns the block of the process's first thread, whose thread-local
   memory libcs set up, or zero again, while the program starts. */
static struct control *leader_block(u32 pid)
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

/* forked says whether this is a forked child of the process that a block is of,
   and the block has not been wiped. A child made by vfork is none. */
static int forked(struct control *c)
{
	return c->owner && pretended() && c->pid != getpid() && (!c->libtid || *c->libtid != c->tid);
}

/* this_thread returns the running thread's block, which the thread gets when it
   comes here first. 0: this thread cannot be traced. Signals are blocked. */
hidden struct control *this_thread(void)
{
	u64 owner, base = 0;
	struct control *c = 0;
	if (!ready() || (OWN_BASE && !thread_pointer()))
		return 0;
	owner = ~thread_pointer();
	/* Asking the kernel for the control base is what a program may have forbidden itself by now. */
	if (!OWN_BASE && load(&based) && !load(&fentry_blocks) && (c = own_block()))
		return c;
	if (!load(&fentry_blocks)) {
		base = control_base();
		if (find_twin(base)) {
			c = (struct control *)base;
			if (OWN_BASE && forked(c))
				wipe();
		}
		else if (base != 0 && base != (u64)&fentry_null_cb && !share_base())
			return 0; /* the program uses it */
	}
	int shared = load(&fentry_blocks) != 0;
	if (shared)
		c = find_block(owner, 0);
	u32 tid = 0, pid = 0;
	if (c && c->owner == owner) {
		/* By the control base the block is this thread's, or its parent's that waits
		   for vfork's child. A thread pointer may have been another thread's before. */
		if (!shared)
			return c;
		tid = gettid();
		pid = getpid();
		if (c->tid == tid || c->pid != pid || thread_alive(pid, c->tid)) {
			publish(c);
			return c;
		}
		/* A dead thread's. Another new thread may take it at the same time. */
		return begin_task(take(c, pid, tid) ? c : free_block(pid, tid), pid, tid, owner);
	}
	tid = gettid();
	pid = getpid();
	if (OWN_BASE && !c && tid == pid)
		c = leader_block(pid);
	if (!shared && c && c->tid == tid && c->pid == pid) {
		c->owner = owner; /* the thread has set its thread pointer */
		c->libtid = OWN_BASE && pretended() ? libc_tid(tid) : 0;
		find_twin((u64)c)->owner = owner;
		return publish(c) ? c : 0;
	}
	u32 ppid = 0, ptid = 0;
	if (shared)
		c = find_block(owner, 1);
	struct twin *w = c ? find_twin((u64)c) : 0;
	if (w && w->pid && w->pid != pid && w->owner == owner && cas(&c->tid, 0, tid)) {
		ppid = w->pid; /* the thread that forked */
		ptid = w->tid;
	} else {
		c = free_block(pid, tid);
	}
	c = begin_task(c, pid, tid, owner);
	if (c && ppid) {
		c->ppid = ppid;
		c->ptid = ptid;
		put1(c, c->key, FT_EV_FORK, (u64)ppid << 32 | ptid);
	}
	return c;
}
