/* Arguments and results of calls.

   What is captured of a function's calls was decided when the image was patched (package arguments): a list
   of operations for each end of a call, words first, from registers and the stack, and then memory to which words
   point. Behind the call's entry or exit, where there is room for all of it, go a record of the words and
   one for each piece of memory. So nothing here knows types, and a reader nothing of operations.

   A result is looked at as it is returned, and stays what it is: also on the x87's stack, which has no other
   copy. */
#include "chunk.h"
#include "capture.h"
#include "machine.h"
#include "memory.h"
#include "process.h"
#include "sys.h"

/* A capture that goes on: behind the newest event, or where next is in what was reserved for it. */
struct capturing {
	struct control *c;
	u64 t;
	u64 *next;
	int asks; /* the kernel is asked for memory, and may be */
};

/* stack_word reads a word of the stack at an address above slot. In the slot's page there is memory; what a user has
   asked for need not be. */
static u64 stack_word(struct control *c, u64 slot, u64 at)
{
	u64 w = 0;
	if (slot / 4096 == (at + 7) / 4096)
		return *(const u64 *)at;
	check_filter();
	return read_program(c->pid, &w, at, sizeof w) == sizeof w ? w : 0;
}

/* capture_word captures words, and returns how many. */
hidden u32 capture_word(struct control *c, const struct capture_op *op, int exit, u64 slot, const struct callregs *r, u64 *w)
{
	w[0] = 0;
	switch (op->code) {
	case OP_GENERAL:
		w[0] = general(op, exit, r);
		break;
	case OP_FLOAT:
		w[0] = r->vector[op->from % lengthof(r->vector)][0];
		break;
	case OP_VECTOR:
		w[0] = r->vector[op->from % lengthof(r->vector)][0];
		w[1] = r->vector[op->from % lengthof(r->vector)][1];
		return 2;
	case OP_STACK:
		w[0] = stack_word(c, slot, call_stack(slot) + 8UL * op->from);
		break;
	case OP_X87:
		call_x87(w);
		return 2;
	}
	return 1;
}

/* data captures n bytes at an address, of want that there are. It returns them, and how many in have. The kernel is asked
   for most memory, and signals come where it returns: slots that are not the thread's any more stay as they are, and 0 is
   returned. */
static const u8 *data(struct capturing *g, int text, const struct capture_op *op, u64 at, u64 n, u64 want, u64 *have)
{
	if (!g->asks && !literal(at, n)) {
		check_filter();
		g->asks = 1;
	}
	if (!g->next)
		return write_data(g->c, g->t, text, op->from, at, n, want, have);
	if (!holds(g->c, g->next))
		return 0;
	u64 *w = open_record(g->next, (u32)g->t, FT_REC_DATA, (u32)(2 + (n + 7) / 8));
	u32 words = read_data(g->c, w, text, op->from, at, n, want, have);
	if (!holds(g->c, w))
		return 0;
	shorten_record(w, words);
	g->next = w + words;
	return (const u8 *)(w + 2);
}

/* span captures the bytes at an address, of which there are n. */
static void span(struct capturing *g, const struct capture_op *op, u64 at, u64 n)
{
	u64 have;
	if (n && at)
		data(g, 0, op, at, n < op->most ? n : op->most, n, &have);
}

/* follow captures memory to which words point. */
static void follow(struct capturing *g, const struct capture_op *op, const u64 *w)
{
	u64 at = w[op->from], have, pair[2];
	const u8 *b;
	if (!at)
		return;
	switch (op->code) {
	case OP_BYTES:
	case OP_STRING:
		data(g, op->code == OP_STRING, op, at, op->most, op->most, &have);
		break;
	case OP_SPAN:
		span(g, op, at, w[op->from + 1]);
		break;
	case OP_SPAN_BEFORE:
		span(g, op, at, w[op->from - 1]);
		break;
	case OP_SPAN_AT:
	case OP_SPAN_AT_BEFORE:
		b = data(g, 0, op, at, sizeof pair, sizeof pair, &have);
		if (!b || have != sizeof pair)
			break;
		memcpy(pair, b, sizeof pair);
		if (op->code == OP_SPAN_AT)
			span(g, op, pair[0], pair[1]);
		else
			span(g, op, pair[1], pair[0]);
	}
}

/* reach finds what an address that has been captured leads to: a place behind it, or the word there. Addresses that lead
   nowhere give others of which that is seen: 0, or NOWHERE. */
