/* System calls that the fast path leaves to C: the first of a thread, those for which there is no
   room in its chunk, and some that change what tracing relies on.

   A child made by vfork runs on its parent's stack with its parent's thread pointer, and so finds
   its parent's block: its events would lie inside the parent's call, and the end of that call would be
   taken for the end of the child's execve. The parent waits meanwhile. So while such a call is open, all
   system calls of the block come here, where the kernel tells who is who, and the child's go to a block of
   its own. Its functions, which are few before it executes a program, stay in the parent's trace.

   What arguments point to is read as memory.c says.

   A program that filters its system calls may end when the runtime makes one that it does not make
   itself: from then on nothing is captured.

   Where the stack is wanted it follows the call's beginning.

   Names of threads change by prctl, or by a write to /proc/self/task/TID/comm, which is how the C library names
   another thread. After the first the thread reads its own name again; after the second all threads do,
   each with its next system call that comes here. What is written before that has the name of before.

   A program that asks for the control base gets it: blocks are found by thread pointer from then on. */
#include "backtrace.h"
#include "blocks.h"
#include "chunk.h"
#include "configuration.h"
#include "image.h"
#include "machine.h"
#include "memory.h"
#include "handler.h"
#include "source.h"
#include "start.h"
#include "sys.h"
#include "syscall.h"
#include "thread.h"

#include "calls.h"

enum { CLONE_VM = 0x100, CLONE_VFORK = 0x4000 };

/* The process has filtered its system calls. */
static u32 filtered;

/* remember notes a system call that has something to do at its end. Of more than there is room for,
   the oldest are forgotten: nobody ends them, since a handler has left them. */
static void remember(struct control *c, u64 sp, u64 nr, u64 first)
{
	if (c->sys_open == lengthof(c->open_calls)) {
		for (u32 i = 1; i < c->sys_open; i++)
			c->open_calls[i - 1] = c->open_calls[i];
		c->sys_open--;
	}
	c->open_calls[c->sys_open++] = (struct open_call){ sp, nr, first };
}

/* recall takes what was noted of the system call that ends with the stack at sp, its number and first argument,
   and all that began inside it. It returns 0 if nothing was. */
static int recall(struct control *c, u64 sp, u64 *nr, u64 *first)
{
	for (u32 i = c->sys_open; i-- > 0;) {
		if (c->open_calls[i].sp != sp)
			continue;
		*nr = c->open_calls[i].nr;
		*first = c->open_calls[i].first;
		c->sys_open = i;
		return 1;
	}
	return 0;
}

/* forget drops what was noted of system calls that a handler has left by longjmp: the stack is where
   they were, or above. What makes children stays, as their parent waits. */
static void forget(struct control *c, u64 sp)
{
	while (c->sys_open && !c->vforks && c->open_calls[c->sys_open - 1].sp <= sp)
		c->sys_open--;
}

/* acting_block is the block of whoever runs: the thread that it belongs to, or a child in its place. */
hidden struct control *acting_block(struct control *c)
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

/* How many vectors or pointers are followed, and how many bytes of what each points to. */
enum { MOST_VECTORS = 8, MOST_POINTERS = 16, MOST_TEXT = 33 };

/* flags_of returns the flags of a clone3, which are the first word of its argument, or 0. The memory
   is the program's, and need not be there. */
static u64 flags_of(u64 at)
{
	u64 flags = 0;
	if (load(&filtered)) /* no filter minds that question */
		return readable(at) ? *(u64 *)at : 0;
	return read_program(getpid(), &flags, at, 8) == 8 ? flags : 0;
}

/* takes_place says whether a system call makes a child that runs in this thread's place. */
static int takes_place(u64 nr, const u64 *a)
{
	u64 flags = nr == NR_CLONE ? a[0] : nr == NR_CLONE3 ? flags_of(a[0]) : is_vfork(nr) ? CLONE_VM | CLONE_VFORK : 0;
	return (flags & (CLONE_VM | CLONE_VFORK)) == (CLONE_VM | CLONE_VFORK);
}

/* count_of is how many elements a part has. */
static u64 count_of(u32 pid, const struct part *p, const u64 *a, i64 result)
{
	u32 n = 0;
	switch (p->count) {
	case ARGUMENT:
		return a[p->by];
	case BEHIND:
		return read_program(pid, &n, a[p->by], sizeof n) == sizeof n ? n : 0;
	case RESULT:
		return (u64)result;
	}
	return 1;
}

/* extent is how many bytes of a part there are, and how many of them are captured at most; with vectors and pointers
   those of their array. */
