/* Frames as slow paths open and close them, in every mode.

   The shadow of a frame's slot has its return address and the slot before it in the
   chain. In the profile tracer it has besides the time of the entry and the time
   spent so far in the callees of the frame it was called from; with a depth limit,
   a threshold, graph roots or functions that are left out the time of the entry, and a
   word depth << 32 | FT_ID_EXIT if the entry is in the trace | id.

   A function that is left out with all inside it has a frame, so that its return is
   noticed, but leaves no event. Its depth is DEPTH_HIDDEN, so that the fast paths skip
   what it calls as they skip what is too deep: nobody else has to look whether a call is
   inside one. What it ends by jumping to takes its frame and stays hidden. */
#include "chunk.h"
#include "configuration.h"
#include "frame.h"
#include "profile.h"
#include "stack.h"
#include "source.h"
#include "sys.h"

/* previous returns the chain behind the frame at slot, in the form of struct
   control's top. What stands there is checked: it may never have been written. */
static u64 previous_below(const struct control *c, u64 slot, u64 hi)
{
	u64 prev = *shadow_prev(slot);
	return top_slot(prev) > slot && top_slot(prev) < hi ? prev : empty_top(c, hi);
}

hidden u64 previous_frame(struct control *c, u64 slot) { return previous_below(c, slot, c->stacks[c->cur].hi); }

/* options says whether frames have an id and a depth in their shadow. */
static int options(void) { return fentry_config.mode == MODE_GRAPH && extra_shadow(); }

/* ticks_of is how often the counter ticks in a time, hz times a second. hz is below 2^40; times up to years do not
   overflow. */
static u64 ticks_of(u64 ns, u64 hz) { return ns / 1000000000UL * hz + ns % 1000000000UL * hz / 1000000000UL; }

/* frames_limit sets which calls are recorded: those of a depth and of a time in ns; 0: all. */
hidden void frames_limit(u32 depth, u64 threshold, u64 hz)
{
	u64 ticks = threshold ? ticks_of(threshold, hz) : 0;
	fentry_words.depth = depth && depth < DEPTH_HIDDEN ? depth : DEPTH_HIDDEN - 1;
	fentry_words.threshold = threshold && !ticks ? 1 : ticks;
}

hidden void frames_init(u64 hz) { frames_limit(fentry_config.depth, fentry_config.threshold, hz); }

/* top_of returns where the top of a thread's stack i is, which is s; 0: there is no such stack. */
static u64 *top_of(struct control *c, struct stack *s, u32 i)
{
	if (!c->begun || !s->hi || !s->top)
		return 0;
	return i == c->cur ? &c->top : &s->top;
}

/* frames_adopt gives the open frames of a thread the depth that they have, now that there is room for it in their
   shadow. Their entries are in the trace. The thread stands still, unless the recorder has been killed just now: then it can
   open and close frames and see other stacks meanwhile. */
hidden void frames_adopt(struct control *c)
{
	u64 now = counter();
	u32 n = load(&c->nstacks); /* first: the table is as long as that, or longer */
	struct stack *s = load(&c->stacks);
	for (u32 i = 0; s && i < n; i++) {
		u64 *at = top_of(c, s + i, i), top = at ? load(at) : TOP_EMPTY, hi = s[i].hi;
		u32 depth = 0;
		for (u64 t = top; !top_empty(t); t = previous_below(c, top_slot(t), hi))
			depth++;
		for (u64 t = top; !top_empty(t); t = previous_below(c, top_slot(t), hi)) {
			*shadow_aux(top_slot(t)) = (u64)depth-- << 32 | FT_ID_EXIT;
			*shadow_time(top_slot(t)) = now;
		}
	}
}

/* frames_forget makes all stacks of a thread look as if nothing was open there: what is ends as ever. */
hidden void frames_forget(struct control *c)
{
	c->chained = 0;
	u32 n = load(&c->nstacks);
	struct stack *s = load(&c->stacks);
	for (u32 i = 0; s && i < n; i++) {
		u64 *top = top_of(c, s + i, i);
		if (top)
			*top = empty_top(c, s[i].hi);
	}
}

