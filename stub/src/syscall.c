/* System calls that the fast path leaves to C: the first of a thread, those for which there is no
   room in its chunk, and some that change what tracing relies on.

   A child made by vfork runs on its parent's stack with its parent's thread pointer, and so finds
   its parent's block: its events would lie inside the parent's call, and the end of that call would be
   taken for the end of the child's execve. The parent waits meanwhile. So while such a call is open, all
   system calls of the block come here, where the kernel tells who is who, and the child's go to a block of
   its own. Its functions, which are few before it executes a program, stay in the parent's trace.

   A program that asks for the control base gets it: blocks are found by thread pointer from then on. */
#include "blocks.h"
#include "chunk.h"
#include "image.h"
#include "machine.h"
#include "start.h"
#include "sys.h"
#include "syscall.h"
#include "thread.h"

const u8 fentry_syscalls[SYSCALLS] = {
	[NR_CLONE] = CALL_FORKS, [NR_CLONE3] = CALL_FORKS, MACHINE_CALLS(CALL_FORKS)
};

enum { CLONE_VM = 0x100, CLONE_VFORK = 0x4000 };

/* flags_of returns the flags of a clone3, which are the first word of its argument, or 0. The memory
   is the program's, and need not be there. */
static u64 flags_of(u64 at)
{
	u64 flags = 0;
	u64 to[2] = { (u64)&flags, 8 }, from[2] = { at, 8 };
	return sys(SYS_process_vm_readv, getpid(), to, 1, from, 1, 0) == 8 ? flags : 0;
}

/* takes_place says whether a system call makes a child that runs in this thread's place. */
static int takes_place(u64 nr, const u64 *a)
{
	u64 flags = nr == NR_CLONE ? a[0] : nr == NR_CLONE3 ? flags_of(a[0]) : is_vfork(nr) ? CLONE_VM | CLONE_VFORK : 0;
	return (flags & (CLONE_VM | CLONE_VFORK)) == (CLONE_VM | CLONE_VFORK);
}

/* remember notes a system call that has something to do at its end. Of more than there is room for,
   the oldest are forgotten: nobody ends them, since a handler has left them. */
static void remember(struct control *c, u64 sp, u64 nr)
{
	if (c->sys_open == lengthof(c->open_calls)) {
		for (u32 i = 1; i < c->sys_open; i++)
			c->open_calls[i - 1] = c->open_calls[i];
		c->sys_open--;
	}
	c->open_calls[c->sys_open++] = (struct open_call){ sp, nr };
}

/* recall takes what was noted of the system call that ends with the stack at sp, and all that began
   inside it. It returns 0 if nothing was. */
static int recall(struct control *c, u64 sp, u64 *nr)
{
	for (u32 i = c->sys_open; i-- > 0;) {
		if (c->open_calls[i].sp != sp)
			continue;
		*nr = c->open_calls[i].nr;
		c->sys_open = i;
		return 1;
	}
	return 0;
}

/* acting is the block of whoever runs: the thread that it belongs to, or a child in its place. */
static struct control *acting(struct control *c)
{
	if (!c->vforks)
		return c;
	u32 tid = gettid();
	if (tid == c->tid)
		return c;
	if (!c->vforked || c->vforked->tid != tid)
		c->vforked = child_block(c, tid);
	return c->vforked;
}

static void begins(struct control *c, const struct sysregs *r, u64 t)
{
	u64 nr = syscall_value(r), a[6];
	syscall_arguments(r, a);
	if (takes_base(nr, a))
		share_base();
	u64 *w = begin_syscall(c, t, 0, 7, 0);
	if (w) {
		w[0] = nr;
		for (u32 i = 0; i < 6; i++)
			w[1 + i] = a[i];
		end_record(w);
	}
	if (nr < SYSCALLS && fentry_syscalls[nr] & CALL_FORKS && takes_place(nr, a)) {
		remember(c, syscall_sp(r), nr);
		c->vforks++;
		room_ends(c);
	}
}

static void ends(struct control *c, const struct sysregs *r, u64 t)
{
	u64 nr;
	if (recall(c, syscall_sp(r), &nr)) {
		c->vforks = 0;
		c->vforked = 0;
		room_ends(c);
	}
	u64 *w = begin_syscall(c, t, 1, 1, 0);
	if (w) {
		w[0] = syscall_value(r);
		end_record(w);
	}
}

/* fentry_slow_syscall records that a system call begins or ends. */
hidden void fentry_slow_syscall(struct sysregs *r, int exit)
{
	struct sigset old = block();
	u64 t = counter();
	struct control *c = traced_thread();
	if (c && (c = acting(c)))
		exit ? ends(c, r, t) : begins(c, r, t);
	unblock(old);
}
