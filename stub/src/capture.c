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
	u64 slot;
	const struct callregs *r;
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

/* What a variadic function is called with behind its parameters: the next registers and word of the stack. */
struct passed { struct capturing *g; u32 general, vector, stack; };

static u64 next_stacked(struct passed *p)
{
	return stack_word(p->g->c, p->g->slot, call_stack(p->g->slot) + 8UL * p->stack++);
}

static u64 next_general(struct passed *p)
{
	return p->general < GENERAL_ARGUMENTS ? call_argument(p->g->r, p->general++) : next_stacked(p);
}

static void next_floats(struct passed *p, u64 *w, u32 words)
{
	if ((words == 1 || !LONG_DOUBLES_STACKED) && p->vector < lengthof(p->g->r->vector)) {
		memcpy(w, p->g->r->vector[p->vector++], 8UL * words);
		return;
	}
	if (words == 2)
		p->stack += p->stack % 2;
	for (u32 i = 0; i < words; i++)
		w[i] = next_stacked(p);
}

/* What is captured by a format: bytes of it, words that its conversions take, and texts among these, of so many bytes. */
enum { FORMAT_BYTES = 256, FORMAT_VALUES = 16, FORMAT_TEXTS = 8, FORMAT_TEXT = 64 };
enum { FORMAT_WORDS = 3 + FORMAT_BYTES / 8 + 3 + FORMAT_VALUES + 1 + FORMAT_TEXTS * (3 + FORMAT_TEXT / 8) }; /* of the trace */

struct formatted {
	u32 values, texts;
	u64 value[FORMAT_VALUES + 2];
	struct { u64 at, most; } text[FORMAT_TEXTS];
};

static int one_of(u8 c, const char *of)
{
	while (*of && (u8)*of != c)
		of++;
	return *of != 0;
}

/* conversion takes what a conversion does that begins at f, behind its %. It returns where it ends, 0 if it is none that is
   known, or that has room. */
static const u8 *conversion(const u8 *f, const u8 *end, struct passed *p, struct formatted *to)
{
	u64 precision = 0, digits = 0, is_long = 0;
	u32 words = 1;
	for (; f < end && one_of(*f, "-+ #0123456789'*."); f++) {
		if (*f == '*' && to->values < FORMAT_VALUES) {
			i32 v = (i32)(to->value[to->values++] = next_general(p));
			precision = v >= 0 ? (u64)v : 0;
			digits &= (u64)(v >= 0);
		} else if (*f == '.') {
			precision = 0;
			digits = 1;
		} else if (*f >= '0' && *f <= '9' && precision < FORMAT_TEXT)
			precision = precision * 10 + *f - '0';
	}
	for (; f < end && one_of(*f, "hlzjtL"); f++) {
		is_long |= *f == 'l';
		words = *f == 'L' ? 2 : words;
	}
	if (f == end || to->values >= FORMAT_VALUES)
		return 0;
	u64 *v = &to->value[to->values];
	if (one_of(*f, "%m"))
		return f + 1;
	if (one_of(*f, "eEfFgGaA")) {
		next_floats(p, v, words);
		to->values += words;
		return f + 1;
	}
	if (!one_of(*f, "diuxXocspn"))
		return 0;
	*v = next_general(p);
	to->values++;
	if (*f == 's' && !is_long && *v && to->texts < FORMAT_TEXTS) {
		to->text[to->texts].at = *v;
		to->text[to->texts++].most = digits && precision < FORMAT_TEXT ? precision : FORMAT_TEXT;
	}
	return f + 1;
}

/* values captures what the conversions of a format at an address take. */
static int values(struct capturing *g, u32 arg, u64 at, const struct formatted *f)
{
	u32 words = 2 + f->values;
	u64 *w = g->next ? 0 : begin_record(g->c, g->t, FT_REC_DATA, words);
	if (g->next) {
		if (!holds(g->c, g->next))
			return 0;
		w = open_record(g->next, (u32)g->t, FT_REC_DATA, words);
		g->next = w + words;
	}
	if (!w)
		return 0;
	w[0] = arg | (u64)FT_DATA_VALUES << 16 | 8UL * f->values << 32;
	w[1] = at;
	memcpy(w + 2, f->value, 8UL * f->values);
	end_record(w);
	return 1;
}

/* by_format captures a format, and what it says that there is behind the parameters. */
static void by_format(struct capturing *g, const struct capture_op *op, u64 at)
{
	struct passed p = { g, op->most & 15, op->most >> 4 & 15, op->most >> 8 };
	struct formatted f;
	u64 have;
	const u8 *b = data(g, 1, op, at, FORMAT_BYTES, FORMAT_BYTES, &have), *end = b + have;
	f.values = f.texts = 0;
	while (b && b < end)
		if (*b++ == '%')
			b = conversion(b, end, &p, &f);
	if (!f.values || !values(g, op->from, at, &f))
		return;
	for (u32 i = 0; i < f.texts; i++)
		if (f.text[i].most && !data(g, 1, op, f.text[i].at, f.text[i].most, f.text[i].most, &have))
			return;
}

/* takes is how many words of the trace what an operation captures of memory takes at most. */
static u64 takes(const struct capture_op *op) { return op->code == OP_FORMAT ? FORMAT_WORDS : 7 + (op->most + 7UL) / 8; }

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
	case OP_FORMAT:
		by_format(g, op, at);
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
	struct capturing g = { c, t, to + 1 + p->words, 0, slot, r };
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
	struct capturing g = { c, t, 0, 0, slot, r };
	u64 id = trace_id(f) | (exit ? FT_ID_EXIT : 0);
	if (c->chunk.base == 0 || *(const u64 *)(c->next - 8) >> 32 != id || c->next + 8UL * p->words > c->limit)
		return;
	u64 *w = begin_record(c, t, FT_REC_ARGS, p->words);
	for (const struct capture_op *op = capture_words(c, f.image, p, exit, slot, r, w); op && op < end; op++)
		if (c->next + 8 * takes(op) < c->limit)
			follow(&g, op, w);
}