/* The id in a frame's shadow is the trace's, as the frame may be any image's. */
static u32 id_in_shadow(u64 slot) { return (u32)*shadow_aux(slot) & ~FT_ID_EXIT; }

static int is_in(const u8 *bitmap, struct function f) { return bitmap[f.id / 8] >> f.id % 8 & 1; }
static int is_root(struct function f) { return !f.image->roots || is_in(f.image->roots, f); }
static int is_left_out(struct function f) { return f.image->without && is_in(f.image->without, f); }

/* In graph mode with options, is_hidden says whether the frame at slot leaves no events, and is_held whether its entry is not in the
   trace. */
static int is_hidden(u64 slot) { return *shadow_aux(slot) >> 32 == DEPTH_HIDDEN; }
static int is_held(u64 slot) { return !(*shadow_aux(slot) & FT_ID_EXIT); }

/* note_call has the shadow at slot say what options ask of a call that begins at counter t. told: its entry is in the trace. */
static void note_call(u64 slot, struct function f, u64 depth, u64 t, int told)
{
	*shadow_time(slot) = t;
	*shadow_aux(slot) = depth << 32 | trace_id(f) | (told ? FT_ID_EXIT : 0);
}

/* write_held writes the entries of the frame at slot and those it was called from
   that the threshold held back. The outermost comes first, so the chain is turned
   round on the way out and back again on the way in. */
static void write_held(struct control *c, u64 slot)
{
	u64 outer = slot, inner = 0;
	while (!top_empty(outer) && is_held(top_slot(outer))) {
		u64 *prev = shadow_prev(top_slot(outer)), next = *prev;
		*prev = inner;
		inner = outer;
		outer = next;
	}
	while (inner) {
		u64 s = top_slot(inner), next = *shadow_prev(s);
		*shadow_prev(s) = outer;
		put(c, *shadow_time(s), id_in_shadow(s));
		*shadow_aux(s) |= FT_ID_EXIT;
		outer = inner;
		inner = next;
	}
}

static void profile_begin(struct control *c, u64 slot, struct function f, u64 t)
{
	struct table *e = image_table(c, f.image);
	*shadow_time(slot) = t;
	c->child = 0;
	if (!e)
		return;
	if (!e->active[f.id])
		e->active[f.id] = slot;
	own_add(&e->entries[f.id * (FT_PROFILE_ENTRY / 8) + FT_P_CALLS / 8], 1);
}

/* profile_end counts the end of a call at counter t, before which its callees took child. It returns how long the call took. */
static u64 profile_end(struct control *c, u64 slot, struct function f, u64 t, u64 child)
{
	u64 d = t - *shadow_time(slot);
	if (*shadow_time(slot) < c->key)
		return 0; /* begun before the fork, and counted by the parent */
	struct table *of = image_table(c, f.image);
	if (!of)
		return d;
	u64 *e = of->entries + f.id * (FT_PROFILE_ENTRY / 8);
	if (of->active[f.id] == slot) {
		of->active[f.id] = 0;
		own_add(&e[FT_P_TOTAL / 8], d);
	}
	own_add(&e[FT_P_SELF / 8], d - child);
	for (u64 most = load(&e[FT_P_MAX / 8]); d > most && !own_cas(&e[FT_P_MAX / 8], most, d);)
		most = load(&e[FT_P_MAX / 8]);
	return d;
}

/* begin_call records that the call with its return address at slot begins. */
static void begin_call(struct control *c, u64 slot, struct function f, u32 depth, u64 t)
{
	if (fentry_config.mode == MODE_PROFILE) {
		profile_begin(c, slot, f, t);
		return;
	}
	if (options()) {
		if (is_left_out(f))
			depth = DEPTH_HIDDEN;
		int told = !fentry_words.threshold && depth != DEPTH_HIDDEN;
		note_call(slot, f, depth, t, told);
		if (!told)
			return;
	}
	put(c, t, trace_id(f));
}

