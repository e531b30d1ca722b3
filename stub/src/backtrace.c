/* Backtraces in the trace.

   Stacks are alike: of two that are taken one after the other most frames are the same, from the
   outermost on. So a frame has a number that stands for all from the outermost up to it, and a stack is one
   number. The first stack that has a frame says what its number means (records FRAMES), and which
   file is mapped where its code is (MAPS). All that is said in each chunk anew: a chunk can be read
   alone, and given up, without any other. A thread keeps the numbers of its current chunk in a
   table of its own, which is forgotten with the chunk, or when it is full. */
#include "backtrace.h"
#include "chunk.h"
#include "configuration.h"
#include "copies.h"
#include "life.h"
#include "machine.h"
#include "memory.h"
#include "process.h"
#include "source.h"
#include "stack.h"
#include "sys.h"
#include "text.h"
#include "walk.h"


enum { MOST_FRAMES = 500, NODES = 2048, MOST_NODES = NODES / 4 * 3, RUN = FT_RECORD_WORDS - 1, MOST_SAID = 1000, MOST_ID = 32 };

struct backtraces {
	u32 epoch;  /* of the chunk that numbers are of */
	u32 last;   /* newest number */
	u32 before; /* newest number of the chunk before: only what is newer is known */
	u32 n, end; /* of the stack that was taken */
	u32 words;  /* that it takes at most */
	struct ranges ranges;
	u64 pcs[MOST_FRAMES]; /* innermost first */
	struct node { u64 pc; u32 parent, id; } nodes[NODES];
	u8 said[MOST_SAID / 8]; /* images that the chunk has */
};

_Static_assert(sizeof(struct backtraces) <= BACKTRACES, "they have no room");

static void forget(struct backtraces *b)
{
	memset(b->said, 0, sizeof b->said);
	if (b->last > 1U << 31) {
		memset(b->nodes, 0, sizeof b->nodes);
		b->last = 0;
	}
	b->before = b->last;
}

/* The file whose code an image is. */
struct file { const char *path; const u8 *id; u32 idlen; };

/* info_within is what is known of a traced image that lies in a mapped one; 0: there is none. */
static const struct image_info *info_within(const struct loaded *l)
{
	for (struct image *m = images_first(); m; m = m->next) {
		const struct image_info *info = (const struct image_info *)m->at;
		if (m->at - l->lo < l->hi - l->lo && image_there(m) && info->idlen <= MOST_ID)
			return info;
	}
	return 0;
}

/* file_of: a traced image can be a patched copy, in memory only or of a recorder's. Then it is the file that it is a copy of.
   Of one whose notes had to make room, the build-id is known. */
static struct file file_of(const struct loaded *l)
{
	struct file f = { l->path, l->id, l->idlen };
	const struct image_info *info = info_within(l);
	int copy = info && (l->nowhere || info->library == 2);
	if (info && l->idlen && !copy)
		info = 0;
	if (copy)
		f.path = info->path;
	if (info) {
		f.id = info->build_id;
		f.idlen = info->idlen;
	}
	return f;
}

/* map_words is how long the payload of a record about a file is. A library that registers at this moment changes what it
   is: whoever writes looks whether there is room. */
static u32 map_words(struct file f) { return 3 + (u32)((2UL * f.idlen + 1 + length(f.path) + 7) / 8); }

static int has_room(const struct control *c, u32 words) { return c->next + 8UL * words <= c->limit; }

/* backtraces_of is where a thread's stack is to be taken; 0: there is no memory. */
static struct backtraces *backtraces_of(struct control *c)
{
	if (!c->backtraces)
		c->backtraces = map_private(BACKTRACES);
	return c->backtraces;
}

/* words_needed is how many words write_backtrace needs at most for the stack that was taken. */
static u32 words_needed(struct backtraces *b)
{
	u32 words = 3 + b->n + 2 * (b->n / RUN + 1), i;
	const struct loaded *l = 0;
	for (u32 k = 0; k < b->n; k++) {
		u64 pc = lookup(b->pcs[k]);
		if (l && pc - l->lo < l->hi - l->lo)
			continue;
		l = loaded_at(pc, &i);
		if (l)
			words += 1 + map_words(file_of(l));
	}
	return b->words = words;
}

