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
#include "sys.h"

/* stack_word reads a word of the stack at an address above slot. In the slot's page there is memory; what a user has
   asked for need not be. */
static u64 stack_word(struct control *c, u64 slot, u64 at)
{
	u64 w = 0;
	if (slot / 4096 == (at + 7) / 4096)
		return *(const u64 *)at;
	return read_program(c->pid, &w, at, sizeof w) == sizeof w ? w : 0;
}

/* take captures words, and returns how many. */
static u32 take(struct control *c, const struct capture_op *op, int exit, u64 slot, const struct callregs *r, u64 *w)
{
	w[0] = 0;
	switch (op->code) {
	case OP_GENERAL:
		w[0] = exit ? call_result(r, op->from) : call_argument(r, op->from);
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

/* span captures the bytes at an address, of which there are n. */
static void span(struct control *c, u64 t, const struct capture_op *op, u64 at, u64 n)
{
	u64 have;
	if (n && at)
		write_data(c, t, 0, op->from, at, n < op->most ? n : op->most, n, &have);
}

/* follow captures memory to which words point. */
static void follow(struct control *c, u64 t, const struct capture_op *op, const u64 *w)
{
	u64 at = w[op->from], have, pair[2];
	const u8 *b;
	if (!at)
		return;
	switch (op->code) {
	case OP_BYTES:
	case OP_STRING:
		write_data(c, t, op->code == OP_STRING, op->from, at, op->most, op->most, &have);
		break;
	case OP_SPAN:
		span(c, t, op, at, w[op->from + 1]);
		break;
	case OP_SPAN_BEFORE:
		span(c, t, op, at, w[op->from - 1]);
		break;
	case OP_SPAN_AT:
	case OP_SPAN_AT_BEFORE:
		b = write_data(c, t, 0, op->from, at, sizeof pair, sizeof pair, &have);
		if (!b || have != sizeof pair)
			break;
		memcpy(pair, b, sizeof pair);
		if (op->code == OP_SPAN_AT)
			span(c, t, op, pair[0], pair[1]);
		else
			span(c, t, op, pair[1], pair[0]);
	}
}

/* capture_call captures what p says behind the newest event, if that is the entry or exit of f at counter t: other
   calls are not recorded. slot is the call's. */
hidden void capture_call(struct control *c, u64 t, struct function f, int exit, u64 slot, const struct callregs *r,
			 const struct capture *p)
{
	const struct capture_op *op = (const struct capture_op *)(p + 1), *end = op + p->ops;
	u32 n = 0;
	u64 id = trace_id(f) | (exit ? FT_ID_EXIT : 0);
	if (c->chunk.base == 0 || *(const u64 *)(c->next - 8) >> 32 != id || c->next + 8UL * p->words > c->limit)
		return;
	u64 *w = begin_record(c, t, FT_REC_ARGS, p->words);
	if (exit)
		w[-1] |= (u64)FT_ID_EXIT << 32;
	for (; op < end && op->code <= OP_NOTHING; op++)
		n += take(c, op, exit, slot, r, w + n);
	end_record(w);
	if (op < end)
		check_filter();
	for (; op < end; op++)
		if (c->next + 8 * (7 + (op->most + 7UL) / 8) < c->limit)
			follow(c, t, op, w);
}