/* open_frame opens a frame on the current stack at counter t. It returns 0 when the call is
   not to be recorded. */
hidden int open_frame(struct control *c, u64 slot, u64 ret, struct function f, u64 t)
{
	u32 depth = 1;
	if (options()) {
		if (!top_empty(c->top))
			depth += (u32)(*shadow_aux(top_slot(c->top)) >> 32);
		else if (!is_root(f) && !is_left_out(f))
			return 0;
		if (depth > fentry_words.depth)
			return 0;
	}
	*shadow_ret(slot) = ret;
	*shadow_prev(slot) = c->top;
	if (fentry_config.mode == MODE_PROFILE)
		*shadow_aux(slot) = c->child;
	/* On a signal's stack, the first frame is to be left on the slow path. */
	c->top = c->stacks[c->cur].back && top_empty(c->top) ? slot - 8 + TOP_FORCED : slot;
	begin_call(c, slot, f, depth, t);
	return 1;
}

/* call_lasted says whether the call at slot has taken more than so many ns by counter t, unless it is left out. */
hidden int call_lasted(u64 slot, u64 t, u64 ns)
{
	static u64 hz;
	if (!load(&hz))
		store(&hz, counter_hz());
	return options() && !is_hidden(slot) && t - *shadow_time(slot) > ticks_of(ns, hz);
}

/* keep_call writes the entry of the call at slot, and those around it, if the threshold holds them back. */
hidden void keep_call(struct control *c, u64 slot)
{
	if (options() && is_held(slot))
		write_held(c, slot);
}

/* end_call records that the call with its return address at slot ends. It returns
   the time it took, in the profile tracer only. */
static u64 end_call(struct control *c, u64 slot, struct function f, u64 t)
{
	if (fentry_config.mode == MODE_PROFILE)
		return profile_end(c, slot, f, t, c->child);
	if (options() && is_held(slot)) {
		if (!fentry_words.threshold || is_hidden(slot) || t - *shadow_time(slot) < fentry_words.threshold)
			return 0;
		write_held(c, slot);
	}
	put(c, t, trace_id(f) | FT_ID_EXIT);
	return 0;
}

/* close_frame closes the frame at slot. A frame that is not the innermost of the
   chain any more was taken for skipped (a coroutine was left, and is back), or is
   older than a fork: the chain is not about it, as the trace's readers do not have
   it among the open calls of this stack either. */
hidden void close_frame(struct control *c, u64 slot, struct function f, u64 t)
{
	u64 d = end_call(c, slot, f, t);
	if (fentry_config.mode == MODE_PROFILE)
		c->child = *shadow_aux(slot) + d;
	if (top_slot(c->top) == slot && !top_empty(c->top))
		c->top = previous_frame(c, slot);
}

/* replace_frame records a tail call at counter t: the call of old at slot ends, and one of f begins
   there. */
hidden void replace_frame(struct control *c, u64 slot, struct function old, struct function f, u64 t)
{
	u64 d = end_call(c, slot, old, t);
	if (fentry_config.mode == MODE_PROFILE)
		*shadow_aux(slot) += d;
	/* That shadow exists only where something is kept in it. */
	begin_call(c, slot, f, extra_shadow() ? (u32)(*shadow_aux(slot) >> 32) : 0, t);
	if (top_slot(c->top) != slot) {
		*shadow_prev(slot) = c->top;
		c->top = slot;
	}
}

/* What follows does as fast paths do, with signals, and without system calls. It returns 0 where it cannot, and then has changed
   nothing. c is 0 where no fast path would find it. */

/* put_at_once writes two events of now, by their ids; 0 is none. */
hidden int put_at_once(struct control *c, u32 first, u32 second)
{
	u32 t, n = (first != 0) + (second != 0);
	u64 *w = n ? reserve(c, n, &t) : 0;
	if (n && !w)
		return 0;
	if (first)
		store(w++, (u64)first << 32 | t);
	if (second)
		store(w, (u64)second << 32 | t);
	return 1;
}

