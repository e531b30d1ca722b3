/* Where the fast paths go when something is not in place: the thread is new, its
   stack is another one, frames were skipped, the chunk is full.

   All of these run on the traced program's stack, which may be a small one: they
   keep few locals. Signals are blocked meanwhile. */
#include "chunk.h"
#include "configuration.h"
#include "frame.h"
#include "stack.h"
#include "start.h"
#include "sys.h"

hidden u64 fentry_thunks;      /* address of the first thunk, 0: not known yet */
hidden u64 fentry_thunks_size; /* of all, in bytes */

/* What fast paths return to here is asked for by name in assembly only. */
hidden int fentry_slow_enter(u64 slot, u32 id, u64 thunk, u64 ret);
hidden u64 fentry_slow_exit(u64 slot, u32 id);
hidden struct control *fentry_slow_record(void);

/* is_thunk says whether a return address is a thunk's, where bodies return to. */
static int is_thunk(u64 ret)
{
	return ret - load(&fentry_thunks) < load(&fentry_thunks_size) && ret % THUNK_SIZE == THUNK_RET;
}

/* thunk_id is the id of the thunk that has a traced body's return address. */
static u32 thunk_id(u64 ret) { return (u32)((ret - load(&fentry_thunks)) / THUNK_SIZE) + 1; }

/* learn_thunks finds where the thunks are, from one of them: they stand one after
   another in the order of their ids. */
static void learn_thunks(u64 thunk, u32 id)
{
	if (load(&fentry_thunks_size) || fentry_config.sites < id)
		return;
	store(&fentry_thunks, (thunk & -(u64)THUNK_SIZE) - (u64)(id - 1) * THUNK_SIZE);
	store(&fentry_thunks_size, (u64)fentry_config.sites * THUNK_SIZE);
}

static int enter(u64 slot, u32 id, u64 ret)
{
	struct control *c = traced_thread();
	if (!c)
		return ENTER_SKIP;
	if (is_thunk(ret)) {
		/* A tail call. */
		enter_stack(c, slot);
		pop_skipped(c, slot);
		replace_frame(c, slot, thunk_id(ret), id);
		return ENTER_DONE;
	}
	u32 from = c->cur;
	if (!enter_stack(c, slot)) {
		lose(c, 2);
		return ENTER_SKIP;
	}
	if (c->cur != from)
		new_signal(c, slot);
	pop_skipped(c, slot + 1);
	/* A signal handler on a stack of its own, with nothing open yet: what it
	   interrupted may be one of our fast paths, which relies on finding its own
	   stack current again. So this frame is opened here and left on the slow path. */
	int bottom = top_empty(c->top) && (c->stacks[c->cur].back || fentry_blocks);
	if (!bottom && (c->top & 7) != TOP_FORCED)
		return ENTER_RETRY;
	if (open_frame(c, slot, ret, id))
		return ENTER_DONE;
	if (bottom)
		leave_stack(c);
	return ENTER_SKIP;
}

/* fentry_slow_enter deals with an entry of function id that returns to ret and has
   its shadow at slot's; thunk is an address in its thunk. It returns what the fast
   path is to do. */
hidden int fentry_slow_enter(u64 slot, u32 id, u64 thunk, u64 ret)
{
	struct sigset old = block();
	learn_thunks(thunk, id);
	int r = enter(slot, id, ret);
	unblock(old);
	return r;
}

/* fentry_slow_exit records an exit and returns where the function's caller is.
   Whatever has become of the trace, that address is right. */
hidden u64 fentry_slow_exit(u64 slot, u32 id)
{
	u64 ret = *shadow_ret(slot);
	struct sigset old = block();
	u64 t = counter();
	struct control *c = traced_thread();
	if (c) {
		enter_stack(c, slot);
		pop_skipped(c, slot);
		close_frame(c, slot, id & ~FT_ID_EXIT, t);
		if (top_empty(c->top))
			leave_stack(c);
	}
	unblock(old);
	return ret;
}

/* fentry_slow_record makes room for events, or tells of a new high half of the
   counter. It returns the thread's block, 0 when its events cannot be recorded. */
hidden struct control *fentry_slow_record(void)
{
	struct sigset old = block();
	struct control *c = traced_thread();
	if (c)
		room(c, 2);
	unblock(old);
	return c;
}
