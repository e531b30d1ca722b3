/* What is done at calls of some functions beside recording them: actions.

   Which functions have some is known when an image is patched. Their thunks call a routine that
   comes straight here (act.S), so no other call pays for asking, and one that has actions is as slow
   as any slow path, unless it only captures something (quick.c). The image has a table of them,
   sorted by function (struct action), and an index of it. An action that is limited has a word of
   zeroed memory where it is counted, by compare and exchange: of threads that come at once as many
   do it as are to.

   What is written behind a call's entry has the entry's counter, and lies in the same chunk, since
   there is room for all of it before the entry is written.

   Some are done where a call ends that took long, in front of its exit: the call is still open there. A call that ends
   by a jump, to another function or out of it, does not come by.

   While tracing pauses, functions with actions are still on. They come here, are not recorded, and
   may make tracing go on. What is recorded between traceon and traceoff includes the first of
   the two calls and not the second. Calls that were open when it paused end as ever, so they
   have a duration; those that began meanwhile end without one. */
#include "act.h"
#include "backtrace.h"
#include "capture.h"
#include "chunk.h"
#include "condition.h"
#include "configuration.h"
#include "frame.h"
#include "quick.h"
#include "request.h"
#include "slow.h"
#include "source.h"
#include "stack.h"
#include "start.h"
#include "sys.h"
#include "thread.h"

/* What is done at calls of a function: a whole table's, as a recorder that is killed while it makes another one leaves
   threads in both. */
struct doing {
	const struct action *first;
	u32 n;
	u32 *counts; /* of these */
};

static struct doing doing_of(struct function f)
{
	const struct acting *all = load(&f.image->acting);
	if (!all) /* a recorder has changed that, or the image was loaded again since */
		return (struct doing){ 0, 0, 0 };
	const u32 *index = acting_index(all) + f.id - 1;
	u32 from = index[0] & ACTIONS_FIRST;
	return (struct doing){ acting_table(all) + from, (index[1] & ACTIONS_FIRST) - from, (u32 *)all->counts + from };
}

/* due says whether an action is to be done once more, and counts it. */
static int due(const struct doing *d, const struct action *a)
{
	u32 *n = d->counts + (a - d->first), was;
	do {
		was = load(n);
		if (a->limit && was >= a->limit)
			return 0;
	} while (a->limit && !cas(n, was, was + 1));
	return 1;
}

/* is_late says whether an action is done at the ends of long calls. */
static int is_late(const struct action *a)
{
	enum { KINDS = 1 << ACT_TRACEON | 1 << ACT_TRACEOFF | 1 << ACT_FINISH | 1 << ACT_STACKTRACE | 1 << ACT_SNAPSHOT };
	return a->value && a->kind < 32 && KINDS >> a->kind & 1;
}

/* undue takes back that an action was counted, as nothing came of it. */
static void undue(const struct doing *d, const struct action *a)
{
	if (a->limit)
		add(d->counts + (a - d->first), (u32)-1);
}

/* trigger says in the trace that an action is done. */
static void trigger(struct control *c, u64 t, u64 what, struct function f, const struct action *a)
{
	u64 payload[2] = { what | (u64)is_late(a) << 32, trace_id(f) };
	record(c, t, FT_REC_TRIGGER, payload, lengthof(payload));
}

/* finish ends the recording: here now, in other processes of the recorder when they look. */
static void finish(struct control *c, u64 t, struct function f, const struct action *a)
{
	trigger(c, t, FT_TRIGGER_FINISH, f, a);
	if (source.kind == POOL)
		store(HEADER(u32, FT_H_CLOSED), 1);
	images_arm(0);
}

/* pause has tracing pause, or go on. Only what changes something counts. */
static void pause(struct control *c, u64 t, struct function f, const struct doing *d, const struct action *a)
{
	int off = a->kind == ACT_TRACEOFF;
	if (images_paused() == off || !due(d, a))
		return;
	if (!images_pause(off)) {
		undue(d, a);
		return;
	}
	trigger(c, t, off ? FT_TRIGGER_OFF : FT_TRIGGER_ON, f, a);
}