/* open_frame_at_once is open_frame now, in graph mode with options. */
hidden int open_frame_at_once(struct control *c, u64 slot, u64 ret, struct function f)
{
	u64 now = counter(), depth = 1, top;
	int told = !fentry_words.threshold;
	if (!c || !options() || slot >= (top = c->top) || slot < c->lo)
		return 0;
	if (!top_empty(top))
		depth += *shadow_aux(top_slot(top)) >> 32;
	else if (anothers(c) || !is_root(f)) /* then blocks are left on the slow path: slow.c */
		return 0;
	if (depth > fentry_words.depth || is_left_out(f) || !put_at_once(c, told ? trace_id(f) : 0, 0))
		return 0;
	*shadow_ret(slot) = ret;
	*shadow_prev(slot) = top;
	note_call(slot, f, depth, now, told);
	store(&c->top, slot);
	return 1;
}

/* skips_at_once says whether a call begins at slot that leaves nothing in the trace for its depth, or as no root is around it, in
   graph mode with options. */
hidden int skips_at_once(struct control *c, u64 slot, struct function f)
{
	u64 top = c->top;
	if (!options() || slot >= top || slot < c->lo || anothers(c))
		return 0;
	if (top_empty(top))
		return !is_root(f) && !is_left_out(f);
	return 1 + (*shadow_aux(top_slot(top)) >> 32) > fentry_words.depth;
}

/* lasts says whether an entry that was held back must not be dropped where its call ends now. */
static int lasts(u64 slot, u64 now) { return !fentry_words.threshold || now - *shadow_time(slot) >= fentry_words.threshold; }

/* close_frame_at_once is close_frame now, of the innermost frame, in graph mode with options. */
hidden int close_frame_at_once(struct control *c, u64 slot, struct function f)
{
	if (!c || c->top != slot || !options() || is_hidden(slot))
		return 0;
	int held = is_held(slot);
	if ((held && lasts(slot, counter())) || !put_at_once(c, held ? 0 : trace_id(f) | FT_ID_EXIT, 0))
		return 0;
	store(&c->top, *shadow_prev(slot));
	return 1;
}

/* profile_replaced is replace_frame of the profile tracer. */
static int profile_replaced(struct control *c, u64 slot, struct function old, struct function f)
{
	if (!has_table(c, old.image) || !has_table(c, f.image))
		return 0;
	u64 child = c->child; /* before the clock: what a handler takes in between must not make the difference negative */
	*shadow_aux(slot) += profile_end(c, slot, old, counter(), child);
	profile_begin(c, slot, f, counter());
	return 1;
}

/* profile_open_at_once and profile_close_at_once are open_frame and close_frame now, of the profile tracer. */
hidden int profile_open_at_once(struct control *c, u64 slot, u64 ret, struct function f)
{
	u64 top = c->top;
	if (slot >= top || slot < c->lo || !has_table(c, f.image))
		return 0;
	*shadow_ret(slot) = ret;
	*shadow_prev(slot) = top;
	*shadow_aux(slot) = c->child;
	profile_begin(c, slot, f, counter());
	store(&c->top, slot);
	return 1;
}

hidden int profile_close_at_once(struct control *c, u64 slot, struct function f)
{
	if (c->top != slot || !has_table(c, f.image))
		return 0;
	u64 child = c->child; /* before the clock, as in profile_replaced */
	u64 d = profile_end(c, slot, f, counter(), child);
	store(&c->top, *shadow_prev(slot));
	c->child = *shadow_aux(slot) + d;
	return 1;
}

/* replace_frame_at_once is replace_frame now, of the innermost frame. */
hidden int replace_frame_at_once(struct control *c, u64 slot, struct function old, struct function f)
{
	int held = 0, told = 1;
	u64 now = counter(), depth = 0;
	if (!c || c->top != slot)
		return 0;
	if (fentry_config.mode == MODE_PROFILE)
		return profile_replaced(c, slot, old, f);
	if (fentry_config.mode != MODE_GRAPH)
		return 0;
	if (options()) {
		depth = *shadow_aux(slot) >> 32;
		held = is_held(slot);
		told = !fentry_words.threshold;
		if (depth == DEPTH_HIDDEN || is_left_out(f) || (held && lasts(slot, now)))
			return 0;
	}
	if (!put_at_once(c, held ? 0 : trace_id(old) | FT_ID_EXIT, told ? trace_id(f) : 0))
		return 0;
	if (options())
		note_call(slot, f, depth, now, told);
	return 1;
}

