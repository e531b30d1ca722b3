/* Where the fast paths go when something is not in place: the thread is new, its
   stack is another one, frames were skipped, the chunk is full.

   All of these run on the traced program's stack, which may be a small one: they
   keep few locals. Signals are blocked meanwhile: a handler that is traced would find
   what is half done here. */
#include "ahead.h"
#include "backtrace.h"
#include "chunk.h"
#include "configuration.h"
#include "frame.h"
#include "image.h"
#include "profile.h"
#include "stack.h"
#include "slow.h"
#include "source.h"
#include "start.h"
#include "swap.h"
#include "thread.h"
#include "sys.h"

/* count_call counts a call of f. The fast path has not found the table, or not looked whether
   the function is switched off. */
hidden void count_call(struct control *c, struct function f)
{
	if (!(load(&f.image->switches[f.id - 1]) & SWITCH_ON))
		return;
	struct table *t = c ? image_table(c, f.image) : 0;
	if (t)
		t->entries[f.id]++;
	else if (source.header && images_armed())
		add(HEADER(u64, FT_H_LOST), 1);
}

/* from_own says whether a call comes from Go's code, in a program of Go's with C code, or from OCaml's. What is open of C's then
   has called that code, which has a frame of its own below, or a panic or an exception has left it. */
static int from_own(u64 ret)
{
	const struct image_info *m = &fentry_image;
	return ret - ((u64)m + (u64)m->go_code) < m->go_code_size || ret - ((u64)m + (u64)m->ocaml_code) < m->ocaml_code_size;
}

/* enter_call records that f is called. Without t, it leaves that to the fast path where it can;
   else it sets t to the counter then. */
hidden int enter_call(struct control *c, u64 slot, struct function f, u64 ret, u64 fp, u64 *t)
{
	struct function old;
	u64 now;
	if (image_returns_to(ret, &old)) {
		/* A tail call. */
		if (c->top != slot) {
			go_to_stack(c, slot);
			pop_skipped(c, slot, counter());
		}
		now = counter();
		replace_frame(c, slot, old, f, now);
		if (t)
			*t = now;
		return ENTER_DONE;
	}
	u32 from = c->cur;
	int called = on_goroutine(c);
	if (!go_to_stack(c, slot) || (slot_taken(c, slot, fp) && !from_own(ret))) {
		lose(c, 2);
		return ENTER_SKIP;
	}
	if (c->cur != from && !called) /* what a handler has called can have called this */
		new_signal(c, slot);
	pop_skipped(c, slot + 1, counter());
	/* A signal handler on a stack of its own, with nothing open yet: what it
	   interrupted may be one of our fast paths, which relies on finding its own
	   stack current again. So this frame is opened here and left on the slow path. */
	int bottom = top_empty(c->top) && (c->stacks[c->cur].back || anothers(c));
	if (!t && !bottom && (c->top & 7) != TOP_FORCED)
		return ENTER_RETRY;
	now = counter();
	if (t)
		*t = now;
	if (open_frame(c, slot, ret, f, now))
		return ENTER_DONE;
	if (bottom)
		leave_stack(c);
	return ENTER_SKIP;
}

/* swap_call deals with an entry of a function that swaps pieces of its stack. It returns where the function's caller is. */
static u64 swap_call(struct control *c, u64 slot, u64 ret, u64 fp)
{
	struct function f;
	if (image_returns_to(ret, &f)) /* a tail call */
		ret = *shadow_ret(slot);
	if (c && go_to_stack(c, slot))
		swap_frames(c, slot, (struct registers){ .pc = ret, .sp = slot + SLOT_BELOW, .fp = caller_fp(slot, fp) });
	return ret;
}

/* fentry_slow_enter deals with an entry of an image's function id that returns to ret
   and has its shadow at slot's. fp is the caller's frame pointer where SHARED_SLOTS. It
   returns what the fast path is to do. Without an id, the function is one that swaps pieces of its stack, and it
   returns where that returns to. */
hidden u64 fentry_slow_enter(u64 slot, u32 id, struct image *m, u64 ret, u64 fp)
{
	struct function f = { m, id };
	struct function left;
	if (!CALLBACKS && id && image_returns_to(ret, &left) && images_armed() && replace_frame_at_once(quick_block(), slot, left, f))
		return ENTER_DONE; /* fast paths know a tail call in their own image */
	struct sigset old = block();
	struct control *c = traced_thread();
	u64 r = ENTER_SKIP;
	if (!CALLBACKS && !id) {
		r = swap_call(c, slot, ret, fp);
	} else if (fentry_config.mode == MODE_COUNT) {
		count_call(c, f);
		r = ENTER_DONE;
	} else if (c && (fentry_config.mode != MODE_PROFILE || image_table(c, m)))
		r = (u64)enter_call(c, slot, f, ret, fp, 0);
	unblock(old);
	return r;
}

/* close_call records that the call of f at slot ends at counter t; left_call is to follow. */
hidden void close_call(struct control *c, u64 slot, struct function f, u64 t)
{
	go_to_stack(c, slot);
	pop_skipped(c, slot, t);
	close_frame(c, slot, f, t);
}

/* left_call leaves the stack whose last call has ended. */
hidden void left_call(struct control *c)
{
	if (top_empty(c->top))
		leave_stack(c);
}

/* fentry_slow_exit records an exit of an image's function id, and returns where the
   function's caller is. Whatever has become of the trace, that address is right. */
hidden u64 fentry_slow_exit(u64 slot, u32 id, struct image *m)
{
	u64 ret = *shadow_ret(slot);
	struct sigset old = block();
	u64 t = counter();
	struct control *c = traced_thread();
	if (c) {
		close_call(c, slot, (struct function){ m, id & ~FT_ID_EXIT }, t);
		left_call(c);
	}
	unblock(old);
	return ret;
}

/* fentry_slow_record makes room for events, or tells of a new high half of the
   counter. It returns the thread's block, 0 when its events cannot be recorded. On arm64 it is told which event
   that is, an image's function id, with FT_ID_EXIT at the end of a call, and the program's frame pointer. */
hidden struct control *fentry_slow_record(u32 id, struct image *m, u64 fp)
{
	struct control *ahead = AHEAD ? quick_block() : 0;
	if (ahead && go_ahead(ahead))
		return ahead;
	struct sigset old = block();
	struct control *c = traced_thread();
	if (WALKS && !CALLBACKS && c && c->pace)
		take_sample(c, program_fp(__builtin_frame_address(0), fp), id, m);
	if (c)
		room(c, 2);
	unblock(old);
	return c;
}