static u64 extent(u32 pid, const struct part *p, const u64 *a, i64 result, u64 *most)
{
	u64 size = p->size, limit = p->limit, n = count_of(pid, p, a, result);
	switch (p->form) {
	case STRING:
		return *most = limit;
	case VECTORS:
		size = 16;
		limit = MOST_VECTORS * size;
		break;
	case POINTERS:
		size = 8;
		return *most = MOST_POINTERS * size;
	}
	*most = limit / size * size;
	return n > *most / size ? *most + 1 : n * size;
}

/* nested captures what the vectors or pointers in an array point to. */
static void nested(struct control *c, u64 t, const struct part *p, const u8 *array, u64 bytes)
{
	u64 copy[2 * MOST_VECTORS > MOST_POINTERS ? 2 * MOST_VECTORS : MOST_POINTERS], none;
	memcpy(copy, array, bytes);
	for (u64 i = 0; i < bytes / 8; i++) {
		if (p->form == POINTERS && !copy[i])
			return;
		if (p->form == POINTERS)
			write_data(c, t, 1, p->arg, copy[i], MOST_TEXT, MOST_TEXT, &none);
		else if (i % 2 == 0 && i + 1 < bytes / 8 && copy[i + 1])
			write_data(c, t, 0, p->arg, copy[i], copy[i + 1] < MOST_TEXT ? copy[i + 1] : MOST_TEXT - 1, copy[i + 1], &none);
	}
}

/* due says whether a part is for a call with these arguments. */
static int due(const struct part *p, const u64 *a)
{
	const u32 *v = case_values + p->values;
	for (u32 i = 0; i < p->n; i++)
		if ((a[p->when] & v[0]) == v[1 + i])
			return 1;
	return p->n == 0;
}

/* captures captures what is due at one end of a system call, or without write returns how many words that
   takes at most. */
static u32 captures(struct control *c, int write, u64 t, const struct plan *plan, int exit, const u64 *a, i64 result)
{
	enum { TEXT_WORDS = 3 + (MOST_TEXT + 7) / 8 };
	u32 words = 0;
	if (load(&filtered))
		return 0;
	for (u32 i = 0; i < lengthof(plan->part) && plan->part[i].form; i++) {
		const struct part *p = &plan->part[i];
		if (p->form == SPECIAL || p->exit != exit || a[p->arg] < 4096 || !due(p, a))
			continue;
		u64 most, have, want = extent(c->pid, p, a, result, &most), n = want < most ? want : most;
		words += (u32)(3 + (n + 7) / 8);
		if (p->form >= VECTORS)
			words += (u32)(n / (p->form == VECTORS ? 16 : 8)) * TEXT_WORDS;
		if (!write)
			continue;
		const u8 *b = write_data(c, t, p->form == STRING, p->arg, a[p->arg], n, want, &have);
		if (p->form >= VECTORS && b)
			nested(c, t, p, b, have);
	}
	return words;
}

/* has_end says whether a plan has a part when the call has ended. */
static int has_end(const struct plan *plan)
{
	for (u32 i = 0; i < lengthof(plan->part); i++)
		if (plan->part[i].exit)
			return 1;
	return 0;
}

static const struct plan *plan_of(u64 nr)
{
	u32 i = nr < SYSCALL_NUMBERS ? fentry_syscalls[nr] : 0;
	return &plans[i < lengthof(plans) ? i : 0];
}
_Static_assert(lengthof(plans) <= SYSCALL_NO_PLAN, "a number of its own");

/* is_asked says whether the stack is wanted at a system call. Where it cannot be walked nobody asks. */
static int is_asked(u64 nr) { return nr < SYSCALL_NUMBERS && fentry_config.stacks[nr / 8] >> nr % 8 & 1; }

/* is_special says whether the runtime has to do something about a system call. */
static int is_special(const struct plan *plan) { return plan->part[0].form == SPECIAL; }

/* makes_child says whether a system call can make a child that runs in this thread's place. */
static int makes_child(u64 nr) { return nr == NR_CLONE || nr == NR_CLONE3 || is_vfork(nr); }

/* names counts how often the program has named another thread. */
static u32 names;

/* opens_name says whether an openat is of the name of a thread, to write it. */
static int opens_name(u32 pid, u64 nr, const u64 *a)
{
	enum { ACCESS_MODE = 3 };
	char path[48];
	if (nr != SYS_openat || !(a[2] & ACCESS_MODE) || load(&filtered))
		return 0;
	u64 n = read_program(pid, path, a[1], sizeof path), i = 0;
	while (i < n && path[i])
		i++;
	static const char end[] = "/comm";
	return i < n && i >= sizeof end && memcmp(path + i + 1 - sizeof end, end, sizeof end) == 0;
}