/* pop_skipped closes the frames of the current stack whose slots are below slot:
   they ended without an exit, by the time t. At an exit that is the exit's time: no
   call ends later than the one it was called from. */
hidden void pop_skipped(struct control *c, u64 slot, u64 t)
{
	u64 top = c->top, hi = c->stacks[c->cur].hi, n = 0;
	u64 from = top_slot(top), last = from;
	int opt = options(), looked = !fentry_words.threshold;
	while (!top_empty(top) && top_slot(top) < slot) {
		u64 s = top_slot(top);
		/* The innermost call that lasted long enough: all around it did, too. */
		if (!looked && !is_hidden(s) && t - *shadow_time(s) >= fentry_words.threshold) {
			write_held(c, top);
			looked = 1;
		}
		n += !opt || *shadow_aux(s) & FT_ID_EXIT;
		last = s;
		top = previous_frame(c, s);
	}
	if (top_empty(top))
		top = empty_top(c, hi); /* the stack may have grown upwards since */
	if (top != c->top && fentry_config.mode == MODE_PROFILE) {
		profile_skipped(c, from, slot);
		c->child = *shadow_aux(last) + t - *shadow_time(last); /* of whoever has called the outermost */
	}
	c->top = top;
	if (n)
		record1(c, t, FT_REC_RESYNC, n);
}

/* go_to_stack makes the stack that slot is on the current one, as enter_stack does. When
   the thread goes on elsewhere while calls are open on a signal's stack, and that is no
   other handler's, a jump has left the handler: its calls end, and so do those of the
   handlers that it interrupted. A coroutine that a handler resumes looks the same. Then
   the handler's calls are taken for skipped until they return, as are those of coroutines
   whose stacks lie close together. */
hidden int go_to_stack(struct control *c, u64 slot)
{
	struct sigaltstack ss;
	/* The limit is for handlers that interrupted each other on two stacks in turn. */
	for (u32 n = 0; n < c->nstacks; n++) {
		struct stack *s = &c->stacks[c->cur];
		if (!s->back || slot - s->lo < s->hi - s->lo || (!n && on_signal_stack(c, slot, &ss)))
			break;
		pop_skipped(c, s->hi, counter());
		leave_stack(c);
	}
	return enter_stack(c, slot);
}

/* slot_taken says whether a call would take the slot of one that is open and goes on. A
   slot is a frame's own where a call writes its return address there. Where it does not,
   the slot is known by the stack pointer alone, and a coroutine whose stack is an array at
   the upper end of a function's frame begins with that function's. Its first call cannot
   be recorded then. As a rule, a slot that is met again is that of a call which a jump has
   left; but that call and this one come from a frame above them, and fp, the caller's frame
   pointer, says where. It is 0 at the bottom of a stack, or left over from whoever has
   switched stacks, below. */
hidden int slot_taken(struct control *c, u64 slot, u64 fp)
{
	if (!SHARED_SLOTS || fp > slot || (fp && fp < c->lo))
		return 0;
	u64 top = c->top;
	while (!top_empty(top) && top_slot(top) < slot)
		top = previous_frame(c, top_slot(top));
	return !top_empty(top) && top_slot(top) == slot;
}

/* new_signal forgets what was open on a signal stack when a handler starts there
   anew: the handler before it was left by a jump. */
hidden void new_signal(struct control *c, u64 slot)
{
	struct sigaltstack ss;
	if (c->stacks[c->cur].back && on_signal_stack(c, slot, &ss))
		pop_skipped(c, c->stacks[c->cur].hi, counter());
}
