/* The running thread: which block is its own, whether it is a new thread, a thread that
   has got another thread pointer, a forked child or the child of a vfork.

   Emulators of user programs only pretend to wipe blocks in a forked child (wipe.c). On
   arm64, where this matters, fast paths then compare the C library's copy of the
   thread's id, which changes in a child, with the block's, and wiping is done here. */
#include "block.h"
#include "blocks.h"
#include "chunk.h"
#include "configuration.h"
#include "image.h"
#include "process.h"
#include "profile.h"
#include "source.h"
#include "stack.h"
#include "sys.h"
#include "thread.h"
#include "wipe.h"

/* begin_task makes a block that is this thread's by its tid, 0: none, work for it. Without an owner,
   fast paths do not find it. */
static struct control *begin_task(struct control *c, u32 pid, u32 tid, u64 owner)
{
	if (!c)
		return 0;
	struct twin *w = find_twin((u64)c);
	struct table table = c->table; /* these two a dead thread's; never one of another process, those are wiped */
	u64 room = c->room;
	memset(c, 0, offsetof(struct control, tid));
	memset(&c->pid, 0, offsetof(struct control, tables) - offsetof(struct control, pid));
	c->pid = pid;
	c->room = room;
	c->self = c;
	c->stacks = c->few;
	c->nstacks = lengthof(c->few);
	c->libtid = own_libtid(tid);
	c->key = counter();
	images_bases(&c->id_base, &c->id_enter);
	c->stack = stack_number();
	set_high(c, c->key);
	if (tables() && !begin_tables(c, table)) {
		store(&c->tid, 0);
		return 0;
	}
	w->pid = pid;
	w->tid = tid;
	w->owner = owner;
	c->owner = owner;
	if (!owner || publish(c))
		return c;
	c->owner = 0;
	store(&c->tid, 0);
	return 0;
}

/* forked says whether this is a forked child of the process that a block is of,
   and the block has not been wiped. A child made by vfork is none. */
static int forked(struct control *c)
{
	return c->owner && wipe_is_emulated() && c->pid != getpid() && (!c->libtid || *c->libtid != c->tid);
}

/* none is for a thread that has no block, and so cannot be traced: its call is counted
   as lost. Without a stream of events, nobody counts. */
static struct control *none(void)
{
	static u32 said;
	if (!tables() && source.header)
		add(HEADER(u64, FT_H_LOST), fentry_config.mode == MODE_FUNCTION ? 1 : 2);
	else if (!swap(&said, 1))
		uncounted(1);
	return 0;
}

/* quick_block returns this thread's block where a fast path would find it; else 0. */
hidden struct control *quick_block(void)
{
	if (OWN_BASE ? has_base() : load(&based) && !load(&fentry_blocks))
		return own_block();
	struct control **t = load(&fentry_blocks);
	u64 tp = thread_pointer();
	struct control *c = t ? t[blocks_index(tp)] : 0;
	return c && c->owner == ~tp && (!c->libtid || *c->libtid == c->tid) ? c : 0;
}

/* find_thread returns the running thread's block, which the thread gets when it
   comes here first. 0: this thread cannot be traced. */
static struct control *find_thread(void)
{
	u64 owner, base = 0;
	struct control *c = 0;
	if (OWN_BASE && !thread_pointer())
		return 0;
	owner = ~thread_pointer();
	/* Asking the kernel for the control base is what a program may have forbidden itself by now. */
	if (!OWN_BASE && load(&based) && !load(&fentry_blocks) && (c = own_block()))
		return c;
	if (has_base() || !load(&fentry_blocks)) {
		base = control_base();
		if (find_twin(base))
			c = (struct control *)base;
		else if (base != 0 && base != (u64)&fentry_null_cb && (OWN_BASE || !share_base()))
			return none(); /* the program uses it */
	}
	int shared = !has_base() && load(&fentry_blocks);
	if (shared)
		c = find_block(owner, 0);
	if (OWN_BASE && c && forked(c)) {
		wipe_now();
		blocks_wipe();
	}
	u32 tid = 0, pid = 0;
	if (c && c->owner == owner) {
		/* By the control base the block is this thread's, or its parent's that waits
		   for vfork's child. A thread pointer may have been another thread's before. */
		if (!shared) {
			if (OWN_BASE)
				publish(c); /* it may have gone from the table */
			return c;
		}
		tid = gettid();
		pid = getpid();
		/* Threads that the C library did not make can share a thread pointer. */
		if (c->tid == tid || c->pid != pid || (thread_alive(pid, c->tid) && !libc_tid(tid))) {
			publish(c);
			return c;
		}
		/* A dead thread's, or one's that the kernel is still ending. Another new thread may take it at
		   the same time. */
		c = begin_task(take_block(c, pid, tid) ? c : free_block(pid, tid), pid, tid, owner);
		return c ? c : none();
	}
	tid = gettid();
	pid = getpid();
	if (!tid || !pid)
		return none();
	if (has_base() && !c) {
		/* Who began before the executable joined is in the table. */
		struct control *t = table_block(owner);
		if (t && t->tid == tid && t->pid == pid)
			c = t;
		else if (tid == pid)
			c = leader_block(pid);
	}
	if (!shared && c && c->tid == tid && c->pid == pid) {
		c->owner = owner; /* the thread has set its thread pointer */
		c->libtid = own_libtid(tid);
		find_twin((u64)c)->owner = owner;
		return publish(c) ? c : none();
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
		record1(c, c->key, FT_REC_FORK, (u64)ppid << 32 | ptid);
	}
	return c ? c : none();
}

/* this_thread returns the running thread's block, with everything done that a fast path has left undone; 0: this thread
   cannot be traced. Signals are blocked. */
hidden struct control *this_thread(void)
{
	struct control *c = find_thread();
	if (c)
		catch_up(c);
	return c;
}

/* child_block returns a block for a child that runs in the place of the thread of another one: the one that
   the last such child had. 0: there is none. */
hidden struct control *child_block(struct control *parent, u32 tid)
{
	u32 pid = getpid();
	struct control *c = parent->vforked;
	if (c) {
		end_chunks(c);
		store(&c->tid, tid);
	} else {
		c = free_block(pid, tid);
	}
	c = begin_task(c, pid, tid, 0);
	if (!c)
		return 0;
	c->ppid = parent->pid;
	c->ptid = parent->tid;
	record1(c, c->key, FT_REC_FORK, (u64)c->ppid << 32 | c->ptid);
	return c;
}
