/* The runtime inside a traced program: what its files share. doc.go of package stub tells the story. */
#ifndef FENTRY_RUNTIME_H
#define FENTRY_RUNTIME_H
#include "types.h"
#include "layout.h"
#include "machine.h"
#include "format.h"
#include "sys.h"

#define hidden __attribute__((visibility("hidden")))

/* ---- configuration, config.S ---- */
/* The patcher writes it after the compiler is done: defined in assembly, so
   that no value of it is ever folded. */
extern hidden const struct config fentry_config;

#define at(s, m, o) _Static_assert(offsetof(struct s, m) == o, #s "." #m)

/* ---- threads, thread.c ---- */
struct stack {
	u64 lo, hi; /* stack addresses whose shadow is mapped */
	u64 top;    /* as in struct control */
	u32 id;     /* as the trace knows it */
	u32 back;   /* forced frames: index of the stack to go back to */
	u64 used;   /* when the task last came here, in switches */
};

struct chunk {
	u64 base;  /* address, 0: none */
	u32 index; /* in the pool, or of the window it is in */
};

/* The control block of a thread, a page of its own that is zero in a forked child. */
struct control {
	u64 owner, next, end, top, lo;
	u64 high;
	u64 shadow[SHADOW_DISTANCES];
	u64 child;
	u64 *table;
	u64 *active;
	struct control *self;
	u32 *libtid;
	u32 tid, pid;
	/* only slow paths from here on */
	u64 key; /* counter at registration: tells tasks apart */
	u32 ppid, ptid;
	struct chunk chunk;  /* next and end lie in it; base 0: events go to the scrap */
	u64 limit;           /* last slot of it; end is nearer at first */
	struct chunk old[2]; /* left, not yet handed over: a writer that a signal interrupted may still hold a slot */
	u32 scrap;           /* events counted as lost that may go to the scrap */
	u32 number;          /* of chunks so far */
	u32 cur;             /* index of the stack the thread is on */
	u32 stackids;        /* numbers given to stacks */
	u32 starved;         /* waiting for a chunk was in vain the last time */
	u64 switches;
	u64 lost;            /* events lost so far */
	u64 unborn;          /* events lost since the last chunk, counted in the file's header */
	u64 tablesize;
	u32 mine[64], mine_from, mine_to; /* overwrite: chunks handed over, oldest first */
	u64 comm[2];
	struct stack *stacks; /* those the thread was seen on; at first few */
	u32 nstacks;          /* room for */
	struct stack few[24];
#ifdef FENTRY_CLASSIC
	u32 busy; /* runs a callback of the program's */
#endif
};

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
at(control, shadow, CB_SHADOW);
at(control, child, CB_CHILD);
at(control, table, CB_TABLE);
at(control, active, CB_ACTIVE);
at(control, self, CB_SELF);
at(control, libtid, CB_LIBTID);
at(control, tid, CB_TID);
_Static_assert(sizeof(struct control) <= 4096, "control");

hidden struct control *this_thread(void);
hidden int share_base(void);
hidden int thread_alive(u32 pid, u32 tid);
hidden void wipe_on_fork(void *p, u64 size);
hidden int pretended(void);
extern hidden struct control **fentry_blocks;
struct null_block { u8 b[128]; };
extern hidden struct null_block fentry_null_cb;

/* blocked keeps every signal away from this thread until unblock. */
struct sigset { u64 mask; };
static inline struct sigset block(void)
{
	struct sigset all = { ~0UL }, old = { 0 };
	sys(SYS_rt_sigprocmask, 0 /* SIG_BLOCK */, &all, &old, 8, 0, 0);
	return old;
}
static inline void unblock(struct sigset old) { sys(SYS_rt_sigprocmask, 2 /* SIG_SETMASK */, &old, 0, 8, 0, 0); }

/* ---- the armed state, init.c ---- */
extern hidden u32 fentry_armed;
extern hidden u64 fentry_first_thread[8];
extern hidden u64 fentry_thunks; /* address of the first thunk, 0: not known yet */
extern hidden u64 fentry_thunks_size;
extern hidden u64 page_size;
hidden void fentry_init(u64 *sp);
hidden int ready(void);
hidden int alone(void);
hidden void stop_tracing(const char *why, i64 err);
hidden void only_count(i64 err);
hidden void say(const char *a, const char *b, const char *c, i64 err);

/* ---- stacks, stack.c ---- */
hidden int enter_stack(struct control *c, u64 slot);
hidden void leave_stack(struct control *c);
hidden void new_signal(struct control *c, u64 slot);
hidden int extra_shadow(void);

static inline u64 top_slot(u64 top) { return (top & 7) == TOP_FORCED ? top + 1 : top; }
/* empty_top is the top of a stack that ends at hi. Where blocks are found by thread
   pointer it lets no entry through the fast path: the thread pointer may be a new
   thread's, of which only its thread id tells. */
static inline u64 empty_top(u64 hi) { return fentry_blocks ? TOP_EMPTY : hi - 8 + TOP_EMPTY; }
static inline int top_empty(u64 top) { return (top & 7) == TOP_EMPTY; }

/* ---- frames, frame.c ---- */
hidden void frames_init(u64 hz);
hidden int open_frame(struct control *c, u64 slot, u64 ret, u32 id);
hidden void close_frame(struct control *c, u64 slot, u32 id, u64 t);
hidden void replace_frame(struct control *c, u64 slot, u32 old, u32 id);
hidden void pop_skipped(struct control *c, u64 slot);

/* ---- chunks, chunk.c ---- */
hidden void next_chunk(struct control *c);
hidden void lose(struct control *c, u64 n);
hidden void put(struct control *c, u64 t, u32 id);
hidden void put1(struct control *c, u64 t, u32 code, u64 word);
hidden void room(struct control *c, u32 words);
hidden void give_up_chunks(struct control *c);
hidden void chunk_header(struct control *c, u64 base, u32 kind, u32 number);
hidden int release_old(struct control *c);
hidden void write_image(void);

/* ---- where chunks come from: session.c, file.c, pool.c ---- */
enum { CLOSED, FILE, POOL };
struct source {
	u32 kind;
	u32 chunk_size;
	u8 *header; /* mapped page of the file, or the pool */
};
extern hidden struct source source;
hidden int open_source(char **env);
hidden int header_ok(const u8 *head);
#define ANY_TIME (~(u64)0)
hidden int lives(u32 pid, u64 start);
hidden u64 start_time(void);
hidden int file_create(const char *dir);
hidden int file_join(i64 fd, const char *path);
hidden int file_chunks(struct chunk *out, u32 n);
hidden void file_done(struct chunk *k);
hidden int pool_open(i64 fd, const u8 *head);
hidden int pool_chunk(struct control *c, struct chunk *out);
hidden void pool_full(struct control *c, struct chunk *k);

#define HEADER(t, off) ((t *)(source.header + (off)))

/* ---- profile.c ---- */
hidden int profile_thread(struct control *c);
hidden u64 counter_hz(void);
hidden void profile_skipped(struct control *c, u64 from, u64 to);

#endif
