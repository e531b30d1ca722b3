/* The stacks a thread runs on, and the shadow of their return addresses. */
#ifndef FENTRY_STACK_H
#define FENTRY_STACK_H
#include "attach.h"
#include "blocks.h"

struct sigaltstack { u64 sp; i32 flags; u64 size; };
enum { SS_ONSTACK_ = 1 };

/* ROOM is the bytes below the address in a block's room. */
enum { ROOM = 64 << 10 };

hidden u64 stack_number(void);
hidden int enter_stack(struct control *c, u64 slot);
hidden void leave_stack(struct control *c);
hidden int on_goroutine(struct control *c);
hidden void enter_goroutine(struct control *c, u64 goroutine);
hidden int on_signal_stack(struct control *c, u64 slot, struct sigaltstack *ss);
hidden void stacks_init(void);
hidden int extra_shadow(void);
hidden int extra_late(void);
hidden int stacks_extend(void);
hidden void stacks_extended(void);
hidden u64 stacks_areas(struct area *to, u64 room);
hidden void stacks_leave(void);

static inline u64 top_slot(u64 top) { return (top & 7) == TOP_FORCED ? top + 1 : top; }
/* anothers says whether fast paths may find a block for another thread: it is found by the thread pointer, which may be a
   new thread's, and the C library does not say which thread has that. */
static inline int anothers(const struct control *c) { return fentry_blocks && (CALLBACKS || !c->libtid || c->libtid == &c->tid); }
/* empty_top is the top of a thread's stack that ends at hi. It lets no entry through the fast path where that may be
   another thread's. */
static inline u64 empty_top(const struct control *c, u64 hi) { return anothers(c) ? TOP_EMPTY : hi - 8 + TOP_EMPTY; }
static inline int top_empty(u64 top) { return (top & 7) == TOP_EMPTY; }

#endif
