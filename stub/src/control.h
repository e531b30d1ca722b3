/* The control block of a thread: what the fast paths touch, and what the slow ones
   remember of it.

   It is a page of its own, which the kernel wipes in a forked child. So a child's first
   event fails every test of a fast path and comes to a slow one, without anything being
   told to the child, and a fork at any moment, also by a bare clone, needs no handler. */
#ifndef FENTRY_CONTROL_H
#define FENTRY_CONTROL_H
#include "types.h"
#include "format.h"
#include "layout.h"
#include "machine.h"

struct stack {
	u64 lo, hi; /* stack addresses whose shadow is mapped */
	u64 top;    /* as in struct control */
	u64 id;     /* as the trace knows it, unique in the process */
	u32 back;   /* forced frames: index of the stack to go back to */
	u64 used;   /* when the task last came here, in switches */
};

/* A table of n of them has the address of the one whose place it has taken behind it. */
static inline u64 stacks_size(u32 n) { return n * sizeof(struct stack) + sizeof(struct stack *); }
static inline struct stack **stacks_before(struct stack *t, u32 n) { return (struct stack **)(t + n); }

/* A system call that has begun, and at whose end there is something to do. */
struct open_call {
	u64 sp;  /* of the program, which tells it apart from those of handlers inside it */
	u64 nr;
	u64 first; /* argument, whose register can have the result at the end */
};

/* What a thread has counted in an image. */
struct table {
	u64 *entries;
	u64 *active;
};

at(table, entries, T_ENTRIES);
at(table, active, T_ACTIVE);

enum { MOST_TABLED = 96 }; /* images of a process that are counted, beside the first */
enum { BACKTRACES = 40 << 10 }; /* bytes */

struct chunk {
	u64 base;  /* address, 0: none */
	u32 index; /* in the pool, or of the window it is in */
	u32 size;  /* bytes */
};

/* A chunk that the thread has handed over: its index in the pool, and its number then. */
struct mine { u32 index, number; };

/* The control block of a thread, a page of its own that is zero in a forked child. */
struct control {
#if CB_TOP < CB_NEXT
	u64 owner, top, next, end, lo;
#else
	u64 owner, next, end, top, lo;
#endif
	u32 high, id_base;
	u64 shadow[SHADOW_DISTANCES];
	u64 child;
	struct table table;
	struct control *self;
	u32 *libtid;
	u32 tid, pid;
	u32 order;
	u32 sys_open; /* how many of open_calls are taken */
	u64 sys_end;
	u64 goroutine;
	u32 high_enter, id_enter;
	u64 room;
	/* only slow paths from here on */
	u64 own_stack; /* Go's programs: number of the thread's own stack, once a goroutine has been on it */
	u64 first; /* without a clock: the sequence number of the current chunk's first byte */
	u64 key; /* counter at registration: tells tasks apart */
	u32 ppid, ptid;
	struct chunk chunk;  /* next and end lie in it; base 0: events go nowhere, or to the scrap */
	u64 limit;           /* last slot of it; end is nearer at first */
	struct chunk old[2]; /* left, not yet handed over: a writer that a signal interrupted may still hold a slot */
	u64 ahead;           /* bytes of the chunks behind it that are this thread's already */
	u64 lap;             /* where in it events are given up for newer ones, 0: nowhere; see chunk.c */
	u32 scrap;           /* events go to the scrap */
	u32 number;          /* of chunks so far */
	u32 cur;             /* index of the stack the thread is on */
	u32 begun;           /* of stacks; 0: it is not known yet where the thread is */
	u64 stack;           /* number of the one it is on */
	u32 starved;         /* waiting for a chunk was in vain the last time */
	u64 switches;
	u64 lost;            /* events lost so far */
	u64 lost_before_chunk; /* events lost since the last chunk, counted in the file's header */
	struct mine mine[64]; /* overwrite: chunks handed over, oldest first, as places from mine_from to mine_to */
	u32 mine_from, mine_to;
	u64 comm[2];
	struct stack *stacks; /* those the thread was seen on; at first few */
	u32 nstacks;          /* room for */
	struct stack few[24];
	struct open_call open_calls[4];
	struct control *vforked; /* block of the child that runs on this thread's stack, or has last; see syscall.c */
	u32 names;               /* that of syscall.c when comm was read */
	u32 naming;              /* descriptor of another thread's name, plus 1; 0: none */
	u32 vforks;              /* system calls open that make such a child */
	struct backtraces *backtraces; /* BACKTRACES bytes; 0: no stack of the thread was taken */
	u64 due, looked;         /* stacks on a timer: when the next one is due, when that was looked at, in ticks */
	u64 ran;                 /* how long the thread had run when the last was taken, in ns */
	u32 pace;                /* events after which that is looked at again; 0: never */
	u32 epoch;               /* changes with the chunk, and when events of it are given up */
	u32 chained;             /* open frames are all in the chains; 0: perhaps not those of before a fork, or that were forgotten */
#ifdef FENTRY_CLASSIC
	u32 busy; /* runs a callback of the program's */
#endif
	struct table tables[MOST_TABLED];
};

/* set_high keeps the high half of the counter, t, where fast paths compare it. */
static inline void set_high(struct control *c, u64 t) { c->high = c->high_enter = (u32)(t >> 32); }

/* unsure says whether fast paths do not find a block, as the C library does not say that it is this thread's. */
static inline int unsure(struct control *c) { return c->libtid && *c->libtid != c->tid; }

/* is_event says whether a word is what losses count: an entry, an exit, or the begin or end of a system
   call. */
static inline int is_event(u64 w)
{
	u32 id = (u32)(w >> 32);
	return w != 0 && ((id & FT_RECORD_MASK) != FT_RECORD_BASE ||
			  (id >> FT_RECORD_TYPE_SHIFT & FT_RECORD_TYPE_MASK) == FT_REC_SYS);
}

/* seal_current writes how much of the current chunk is used. */
static inline void seal_current(struct control *c)
{
	u64 used = c->next - c->chunk.base;
	if (used > c->chunk.size)
		used = c->chunk.size;
	store((u32 *)(c->chunk.base + FT_C_SIZE), (u32)used);
}

#ifdef FENTRY_CLASSIC
enum { CALLBACKS = 1 }; /* threads need control blocks without a trace, too */
#else
enum { CALLBACKS = 0 };
#endif

at(control, next, CB_NEXT);
at(control, end, CB_END);
at(control, owner, CB_OWNER);
at(control, top, CB_TOP);
at(control, lo, CB_LO);
at(control, high, CB_HIGH);
at(control, id_base, CB_ID_BASE);
at(control, shadow, CB_SHADOW);
at(control, child, CB_CHILD);
at(control, table, CB_TABLE);
at(control, self, CB_SELF);
at(control, libtid, CB_LIBTID);
at(control, tid, CB_TID);
at(control, order, CB_ORDER);
at(control, sys_open, CB_SYS_OPEN);
at(control, sys_end, CB_SYS_END);
at(control, goroutine, CB_GOROUTINE);
at(control, high_enter, CB_HIGH_ENTER);
at(control, id_enter, CB_ID_ENTER);
at(control, room, CB_ROOM);
_Static_assert(sizeof(struct control) <= 4096, "control");

#endif