/* take_backtrace takes the stack of a call whose return address ret is at slot: its callers, from the one that ret is in.
   fp is the frame pointer now. It returns how many words write_backtrace needs at most; 0: there is nothing to write. */
hidden u32 take_backtrace(struct control *c, u64 slot, u64 ret, u64 fp)
{
	struct backtraces *b = backtraces_of(c);
	if (!b)
		return 0;
	struct registers r = { .pc = ret, .sp = slot + SLOT_BELOW, .fp = caller_fp(slot, fp) };
	b->n = walk(&b->ranges, r, b->pcs, MOST_FRAMES, &b->end);
	return words_needed(b);
}

/* drop_first leaves out the innermost frame. */
static void drop_first(struct backtraces *b)
{
	b->n -= b->n > 0;
	for (u32 k = 0; k < b->n; k++)
		b->pcs[k] = b->pcs[k + 1];
}

/* take_site_backtrace is take_backtrace of a call that has been told of from inside, with registers r, where nobody knows
   the slot. */
hidden u32 take_site_backtrace(struct control *c, struct registers r)
{
	struct backtraces *b = backtraces_of(c);
	if (!b)
		return 0;
	b->n = walk(&b->ranges, r, b->pcs, MOST_FRAMES, &b->end);
	drop_first(b);
	return words_needed(b);
}

/* take_syscall_backtrace is take_backtrace at a system call, with registers r and the program's stack at sp: from the
   function that makes it, if the copy says which that is, or else from that one's caller. */
hidden u32 take_syscall_backtrace(struct control *c, const struct sysregs *r, u64 sp)
{
	struct backtraces *b = backtraces_of(c);
	struct registers at = at_syscall(r, sp);
	if (!b)
		return 0;
	b->n = walk(&b->ranges, at, b->pcs, MOST_FRAMES, &b->end);
	u64 place = original_place(at.pc);
	if (b->n && place)
		b->pcs[0] = place;
	else
		drop_first(b);
	return words_needed(b);
}

/* ---- stacks on a timer ----

   A thread that has run for so long has its stack walked at its next event. Nobody else has to tell it: it looks at the
   clock after so many events as it makes in a part of that time, by coming to the slow path. What costs more is asked
   only when that clock says so: how long the thread has really run. */

enum { PARTS = 8, MOST_PACE = 512, CLOCK_THREAD_CPUTIME_ID_ = 3 };

static u64 hz;

static u64 to_ticks(u64 ns) { return ns / 1000000000UL * hz + ns % 1000000000UL * hz / 1000000000UL; }

/* keep_pace chooses after how many events the thread looks again. */
static void keep_pace(struct control *c, u64 now, u64 period)
{
	u64 took = now - c->looked, pace = took ? c->pace * (period / PARTS) / took : MOST_PACE;
	if (pace > 2UL * c->pace)
		pace = 2UL * c->pace;
	set_pace(c, pace > MOST_PACE ? MOST_PACE : pace ? (u32)pace : 1);
	c->looked = now;
}

/* sample_due says whether a stack is due, and how many ticks ago it became so. */
hidden int sample_due(struct control *c, u64 *delay)
{
	u64 now = counter(), every = fentry_config.every;
	if (!load(&hz))
		store(&hz, counter_hz());
	u64 period = to_ticks(every);
	keep_pace(c, now, period);
	if (c->due && now < c->due)
		return 0;
	u64 ran = clock_ns(CLOCK_THREAD_CPUTIME_ID_), since = ran - c->ran;
	if (!c->due || since < every) {
		if (!c->due)
			c->ran = ran;
		c->due = now + (since < every ? to_ticks(every - since) : period);
		return 0;
	}
	*delay = to_ticks(since - every);
	c->ran = ran;
	c->due = now + period;
	return 1;
}

/* take_sample takes and writes the stack at a call or return that is about to be recorded, if one is due: the thread was in
   the innermost open call when it begins, or in the one that ends. fp is the program's frame pointer, id and m are what the
   fast path says of the event. */