/* ask_dump asks for a dump, and says whether it will be made. A recorder makes one a second at most: a count is one of
   dumps, not of calls that have asked for one. */
static int ask_dump(struct function f) { return request(FT_ASK_DUMP, trace_id(f)) != FT_ANSWER_LATER; }

/* before does what comes before a call is recorded, and says whether it is to be. */
static int before(struct control *c, struct function f, const struct doing *d)
{
	const struct action *a = d->first;
	int quiet = 0;
	for (u32 i = 0; i < d->n; i++) {
		if (is_late(a + i))
			continue;
		switch (a[i].kind) {
		case ACT_QUIET:
			quiet = 1;
			break;
		case ACT_TRACEON:
		case ACT_TRACEOFF:
			pause(c, counter(), f, d, a + i);
			break;
		case ACT_FINISH:
			if (due(d, a + i))
				finish(c, counter(), f, a + i);
		}
	}
	return images_armed() && !quiet;
}

/* limit_depth has so many levels of calls be recorded from the call at slot on, itself included, or fewer where there
   is a limit already: it makes the call as deep as if there were only so many levels below the limit. */
static void limit_depth(u64 slot, u64 levels)
{
	u64 most = fentry_words.depth, depth = *shadow_aux(slot) >> 32;
	if (levels < most && depth < most - levels + 1)
		*shadow_aux(slot) = (u32)*shadow_aux(slot) | (most - levels + 1) << 32;
}

/* captures captures what an action says of one end of a call. */
static void captures(struct control *c, u64 slot, u64 t, struct function f, const struct callregs *r, const struct doing *d,
		     const struct action *a)
{
	if (due(d, a))
		capture_call(c, t, f, a->kind == ACT_RESULT, slot, r, (const struct capture *)(f.image->at + a->value));
}

/* behind does what comes behind a call's entry, which was recorded at t. */
static void behind(struct control *c, u64 slot, u64 t, struct function f, const struct callregs *r, const struct doing *d)
{
	const struct action *a = d->first;
	for (u32 i = 0; i < d->n; i++) {
		if (is_late(a + i))
			continue;
		switch (a[i].kind) {
		case ACT_ARGS:
			captures(c, slot, t, f, r, d, a + i);
			break;
		case ACT_DEPTH:
			if (fentry_config.mode == MODE_GRAPH && due(d, a + i))
				limit_depth(slot, a[i].value);
			break;
		case ACT_STACKTRACE:
			if (due(d, a + i))
				trigger(c, t, FT_TRIGGER_STACKTRACE, f, a + i);
			break;
		case ACT_SNAPSHOT:
			if (due(d, a + i)) {
				trigger(c, t, FT_TRIGGER_SNAPSHOT, f, a + i);
				if (!ask_dump(f))
					undue(d, a + i);
			}
			break;
		}
	}
}

static int act(struct control *c, u64 slot, struct function f, struct callregs *r)
{
	const struct doing doing = doing_of(f), *d = &doing;
	const struct action *a = d->first;
	u32 n = d->n, words = 1, stack = 0;
	u64 t;
	if (!before(c, f, d) || !conditions_hold(c, f, slot, r, a, n))
		return ENTER_SKIP;
	for (u32 i = 0; i < n; i++) {
		words += a[i].words;
		if (WALKS && a[i].kind == ACT_STACK && due(d, a + i))
			stack = slot ? take_backtrace(c, slot, call_return(r, slot), call_frame(r)) : take_site_backtrace(c, at_site(r));
	}
	room(c, words + stack);
	if (fentry_config.mode == MODE_FUNCTION)
		put(c, t = counter(), trace_id(f));
	else if (enter_call(c, slot, f, call_return(r, slot), call_frame(r), &t) != ENTER_DONE)
		return ENTER_SKIP;
	behind(c, slot, t, f, r, d);
	if (WALKS && stack) /* last: what is captured directly follows the entry */
		write_backtrace(c, t, trace_id(f));
	return ENTER_DONE;
}

/* all_late says whether nothing is done at calls of a function but at the ends of long ones. */
static int all_late(const struct doing *d)
{
	u32 i = 0;
	while (i < d->n && is_late(d->first + i))
		i++;
	return i == d->n;
}

