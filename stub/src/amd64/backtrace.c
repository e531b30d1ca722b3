/* Backtraces in the trace.

   Stacks are alike: of two that are taken one after the other most frames are the same, from the
   outermost on. So a frame has a number that stands for all from the outermost up to it, and a stack is one
   number. The first stack that has a frame says what its number means (records FRAMES), and which
   file is mapped where its code is (MAPS). All that is said in each chunk anew: a chunk can be read
   alone, and given up, without any other. A thread keeps the numbers of its current chunk in a
   table of its own, which is forgotten with the chunk, or when it is full. */
#include "backtrace.h"
#include "chunk.h"
#include "machine.h"
#include "process.h"
#include "sys.h"
#include "text.h"
#include "walk.h"


enum { MOST_FRAMES = 500, NODES = 2048, MOST_NODES = NODES / 4 * 3, RUN = FT_RECORD_WORDS - 1, MOST_SAID = 1000 };

struct backtraces {
	u32 epoch;  /* of the chunk that numbers are of */
	u32 last;   /* newest number */
	u32 n, end; /* of the stack that was taken */
	u32 words;  /* that it takes at most */
	struct ranges ranges;
	u64 pcs[MOST_FRAMES]; /* innermost first */
	struct node { u64 pc; u32 parent, id; } nodes[NODES];
	u8 said[MOST_SAID / 8]; /* images that the chunk has */
};

static void forget(struct backtraces *b)
{
	memset(b->nodes, 0, sizeof b->nodes);
	memset(b->said, 0, sizeof b->said);
	b->last = 0;
}

/* words_of is how long a record about an image is. */
static u32 words_of(const struct loaded *l) { return 1 + 3 + (u32)((2UL * l->idlen + 1 + length(l->path) + 7) / 8); }

/* take_backtrace takes the stack of a call whose return address ret is at slot: its callers, from the one that ret is in.
   fp is the frame pointer now. It returns how many words write_backtrace needs at most; 0: there is nothing to write. */
hidden u32 take_backtrace(struct control *c, u64 slot, u64 ret, u64 fp)
{
	u32 words = 3, i;
	struct backtraces *b = c->backtraces;
	if (!b) {
		b = c->backtraces = map_private(sizeof *b);
		if (!b)
			return 0;
	}
	/* Behind a prologue the caller's frame pointer is below the return address. */
	struct registers r = { ret, slot + 8, fp + 8 == slot ? *(u64 *)fp : fp, 0 };
	b->n = walk(&b->ranges, r, b->pcs, MOST_FRAMES, &b->end);
	words += b->n + 2 * (b->n / RUN + 1);
	for (u32 k = 0, before = -1U; k < b->n; k++) {
		const struct loaded *l = loaded_at(b->pcs[k] - 1, &i);
		if (l && i != before)
			words += words_of(l);
		before = l ? i : -1U;
	}
	return b->words = words;
}

/* say_mapped says which file is mapped where a frame's code is, if the chunk does not have it yet. */
static void say_mapped(struct control *c, struct backtraces *b, u64 t, u64 pc)
{
	u32 i;
	const struct loaded *l = loaded_at(pc - 1, &i);
	if (!l || i >= MOST_SAID || b->said[i / 8] >> i % 8 & 1)
		return;
	b->said[i / 8] |= (u8)(1 << i % 8);
	u32 n = words_of(l) - 1;
	u64 *w = begin_record(c, t, FT_REC_MAPS, n);
	if (!w)
		return;
	w[0] = l->lo;
	w[1] = l->hi - l->lo;
	w[2] = l->bias;
	w[n - 1] = 0;
	u8 *text = (u8 *)(w + 3), id[32];
	u32 have = l->idlen && loaded_id(l, id) ? l->idlen : 0;
	for (u32 k = 0; k < have; k++) {
		static const char digits[] = "0123456789abcdef";
		*text++ = (u8)digits[id[k] >> 4];
		*text++ = (u8)digits[id[k] & 15];
	}
	*text++ = ' ';
	memcpy(text, l->path, length(l->path));
	text += length(l->path);
	while (text < (u8 *)(w + n))
		*text++ = 0;
	end_record(w);
}

/* node_of finds the number of a frame, or the place for a new one. */
static struct node *node_of(struct backtraces *b, u64 pc, u32 parent)
{
	u64 h = (pc * 0x9e3779b97f4a7c15 + parent * 0xd6e8feb86659fd93) >> 32;
	struct node *n = &b->nodes[h % NODES];
	while (n->id && (n->pc != pc || n->parent != parent))
		n = n == &b->nodes[NODES - 1] ? b->nodes : n + 1;
	return n;
}

/* write_frames writes the frames from k inwards, whose numbers are new. parent is the number of the frame around
   them. It returns that of the innermost. */
static u32 write_frames(struct control *c, struct backtraces *b, u64 t, u32 k, u32 parent)
{
	for (u32 i = 0; i < k; i++)
		say_mapped(c, b, t, b->pcs[i]);
	while (k > 0) {
		u32 n = k < RUN ? k : RUN, first = b->last + 1;
		u64 *w = begin_record(c, t, FT_REC_FRAMES, 1 + n);
		if (!w)
			return 0;
		w[0] = first | (u64)parent << 32;
		for (u32 i = 1; i <= n; i++, k--) {
			struct node *e = node_of(b, b->pcs[k - 1], parent);
			*e = (struct node){ b->pcs[k - 1], parent, ++b->last };
			w[i] = e->pc;
			parent = e->id;
		}
		end_record(w);
	}
	return parent;
}

/* write_backtrace writes the stack that was taken at the call of f, at counter t. */
hidden void write_backtrace(struct control *c, u64 t, struct function f)
{
	struct backtraces *b = c->backtraces;
	u32 parent = 0, k = b->n;
	room(c, b->words);
	if (c->chunk.base == 0 || c->next + 8UL * b->words > c->limit) /* a chunk can be smaller than that */
		return;
	if (b->epoch != c->epoch || b->last + b->n > MOST_NODES) {
		forget(b);
		b->epoch = c->epoch;
	}
	for (; k > 0; k--) {
		struct node *n = node_of(b, b->pcs[k - 1], parent);
		if (!n->id)
			break;
		parent = n->id;
	}
	u64 id = write_frames(c, b, t, k, parent);
	u64 payload[2] = { id | (u64)b->end << 32 | (u64)FT_STACK_FULL << 40, trace_id(f) };
	record(c, t, FT_REC_BACKTRACE, payload, lengthof(payload));
}
