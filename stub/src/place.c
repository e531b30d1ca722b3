/* Where events of functions without a thunk come to that their fast path does not record: in all modes but function_graph, at a
   thread's first event, and after an exception, which for OCaml is as usual as a return. So calls that one has ended are told
   without system calls, too, where everything is in place.

   An end is that of an open call, or of one whose function was off when it began: then nothing is told of it. */
#include "chunk.h"
#include "configuration.h"
#include "frame.h"
#include "place.h"
#include "profile.h"
#include "slow.h"
#include "stack.h"
#include "start.h"
#include "sys.h"
#include "thread.h"

/* have_room gives the thread what the next slow path goes on, and the handlers that may come meanwhile. */
static void have_room(struct control *c)
{
	u8 *a = c->room ? 0 : map_private(ROOM);
	if (a)
		store(&c->room, (u64)a + ROOM);
}

/* count_at_once counts a call. */
static int count_at_once(struct control *c, struct function f)
{
	if (!has_table(c, f.image))
		return 0;
	own_add(&image_table(c, f.image)->entries[f.id], 1);
	return 1;
}

/* skipped counts the frames of the current stack below slot, and sets top to what is open then. */
static u32 skipped(struct control *c, u64 slot, u64 *top)
{
	u32 n = 0;
	for (*top = load(&c->top); !top_empty(*top) && top_slot(*top) < slot; n++)
		*top = previous_frame(c, top_slot(*top));
	return n;
}

/* after_skipped records the event where frames were left below its slot, or none, in function_graph without options. */
static int after_skipped(struct control *c, u64 slot, struct function f, u64 ret, int end)
{
	u64 top;
	u32 t, n = skipped(c, end ? slot : slot + 1, &top), words = n ? 2 : 0;
	int open = !top_empty(top) && top_slot(top) == slot;
	if (end && !open)
		return !n;
	if (end && (top & 7) == TOP_FORCED)
		return 0;
	u64 *w = reserve(c, words + 1, &t);
	if (!w)
		return 0;
	u64 *r = n ? open_record(w, t, FT_REC_RESYNC, 1) : 0;
	if (end) {
		store(&c->top, previous_frame(c, slot));
	} else {
		*shadow_ret(slot) = ret;
		*shadow_prev(slot) = top_empty(top) ? empty_top(c, c->stacks[c->cur].hi) : top;
		store(&c->top, slot);
	}
	if (n) {
		r[0] = n;
		end_record(r);
	}
	store(w + words, (u64)(trace_id(f) | (end ? FT_ID_EXIT : 0)) << 32 | t);
	return 1;
}

/* is_current says whether slot is on the current stack, which is no signal's. */
static int is_current(struct control *c, u64 slot)
{
	struct stack *s = &c->stacks[c->cur];
	return c->begun && !s->back && !on_goroutine(c) && slot >= c->lo && slot < s->hi;
}

/* quick_place records the event at once, as a fast path would. It returns 0 where it cannot, and then has changed nothing. */
static int quick_place(u64 slot, struct function f, u64 ret, int end)
{
	struct control *c = images_armed() ? quick_block() : 0;
	if (!c || !c->room)
		return 0;
	if (fentry_config.mode == MODE_COUNT)
		return count_at_once(c, f);
	if (fentry_config.mode == MODE_FUNCTION)
		return put_at_once(c, trace_id(f), 0);
	if (!is_current(c, slot))
		return 0;
	if (end && c->top > slot)
		return 1; /* it is none that is open */
	if (fentry_config.mode == MODE_PROFILE)
		return end ? profile_close_at_once(c, slot, f) : profile_open_at_once(c, slot, ret, f);
	if (!extra_shadow())
		return after_skipped(c, slot, f, ret, end);
	if (end)
		return close_frame_at_once(c, slot, f);
	return skips_at_once(c, slot, f) || open_frame_at_once(c, slot, ret, f);
}

/* place_end records that the call at slot ends, if one is open there. */
static void place_end(struct control *c, u64 slot, struct function f)
{
	u64 t = counter();
	if (!go_to_stack(c, slot))
		return;
	pop_skipped(c, slot, t);
	if (top_empty(c->top) || top_slot(c->top) != slot)
		return;
	close_frame(c, slot, f, t);
	left_call(c);
}

/* fentry_slow_place deals with an event of an image's function id, with FT_ID_EXIT at its end, which returns to
   ret. */
hidden void fentry_slow_place(u64 slot, u32 id, struct image *m, u64 ret)
{
	struct function f = { m, id & ~FT_ID_EXIT };
	int end = (id & FT_ID_EXIT) != 0;
	if (quick_place(slot, f, ret, end))
		return;
	struct sigset old = block();
	struct control *c = traced_thread();
	u64 t;
	if (c)
		have_room(c);
	if (fentry_config.mode == MODE_COUNT)
		count_call(c, f);
	else if (c && fentry_config.mode == MODE_FUNCTION)
		put(c, counter(), trace_id(f));
	else if (c && (fentry_config.mode != MODE_PROFILE || image_table(c, m))) {
		if (end)
			place_end(c, slot, f);
		else
			enter_call(c, slot, f, ret, ~0UL, &t); /* no coroutine has a slot of theirs */
	}
	unblock(old);
}