hidden void take_sample(struct control *c, u64 fp, u32 id, struct image *m)
{
	u64 delay, slot = top_slot(c->top);
	struct function f;
	if (top_empty(c->top) || !sample_due(c, &delay) || !take_backtrace(c, slot, *shadow_ret(slot), fp))
		return;
	struct backtraces *b = c->backtraces;
	if (is_end(slot, id, m, &f) && b->n < MOST_FRAMES) {
		for (u32 k = b->n++; k > 0; k--)
			b->pcs[k] = b->pcs[k - 1];
		b->pcs[0] = MOVED_CODE | trace_id(f);
		b->words += 2;
	}
	write_backtrace(c, counter(), FT_STACK_ON_TIMER | delay);
}

/* say_mapped says which file is mapped where a frame's code is, if the chunk does not have it yet. */
static void say_mapped(struct control *c, struct backtraces *b, u64 t, u64 pc)
{
	u32 i;
	const struct loaded *l = mapped_at(lookup(pc), &i);
	if (!l || i >= MOST_SAID || b->said[i / 8] >> i % 8 & 1)
		return;
	struct file f = file_of(l);
	u32 n = map_words(f);
	u64 *w = has_room(c, 1 + n) ? begin_record(c, t, FT_REC_MAPS, n) : 0;
	if (!w)
		return;
	b->said[i / 8] |= (u8)(1 << i % 8);
	w[0] = l->lo;
	w[1] = l->hi - l->lo;
	w[2] = l->bias;
	w[n - 1] = 0;
	u8 *text = (u8 *)(w + 3);
	for (u32 k = 0; k < f.idlen; k++) {
		static const char digits[] = "0123456789abcdef";
		*text++ = (u8)digits[f.id[k] >> 4];
		*text++ = (u8)digits[f.id[k] & 15];
	}
	*text++ = ' ';
	memcpy(text, f.path, length(f.path));
	text += length(f.path);
	while (text < (u8 *)(w + n))
		*text++ = 0;
	end_record(w);
}

static int is_known(const struct backtraces *b, const struct node *n) { return n->id > b->before; }

/* node_of finds the number of a frame, or the place for a new one: that of one which is not known any more, too, as all that
   are known came after it. */
static struct node *node_of(struct backtraces *b, u64 pc, u32 parent)
{
	u64 h = (pc * 0x9e3779b97f4a7c15 + parent * 0xd6e8feb86659fd93) >> 32;
	struct node *n = &b->nodes[h % NODES];
	while (is_known(b, n) && (n->pc != pc || n->parent != parent))
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
		u64 *w = has_room(c, 2 + n) ? begin_record(c, t, FT_REC_FRAMES, 1 + n) : 0;
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

/* write_backtrace writes the stack that was taken, at counter t. asker is what is called: the id of a function, or with
   STACK_AT_SYSCALL's bit the number of a system call. */
hidden void write_backtrace(struct control *c, u64 t, u64 asker)
{
	struct backtraces *b = c->backtraces;
	u32 parent = 0, k = b->n;
	room(c, b->words);
	if (c->chunk.base == 0 || c->next + 8UL * b->words > c->limit) /* a chunk can be smaller than that */
		return;
	if (b->epoch != c->epoch || b->last - b->before + b->n > MOST_NODES) {
		forget(b);
		b->epoch = c->epoch;
	}
	for (; k > 0; k--) {
		struct node *n = node_of(b, b->pcs[k - 1], parent);
		if (!is_known(b, n))
			break;
		parent = n->id;
	}
	u64 id = write_frames(c, b, t, k, parent);
	u64 mode = asker & FT_STACK_AT_SYSCALL ? FT_STACK_ENTRY : asker & FT_STACK_ON_TIMER ? FT_STACK_DEFERRED : FT_STACK_FULL;
	u64 payload[2] = { id | (u64)b->end << 32 | mode << 40, asker };
	record(c, t, FT_REC_BACKTRACE, payload, lengthof(payload));
}