static u64 reach(struct control *c, const struct capture_op *op, u64 from)
{
	enum { NOWHERE = -1 };
	u64 at = from ? from + op->most : 0, w;
	if (op->code == OP_PLACE || !at)
		return at;
	if (!literal(at, sizeof w))
		check_filter();
	return fetch(c, &w, at, sizeof w) == sizeof w ? w : (u64)NOWHERE;
}

/* Where errno is: so far behind each thread's pointer, once that is known. */
static struct { u32 known; u64 distance; } error;

/* error_place asks the C library where a thread's errno is, if the program, or the image m, can call it for that. It is a
   function of one addition, which the dynamic linker may have to find first. */
static u64 error_place(const struct image *m)
{
	const struct image_info *info = (const struct image_info *)m->at;
	u64 at = (u64)info + ((u64)info->errno_at & -2UL), function = at;
	if (!info->errno_at)
		return 0;
	if (!(info->errno_at & 1))
		function = *(const u64 *)at;
	return function ? (u64)((int *(*)(void))function)() : 0;
}

/* error_word is errno: of glibc and musl it is thread-local memory that each thread has from its beginning on. */
static u64 error_word(const struct image *m)
{
	if (!load(&error.known)) {
		u64 place = error_place(m);
		if (!place && m != &fentry_own)
			place = error_place(&fentry_own);
		if (!place)
			return -1UL;
		error.distance = place - thread_pointer();
		store(&error.known, 1);
	}
	return *(const u32 *)(thread_pointer() + error.distance);
}

/* capture_words captures all words to w, the payload of their record, and ends that. It returns the first operation for
   memory. Some words the kernel is asked for: then slots that are not the thread's any more stay as they are, and 0 is
   returned. */
hidden const struct capture_op *capture_words(struct control *c, const struct image *m, const struct capture *p, int exit,
					      u64 slot, const struct callregs *r, u64 *w)
{
	const struct capture_op *op = (const struct capture_op *)(p + 1), *end = op + p->ops;
	if (exit)
		w[-1] |= (u64)FT_ID_EXIT << 32;
	for (u32 n = 0; op < end && op->code <= OP_DEREF; op++) {
		u64 word[2];
		if (op->code == OP_GENERAL) {
			w[n++] = general(op, exit, r);
			continue;
		}
		u32 more = 1;
		if (op->code == OP_ERRNO)
			word[0] = error_word(m);
		else if (op->code < OP_PLACE)
			more = capture_word(c, op, exit, slot, r, word);
		else
			word[0] = reach(c, op, w[op->from]);
		if (!holds(c, w))
			return 0;
		for (u32 i = 0; i < more; i++)
			w[n++] = word[i];
	}
	end_record(w);
	return op;
}

/* capture_at captures what p says to slots that are reserved for it, and returns the first one that was not needed, or 0
   if they are not the thread's any more. t is the low half of the call's counter. */
hidden u64 *capture_at(struct control *c, u64 *to, u32 t, const struct image *m, int exit, u64 slot,
		       const struct callregs *r, const struct capture *p)
{
	const struct capture_op *end = (const struct capture_op *)(p + 1) + p->ops;
	struct capturing g = { c, t, to + 1 + p->words, 0 };
	u64 *w = open_record(to, t, FT_REC_ARGS, p->words);
	const struct capture_op *op = capture_words(c, m, p, exit, slot, r, w);
	for (; op && op < end; op++)
		follow(&g, op, w);
	return op && holds(c, g.next) ? g.next : 0;
}

/* capture_call captures what p says behind the newest event, if that is the entry or exit of f at counter t: other
   calls are not recorded. slot is the call's. */
hidden void capture_call(struct control *c, u64 t, struct function f, int exit, u64 slot, const struct callregs *r,
			 const struct capture *p)
{
	const struct capture_op *end = (const struct capture_op *)(p + 1) + p->ops;
	struct capturing g = { c, t, 0, 0 };
	u64 id = trace_id(f) | (exit ? FT_ID_EXIT : 0);
	if (c->chunk.base == 0 || *(const u64 *)(c->next - 8) >> 32 != id || c->next + 8UL * p->words > c->limit)
		return;
	u64 *w = begin_record(c, t, FT_REC_ARGS, p->words);
	for (const struct capture_op *op = capture_words(c, f.image, p, exit, slot, r, w); op && op < end; op++)
		if (c->next + 8 * (7 + (op->most + 7UL) / 8) < c->limit)
			follow(&g, op, w);
}