/* enter_at_once records a call of such a function as quick.c does others; leave_at_once its end, if it was a short one. */
static int enter_at_once(u64 slot, struct function f, const struct callregs *r)
{
	struct function old;
	struct doing d = doing_of(f);
	if (fentry_config.mode != MODE_GRAPH || !all_late(&d) || !images_armed())
		return 0;
	u64 ret = call_return(r, slot);
	struct control *c = quick_block();
	return image_returns_to(ret, &old) ? replace_frame_at_once(c, slot, old, f) : open_frame_at_once(c, slot, ret, f);
}

static int leave_at_once(u64 slot, struct function f)
{
	struct doing d = doing_of(f);
	u64 now = counter();
	if (fentry_config.mode != MODE_GRAPH || !all_late(&d))
		return 0;
	for (u32 i = 0; i < d.n; i++)
		if (call_lasted(slot, now, d.first[i].value))
			return 0;
	return close_frame_at_once(quick_block(), slot, f);
}

/* fentry_slow_act deals with a call of an image's function id, whose return address has its shadow at slot's. r is the
   caller's registers. It returns what the thunk is to do. */
hidden int fentry_slow_act(u64 slot, u32 id, struct image *m, struct callregs *r)
{
	struct function f = { m, id };
	int result = quick_enter(slot, f, r);
	if (result)
		return result;
	if (enter_at_once(slot, f, r))
		return ENTER_DONE;
	struct sigset old = block();
	struct control *c = traced_thread();
	result = c ? act(c, slot, f, r) : ENTER_SKIP;
	unblock(old);
	return result;
}

/* late does what is done at the end of a call that took long, at counter t. It returns whether a dump is to be asked for
   when the end is recorded. */
static int late(struct control *c, u64 slot, u64 t, struct function f, const struct doing *d, const struct action *a)
{
	if (!is_late(a) || !call_lasted(slot, t, a->value))
		return 0;
	go_to_stack(c, slot);
	pop_skipped(c, slot, t);
	int pauses = a->kind == ACT_TRACEON || a->kind == ACT_TRACEOFF;
	if (pauses)
		pause(c, t, f, d, a);
	if (pauses || !due(d, a))
		return 0;
	keep_call(c, slot);
	if (a->kind == ACT_FINISH)
		finish(c, t, f, a);
	else
		trigger(c, t, a->kind == ACT_SNAPSHOT ? FT_TRIGGER_SNAPSHOT : FT_TRIGGER_STACKTRACE, f, a);
	return a->kind == ACT_SNAPSHOT;
}

/* leave records that the call of f at slot ends, and does what comes behind that. */
static void leave(struct control *c, u64 slot, struct function f, const struct callregs *r)
{
	const struct doing doing = doing_of(f), *d = &doing;
	const struct action *a = d->first;
	u32 n = d->n, words = 1;
	u64 t = counter(), dumps = 0; /* the actions that ask for one, as bits, of the first 64 */
	int dump = 0;
	for (u32 i = 0; i < n; i++)
		if (late(c, slot, t, f, d, a + i)) {
			dump = 1;
			dumps |= i < 64 ? 1UL << i : 0;
		}
	for (u32 i = 0; i < n; i++)
		words += a[i].words;
	room(c, words);
	close_call(c, slot, f, t);
	for (u32 i = 0; i < n; i++)
		if (a[i].kind == ACT_RESULT)
			captures(c, slot, t, f, r, d, a + i);
	left_call(c);
	if (!dump || ask_dump(f))
		return;
	for (; dumps; dumps &= dumps - 1)
		undue(d, a + __builtin_ctzl(dumps));
}

/* fentry_slow_act_exit is fentry_slow_exit for functions at whose returns something is done. */
hidden u64 fentry_slow_act_exit(u64 slot, u32 id, struct image *m, struct callregs *r)
{
	struct function f = { m, id & ~FT_ID_EXIT };
	u64 ret = *shadow_ret(slot);
	if (quick_leave(slot, f, r) || leave_at_once(slot, f))
		return ret;
	struct sigset old = block();
	struct control *c = traced_thread();
	if (c)
		leave(c, slot, f, r);
	unblock(old);
	return ret;
}
