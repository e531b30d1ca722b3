/* Calls of which only arguments and results are captured, without system calls.

   The slow path of actions keeps signals away, which takes two system calls, several times as long as all the
   rest. What is captured most needs none of it: where everything is in place, as a fast path would find it, the event
   and the records behind it are reserved at once, by the fast paths' own rule (macros.h). A signal that comes in between
   finds slots that are taken, and its events lie behind. Where anything is not in place, nothing is changed, and the
   slow path does all there is to do. So this is the fast path of functions with captures, but for those of registers alone where
   act.S knows them. It is in C because that is the same on all machines, and because registers have been saved for it anyway.

   How much memory will be read is not known when slots are reserved, so as many are as it can be. What is left
   is given back, unless the thread has reserved something behind since: then it becomes records DATA of no word, for
   readers to skip. A single instruction decides that, as for reserving.

   A capture can leave slots or open records for a while that a handler finds in a chunk which it has to leave: chunk.c
   and pool.c look for both. A handler that runs for long, or in a forked child, can have the chunk be another's in the
   end, so that is asked behind each system call (holds). */
#include "block.h"
#include "blocks.h"
#include "capture.h"
#include "chunk.h"
#include "condition.h"
#include "configuration.h"
#include "frame.h"
#include "quick.h"
#include "stack.h"
#include "thread.h"

/* LEAST is the words of a record DATA without bytes: what is left of a reservation is made of such records, so at least
   that much is to be left. */
enum { LEAST = 3 };

/* quick_actions returns what is done at calls of a function, if that is nothing but capturing, always. */
static const struct action *quick_actions(struct function f, u32 *n)
{
	const struct acting *all = load(&f.image->acting);
	if (!all)
		return 0;
	const u32 *index = acting_index(all) + f.id - 1;
	u32 from = index[0] & ACTIONS_FIRST;
	*n = (index[1] & ACTIONS_FIRST) - from;
	return index[0] & ACTIONS_QUICK ? acting_table(all) + from : 0;
}

/* give_back gives back the words from from to to, with which a reservation ends. */
static void give_back(struct control *c, u64 *from, u64 *to, u32 t)
{
	if (own_cas(&c->next, (u64)to, (u64)from))
		return;
	while (from < to) {
		u64 n = (u64)(to - from);
		if (n > FT_RECORD_WORDS + 1UL)
			n = n - (FT_RECORD_WORDS + 1) < LEAST ? FT_RECORD_WORDS + 1 - LEAST : FT_RECORD_WORDS + 1;
		u64 *w = open_record(from, t, FT_REC_DATA, (u32)n - 1);
		w[0] = FT_NO_WORD;
		end_record(w);
		from += n;
	}
}

/* What is to be captured at one end of a call: how many words that takes with the event, and of what it is. */
struct wanted {
	const struct capture *only; /* 0: there are several, or memory is part of it */
	u32 words;
	int memory, conditions;
};

static inline struct wanted wanted_of(const struct image *m, const struct action *a, u32 n, u32 kind)
{
	struct wanted w = { 0, 1, 0, 0 };
	u32 found = 0;
	for (u32 i = 0; i < n; i++) {
		w.conditions |= a[i].kind == ACT_IF;
		if (a[i].kind != kind)
			continue;
		w.only = (const struct capture *)(m->at + a[i].value);
		w.words += a[i].words;
		w.memory |= a[i].words > w.only->words + 1U;
		found++;
	}
	if (w.memory)
		w.words += LEAST;
	if (w.memory || found != 1)
		w.only = 0;
	return w;
}

/* capture_registers captures what is in general registers, as most arguments and results are. It returns 0 if not all of it
   is: then the record is to be written again. */
static inline int capture_registers(u64 *to, u32 t, int exit, const struct callregs *r, const struct capture *p)
{
	const struct capture_op *op = (const struct capture_op *)(p + 1), *end = op + p->ops;
	u64 *w = open_record(to, t, FT_REC_ARGS, p->words);
	if (exit)
		w[-1] |= (u64)FT_ID_EXIT << 32;
	for (u64 *next = w; op < end; op++) {
		if (op->code != OP_GENERAL)
			return 0;
		*next++ = general(op, exit, r);
	}
	end_record(w);
	return 1;
}

/* capture_all captures one end of a call to the words from w to end. */
static __attribute__((noinline)) void capture_all(struct control *c, u64 *w, u64 *end, u32 t, u64 slot, struct function f,
						  const struct callregs *r, const struct action *a, u32 actions, u32 kind,
						  int memory)
{
	for (u32 i = 0; i < actions && w; i++)
		if (a[i].kind == kind)
			w = capture_at(c, w, t, f.image, kind == ACT_RESULT, slot, r,
				       (const struct capture *)(f.image->at + a[i].value));
	if (memory && w)
		give_back(c, w, end, t);
}

/* quick_enter records a call of f, whose return address has its shadow at slot's, and captures its arguments. It returns
   what the thunk is to do, or 0 (ENTER_RETRY) if that is for the slow path to say. */
hidden int quick_enter(u64 slot, struct function f, const struct callregs *r)
{
	int graph = fentry_config.mode == MODE_GRAPH;
	u32 actions, t;
	const struct action *a = quick_actions(f, &actions);
	struct control *c = a && images_armed() && !(graph && extra_shadow()) ? quick_block() : 0;
	if (!c)
		return 0;
	struct wanted n = wanted_of(f.image, a, actions, ACT_ARGS);
	if (n.conditions && !conditions_hold(c, f, slot, r, a, actions))
		return ENTER_SKIP;
	u64 top = c->top, ret = graph ? call_return(r, slot) : 0;
	struct function old;
	if (graph && (slot >= top || slot < c->lo || image_returns_to(ret, &old)))
		return 0;
	u64 *w = reserve(c, n.words, &t);
	if (!w)
		return 0;
	store(w, (u64)trace_id(f) << 32 | t);
	if (graph) {
		*shadow_ret(slot) = ret;
		*shadow_prev(slot) = top;
		store(&c->top, slot);
	}
	if (!n.only || !capture_registers(w + 1, t, 0, r, n.only))
		capture_all(c, w + 1, w + n.words, t, slot, f, r, a, actions, ACT_ARGS, n.memory);
	return ENTER_DONE;
}

/* quick_leave records that the call of f at slot ends, and captures its result. It returns 0 if that is for the slow
   path. */
hidden int quick_leave(u64 slot, struct function f, const struct callregs *r)
{
	u32 actions, t;
	const struct action *a = quick_actions(f, &actions);
	struct control *c = a && !extra_shadow() ? quick_block() : 0;
	if (!c || c->top != slot)
		return 0;
	struct wanted n = wanted_of(f.image, a, actions, ACT_RESULT);
	u64 *w = reserve(c, n.words, &t);
	if (!w)
		return 0;
	store(w, (u64)(trace_id(f) | FT_ID_EXIT) << 32 | t);
	store(&c->top, *shadow_prev(slot)); /* a handler that leaves by a jump must not end the call again */
	if (!n.only || !capture_registers(w + 1, t, 1, r, n.only))
		capture_all(c, w + 1, w + n.words, t, slot, f, r, a, actions, ACT_RESULT, n.memory);
	return 1;
}