/* gives_name says whether a system call can change the name of another thread, or opens where that is done. */
static int gives_name(struct control *c, u64 nr, const u64 *a)
{
	return (nr == SYS_write && c->naming && (u32)a[0] + 1 == c->naming) || opens_name(c->pid, nr, a);
}

/* named notes what a system call that has ended does to names. */
static void named(struct control *c, u64 nr, const u64 *a, i64 result)
{
	enum { PR_SET_NAME = 15 };
	if (nr == SYS_openat && opens_name(c->pid, nr, a)) {
		c->naming = (u32)result + 1;
	} else if (nr == SYS_write && c->naming && (u32)a[0] + 1 == c->naming) {
		c->naming = 0;
		add(&names, 1);
	} else if (nr == SYS_prctl && a[0] == PR_SET_NAME && !load(&filtered)) {
		read_name(c);
	}
}

/* follow_names reads the thread's name again if another one may have changed it. */
static void follow_names(struct control *c)
{
	u32 now = load(&names);
	if (c->names == now || load(&filtered))
		return;
	c->names = now;
	read_name(c);
}

static void begins(struct control *c, const struct sysregs *r, u64 sp, u64 t)
{
	u64 nr = syscall_number(r), a[6];
	const struct plan *p = plan_of(nr);
	syscall_arguments(r, a);
	if (takes_base(nr, a))
		share_base();
	if (watch_filters(nr, a))
		store(&filtered, 1);
	forget(c, sp);
	follow_names(c);
	u64 delay = 0;
	int timer = WALKS && c->pace && sample_due(c, &delay);
	u32 stack = WALKS && (is_asked(nr) || timer) ? take_syscall_backtrace(c, r, sp) : 0;
	u64 *w = begin_syscall(c, t, 0, 7, captures(c, 0, t, p, 0, a, 0) + stack);
	if (w) {
		w[0] = nr;
		for (u32 i = 0; i < 6; i++)
			w[1 + i] = a[i];
		end_record(w);
		captures(c, 1, t, p, 0, a, 0);
	}
	if (WALKS && stack && is_asked(nr))
		write_backtrace(c, t, FT_STACK_AT_SYSCALL | nr);
	if (WALKS && stack && timer)
		write_backtrace(c, t, FT_STACK_ON_TIMER | delay);
	if (nr == NR_SIGACTION && !load(&filtered))
		sigaction_begins(a);
	int forks = is_special(p) && takes_place(nr, a);
	if (forks || has_end(p) || gives_name(c, nr, a))
		remember(c, sp, nr, a[0]);
	if (forks) {
		c->vforks++;
		room_ends(c);
	}
}

static void ends(struct control *c, const struct sysregs *r, u64 sp, u64 t)
{
	u64 nr = SYSCALL_NUMBERS, a[6];
	syscall_arguments(r, a);
	int known = recall(c, sp, &nr, &a[0]);
	if (known && makes_child(nr)) {
		if (c->vforked) /* it has ended, or is another program */
			end_chunks(c->vforked);
		c->vforks = 0;
		room_ends(c);
	}
	i64 result = (i64)syscall_result(r);
	if (nr == NR_SIGACTION && !load(&filtered))
		sigaction_ends(a, result);
	const struct plan *p = plan_of(failed(result) ? SYSCALL_NUMBERS : nr);
	u64 *w = begin_syscall(c, t, 1, 1, captures(c, 0, t, p, 1, a, result));
	if (w) {
		w[0] = (u64)result;
		end_record(w);
		captures(c, 1, t, p, 1, a, result);
	}
	if (known && !failed(result))
		named(c, nr, a, result);
}

/* syscall_event records that a system call begins or ends at counter t, with the program's stack at sp. */
hidden void syscall_event(struct control *c, const struct sysregs *r, u64 sp, int exit, u64 t)
{
	if (exit)
		ends(c, r, sp, t);
	else
		begins(c, r, sp, t);
}

/* fentry_slow_syscall records that a system call begins or ends. */
hidden LANDS void fentry_slow_syscall(struct sysregs *r, int exit)
{
	struct sigset old = block();
	u64 t = counter();
	struct control *c = traced_thread();
	if (c && (c = acting_block(c)))
		syscall_event(c, r, syscall_sp(r), exit, t);
	unblock(old);
}
