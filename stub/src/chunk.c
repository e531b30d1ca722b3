/* Events that slow paths write, and the chunks that all events go to.

   A chunk has one writer, its thread, so no event needs a lock; what threads share is only
   who gets which chunk (pool.c, file.c). A fast path reserves a slot between next and end,
   and then writes it. A signal handler may come in between, and go on to the next chunk:
   therefore a chunk that is left is kept until two more have been (old), or, where the pool
   is short of chunks, only if it has a slot of zeros: one that is still to be written.

   There is always a place to write, or fast paths would need one test more. Where no other
   chunk is to be had, it is the end of the one that the thread has: the newest events there
   are given up again and again, a lap, until a chunk is free. A LOST record in front of them
   counts those of all laps, so at any moment what is recorded and what is counted as lost
   are all events that happened, also if the thread is killed, as nobody but the reader has
   to do anything then. Only a thread without any chunk writes to a place that is not part of
   the trace, the scrap. It counts what has gone there whenever it comes to a slow path, in
   the file's header, and moves that to its own count with its next chunk. If it never comes
   again, some events were not counted, and meanwhile the header says so (UNCOUNTED). */
#include "ahead.h"
#include "chunk.h"
#include "configuration.h"
#include "costly.h"
#include "file.h"
#include "image.h"
#include "pool.h"
#include "source.h"
#include "sys.h"

hidden u64 scrap[SCRAP] __attribute__((aligned(64)));

enum { FIRST_PACE = 16 };

enum { LAP = 256 }; /* words at the end of a chunk that are given up for newer ones */

/* set_end says up to where fast paths may write: the last slot that is not to be used. The
   beginning of a system call needs more than one, and has the slow path while a child runs in
   the thread's place. */
static void set_end(struct control *c, u64 end)
{
	c->end = end;
	c->sys_end = c->vforks ? 0 : (end & -8UL) + 16 - SYSCALL_RECORD;
}

hidden i32 later;

/* forget_ahead has the next chunk, if one is prepared, begun by a slow path: its header is not right any more. */
hidden void forget_ahead(struct control *c)
{
	if (AHEAD && c->chunk.base && c->end & AHEAD_LEFT)
		set_end(c, c->limit);
}

/* lose counts n events of this task that are not recorded. */
hidden void lose(struct control *c, u64 n)
{
	if (n == 0 || !source.header)
		return;
	if (c->chunk.base == 0) {
		c->lost_before_chunk += n;
		add(HEADER(u64, FT_H_LOST), n);
		return;
	}
	c->lost += n;
	store((u64 *)(c->chunk.base + FT_C_LOST), c->lost);
	forget_ahead(c);
}

/* Without a clock an event's time is a sequence number: how far its slot is in the chunk,
   counted from where the chunk begins. So fast paths have it for an addition, a thread's
   numbers are in order whatever signal handlers do, and the exit and the entry of a tail
   call, which are reserved at once, have the same one. A chunk begins at the processor's
   counter, or behind the chunk before: so threads are in order as far as their chunks do
   not overlap. */

/* sequence_at makes n, or a little more, the number of the slot at address a. The high half
   of the numbers stays the same up to the chunk's end. */
static void sequence_at(struct control *c, u64 n, u64 a)
{
	if ((u32)(n + source.chunk_size) < (u32)n)
		n = (n | 0xffffffff) + 1;
	c->first = n - (a - c->chunk.base);
	c->order = (u32)(n - a);
}

/* when returns what stands for the time t in the next word. */
static u64 when(struct control *c, u64 t)
{
	return clockless() && c->chunk.base ? c->first + (c->next - c->chunk.base) : t;
}

/* chunk_header makes memory at base a chunk of this task, about an image. The magic comes
   last. */
hidden void chunk_header(struct control *c, u64 base, u32 kind, u64 image, u32 number)
{
	u8 *h = (u8 *)base;
	*(unsigned short *)(h + FT_C_KIND) = (unsigned short)kind;
	*(u32 *)(h + FT_C_PID) = c->pid;
	*(u32 *)(h + FT_C_TID) = c->tid;
	*(u32 *)(h + FT_C_NUMBER) = number;
	int numbered = clockless() && kind == FT_KIND_EVENTS;
	*(u64 *)(h + FT_C_COUNTER) = numbered ? c->first : counter();
	*(u64 *)(h + FT_C_MONOTONIC) = numbered ? 0 : clock_ns(CLOCK_MONOTONIC_);
	*(u64 *)(h + FT_C_IMAGE) = image;
	*(u64 *)(h + FT_C_KEY) = c->key;
	*(u64 *)(h + FT_C_LOST) = c->lost;
	memcpy(h + FT_C_COMM, c->comm, sizeof c->comm);
	*(u32 *)(h + FT_C_PARENT_PID) = c->ppid;
	*(u32 *)(h + FT_C_PARENT_TID) = c->ptid;
	*(u64 *)(h + FT_C_STACK) = c->stack;
	store((u32 *)(h + FT_C_MAGIC), FT_CHUNK_MAGIC);
}

/* hand_over gives a chunk to whoever reads it. */
hidden void hand_over(struct control *c, struct chunk *k)
{
	if (k->base && source.kind == POOL)
		pool_full(c, k);
	else if (k->base && source.kind == FILE)
		file_done(k);
	k->base = 0;
}

/* take_chunk gets an empty chunk of at least so many bytes; 0: there is none to be had. */
hidden int take_chunk(struct control *c, struct chunk *k, u32 least)
{
	if (source.kind == POOL)
		return pool_chunk(c, k, least);
	if (source.kind == FILE)
		return file_chunks(k, 1);
	return 0;
}

/* paced is where fast paths end: at the chunk's end, or before, to look at the time. */
static u64 paced(const struct control *c, u64 from)
{
	u64 to = from + 8UL * c->pace;
	return c->pace && to < c->limit ? to : c->limit;
}

/* set_pace has the thread come to the slow path after so many events. */
hidden void set_pace(struct control *c, u32 events)
{
	c->pace = events;
	if (c->chunk.base)
		set_end(c, paced(c, c->next));
}

/* room_ends has the fast paths look at what has changed. */
hidden void room_ends(struct control *c)
{
	if (c->chunk.base)
		set_end(c, c->end);
}

/* use_scrap lets events go nowhere for a while. */
static void use_scrap(struct control *c)
{
	c->next = (u64)scrap;
	c->end = (u64)(scrap + SCRAP - 8);
	c->sys_end = 0;
	set_high(c, counter());
	if (!c->scrap)
		uncounted(1);
	c->scrap = 1;
}

/* count_scrap counts what has gone to the scrap. */
static void count_scrap(struct control *c)
{
	if (c->scrap)
		lose(c, (c->next - (u64)scrap) / 8);
}

/* leave_scrap says that nothing goes there any more. */
static void leave_scrap(struct control *c)
{
	if (c->scrap)
		uncounted(-1);
	c->scrap = 0;
}

static void write_word(struct control *c, u64 w)
{
	*(u64 *)c->next = w;
	c->next += 8;
}

/* begin_record begins a record with n words of payload, for which there is room, and
   returns where they go; 0: nowhere. The slots of all of them are one reservation. The
   header comes first and says that the record is open, so that no reader takes the
   payload for events; end_record writes it again when the payload is there. Records are
   not events: they do not go to the scrap. */
hidden u64 *begin_record(struct control *c, u64 t, u32 type, u32 n)
{
	u64 *w = (u64 *)c->next;
	if (c->chunk.base == 0)
		return 0;
	t = when(c, t);
	c->next += 8 * (n + 1UL);
	return open_record(w, (u32)t, type, n);
}

/* cut_record ends a record that has become shorter, the newest one of this thread, which no signal can
   interrupt. The memory behind it is zero. */
hidden void cut_record(struct control *c, u64 *payload, u32 n)
{
	c->next = (u64)(payload + n);
	shorten_record(payload, n);
}

/* write_record writes a record with n words of payload, for which there is room. */
static void write_record(struct control *c, u64 t, u32 type, const u64 *payload, u32 n)
{
	u64 *w = begin_record(c, t, type, n);
	if (!w)
		return;
	for (u32 i = 0; i < n; i++)
		w[i] = payload[i];
	end_record(w);
}

/* events says whether there is a stream of events at all. */
static int events(void) { return !tables(); }

/* end_thread says in the trace that a thread has ended by now, if there is room. */
static void end_thread(struct control *c)
{
	u64 t = when(c, counter());
	if (!events() || c->next + 3 * 8 > c->chunk.base + c->chunk.size)
		return;
	write_record(c, t, FT_REC_SYNC, &t, 1);
	write_record(c, t, FT_REC_THREAD_END, 0, 0);
}

/* give_up_chunks lets go of what a dead thread had. What is in a pool is the
   recorder's, which notices by itself. */
hidden void give_up_chunks(struct control *c)
{
	count_scrap(c);
	leave_scrap(c);
	if (source.kind == FILE) {
		if (c->chunk.base) {
			end_thread(c);
			seal_current(c);
		}
		hand_over(c, &c->old[1]);
		hand_over(c, &c->old[0]);
		hand_over(c, &c->chunk);
	}
	c->chunk.base = c->old[0].base = c->old[1].base = c->ahead = 0;
	c->next = c->end = c->sys_end = 0;
}

/* end_chunks hands over all that a thread has, which writes no more. */
hidden void end_chunks(struct control *c)
{
	count_scrap(c);
	leave_scrap(c);
	if (c->chunk.base)
		seal_current(c);
	hand_over(c, &c->old[1]);
	hand_over(c, &c->old[0]);
	hand_over(c, &c->chunk);
	c->next = c->end = c->sys_end = 0;
}

/* keep_current keeps the current chunk, which is sealed, for a while, for writers that a signal handler
   has interrupted before they wrote to their slots, or hands it over at once. */
static void keep_current(struct control *c)
{
	hand_over(c, &c->old[1]);
	if (source.kind == POOL && !pool_keeps(&c->chunk)) {
		hand_over(c, &c->old[0]);
		hand_over(c, &c->chunk);
		return;
	}
	c->old[1] = c->old[0];
	c->old[0] = c->chunk;
	c->chunk.base = 0;
}

static void leave_current(struct control *c)
{
	if (!c->chunk.base)
		return;
	seal_current(c);
	keep_current(c);
}

/* catch_up does what is left to do where the thread has gone ahead. */
hidden void catch_up(struct control *c)
{
	u64 size = c->chunk.size;
	if (!AHEAD || !c->ahead || c->next - c->chunk.base < size + FT_CHUNK_HEADER)
		return;
	while (c->ahead && c->next - c->chunk.base >= size + FT_CHUNK_HEADER) {
		struct chunk k = { c->chunk.base + size, c->chunk.index + 1, (u32)size };
		store((u32 *)(c->chunk.base + FT_C_SIZE), (u32)size);
		keep_current(c);
		c->chunk = k;
		c->ahead -= size;
		c->first += size;
		c->limit += size;
		c->number++;
		c->epoch++;
	}
	c->lap = 0;
	set_end(c, c->end);
}

/* next_ahead takes the next of the chunks that the thread has taken beforehand. */
static int next_ahead(struct control *c, struct chunk *k)
{
	if (!AHEAD || !c->ahead)
		return 0;
	*k = (struct chunk){ c->chunk.base + c->chunk.size, c->chunk.index + 1, c->chunk.size };
	c->ahead -= c->chunk.size;
	return 1;
}

/* take_ahead takes chunks beforehand behind the current one, which has just begun, if the one before, whose numbers began
   at before, was filled quickly, and prepares those that there are. Where numbers would get another high half, nothing is
   prepared. Goroutines change stacks without a slow path. */
static void take_ahead(struct control *c, u64 before)
{
	u64 first = c->first, size = c->chunk.size;
	if (!AHEAD || !clockless() || source.kind != POOL || !c->owner || c->pace || c->vforks || fentry_image.goroutine ||
	    !before || first - before > size + LATE + (u64)load(&later))
		return;
	if (!c->ahead)
		c->ahead = pool_ahead(&c->chunk, AHEAD);
	u64 left = c->ahead / size;
	if (!left || (u32)(first + c->ahead + size) < (u32)first)
		return;
	for (u32 i = 0; i < left; i++) {
		c->first += size;
		chunk_header(c, c->chunk.base + (i + 1) * size, FT_KIND_EVENTS, fentry_image.id, c->number + i);
	}
	c->first = first;
	set_end(c, ahead_end(c->chunk.base, size, left));
}

/* begin_chunk begins to write to a new chunk. */
static void begin_chunk(struct control *c, struct chunk k)
{
	u64 comm[2] = { c->comm[0], c->comm[1] };
	sys(SYS_prctl, PR_GET_NAME_, c->comm, 0, 0, 0, 0);
	c->lost += c->lost_before_chunk;
	if (c->lost_before_chunk)
		add(HEADER(u64, FT_H_LOST), -c->lost_before_chunk);
	u64 behind = c->first ? c->first + c->chunk.size : 0, now = counter();
	c->chunk = k;
	if (clockless())
		sequence_at(c, now > behind ? now : behind, k.base);
	chunk_header(c, k.base, FT_KIND_EVENTS, fentry_image.id, c->number++);
	if (c->number == 1 && c->tid == c->pid && source.kind == POOL)
		pool_wake(); /* to see a forked child while it lives */
	c->next = k.base + FT_CHUNK_HEADER;
	c->limit = k.base + k.size - 8;
	c->lap = 0;
	c->epoch++;
	if (WALKS && fentry_config.every && !c->pace)
		c->pace = FIRST_PACE;
	set_end(c, c->number == 1 ? k.base + FT_CHUNK_HEADER + 16 * 8 : paced(c, c->next));
	u64 t = *(u64 *)(k.base + FT_C_COUNTER);
	set_high(c, t);
	if (c->lost_before_chunk) {
		write_record(c, t, FT_REC_LOST, &c->lost_before_chunk, 1);
		c->lost_before_chunk = 0;
	}
	if (c->number > 1 && (comm[0] != c->comm[0] || comm[1] != c->comm[1]))
		write_record(c, t, FT_REC_COMM, c->comm, 2);
}

/* expendable returns from where on the current chunk is given up in a lap: from where the
   lap before began, or where a word begins about LAP words before the end, but behind all
   slots and records that a writer below a signal handler is still to write. n is how many events that
   are; moved says that among them the thread went to another stack. */
static u64 expendable(struct control *c, u64 *n, int *moved)
{
	u64 from = c->lap ? c->lap : c->chunk.base + FT_CHUNK_HEADER, words;
	*n = 0;
	*moved = 0;
	for (u64 p = from; p < c->next; p += 8 * (1 + words)) {
		u64 w = load((u64 *)p);
		u32 id = (u32)(w >> 32);
		int is_record = (id & FT_RECORD_MASK) == FT_RECORD_BASE;
		words = is_record ? id & FT_RECORD_WORDS : 0;
		int held = w == 0 || (is_record && id & FT_RECORD_OPEN);
		if (held || (!c->lap && p <= c->limit - 8 * LAP)) {
			from = held ? p + 8 * (1 + words) : p;
			*n = 0;
			*moved = 0;
		}
		*n += is_event(w);
		*moved |= is_record && (id >> FT_RECORD_TYPE_SHIFT & FT_RECORD_TYPE_MASK) == FT_REC_STACK;
	}
	return from;
}

/* lap gives up the newest events of the current chunk and counts them, so that there is
   room for newer ones. It returns 0 if the thread has no chunk, or none with room. The
   record is open until the events are gone: who is killed in between leaves a loss of
   unknown size, not a wrong number. */
static int lap(struct control *c)
{
	u64 n, from, to = c->next, t = counter();
	int moved;
	if (!c->chunk.base)
		return 0;
	from = expendable(c, &n, &moved);
	if (from + 8 * LAP / 4 > c->limit)
		return 0;
	if (clockless())
		sequence_at(c, when(c, t), from);
	u64 count = n + (from == c->lap ? *(u64 *)(from + 8) : 0);
	c->lap = c->next = from;
	c->epoch++;
	u64 *payload = begin_record(c, t, FT_REC_LOST, 1);
	memset(payload, 0, to > (u64)payload ? to - (u64)payload : 0);
	lose(c, n);
	*payload = count;
	end_record(payload);
	t = when(c, t);
	write_record(c, t, FT_REC_SYNC, &t, 1);
	if (moved)
		write_record(c, t, FT_REC_STACK, &c->stack, 1);
	set_high(c, t);
	return 1;
}

/* go_on goes on in another chunk, with room for some words behind what it begins with, or
   where else there is room. */
static void go_on(struct control *c, u32 words)
{
	struct chunk k = { 0 };
	u64 end = c->chunk.base + c->chunk.size, before = c->first;
	if (c->chunk.base && c->next > end)
		c->next = end; /* settle.c */
	count_scrap(c);
	if (next_ahead(c, &k) || take_chunk(c, &k, words > 8 ? FT_CHUNK_HEADER + 8 * (words + 8) : 0)) {
		leave_scrap(c);
		leave_current(c);
		begin_chunk(c, k);
		take_ahead(c, before);
		return;
	}
	if (lap(c))
		return;
	leave_current(c);
	use_scrap(c);
}

/* next_chunk goes on in another chunk, and takes the time to look what the recorder wants. */
static void next_chunk(struct control *c, u32 words)
{
	go_on(c, words);
	follow_recorder();
}

/* more_room goes on where fast paths have ended before the chunk does: to look at the time, or, in a first chunk, at the
   thread's name. Threads are named after they have begun, and many do not live for a whole chunk. It returns 0 if they have
   ended at the chunk's end. */
static int more_room(struct control *c, u32 words)
{
	enum { COMM_WORDS = 3 };
	u64 comm[2] = { c->comm[0], c->comm[1] }, end = c->chunk.base + 8 * (c->end - c->chunk.base);
	if (c->chunk.base == 0 || c->end == c->limit || c->end & AHEAD_LEFT)
		return 0;
	if (c->number == 1)
		sys(SYS_prctl, PR_GET_NAME_, c->comm, 0, 0, 0, 0);
	set_end(c, c->pace ? paced(c, c->next + 8 * (words + 2 + COMM_WORDS)) : end < c->limit ? end : c->limit);
	if (comm[0] != c->comm[0] || comm[1] != c->comm[1]) {
		memcpy((u8 *)c->chunk.base + FT_C_COMM, c->comm, sizeof c->comm);
		if (c->next + 8 * COMM_WORDS <= c->limit + 8)
			write_record(c, counter(), FT_REC_COMM, c->comm, 2);
	}
	return 1;
}

/* room makes room for some words, the first with counter t. */
static void room_at(struct control *c, u64 t, u32 words)
{
	while (c->next == 0 || c->next + 8 * (words + 2) > c->end + 8) {
		if (more_room(c, words))
			continue;
		next_chunk(c, words);
		break;
	}
	if ((u32)(t >> 32) != c->high && !clockless()) {
		set_high(c, t);
		write_record(c, t, FT_REC_SYNC, &t, 1);
	}
}

hidden void room(struct control *c, u32 words) { room_at(c, counter(), words); }

hidden void put(struct control *c, u64 t, u32 id)
{
	if (!events())
		return;
	room_at(c, t, 1);
	write_word(c, (u64)id << 32 | (u32)when(c, t));
}

/* record writes a record with n words of payload. */
hidden void record(struct control *c, u64 t, u32 type, const u64 *payload, u32 n)
{
	if (!events())
		return;
	room_at(c, t, 1 + n);
	write_record(c, t, type, payload, n);
}

/* read_name tells the trace from when on the thread has another name. */
hidden void read_name(struct control *c)
{
	u64 comm[2] = { c->comm[0], c->comm[1] };
	sys(SYS_prctl, PR_GET_NAME_, c->comm, 0, 0, 0, 0);
	if (comm[0] == c->comm[0] && comm[1] == c->comm[1])
		return;
	forget_ahead(c);
	record(c, counter(), FT_REC_COMM, c->comm, 2);
}

/* record1 writes a record with one word of payload. */
hidden void record1(struct control *c, u64 t, u32 type, u64 word) { record(c, t, type, &word, 1); }

/* begin_syscall begins the record of a system call's beginning or end at counter t, with n words
   of payload, for which there is room, and some behind them. 0: it is lost. */
hidden u64 *begin_syscall(struct control *c, u64 t, int exit, u32 n, u32 behind)
{
	room_at(c, t, 1 + n + behind);
	u64 *w = c->next + 8 * (n + behind) > c->limit ? 0 : begin_record(c, t, FT_REC_SYS, n);
	if (!w)
		lose(c, 1);
	else if (exit)
		w[-1] |= (u64)FT_ID_EXIT << 32;
	return w;
}

/* write_mark writes a mark with n bytes of text, as many as fit into a record. The memory
   behind them is zero. */
hidden void write_mark(struct control *c, u64 value, const char *text, u32 n)
{
	u32 words = 1 + (n + 7) / 8;
	u64 t = counter();
	room_at(c, t, 1 + words);
	u64 *w = c->next + 8 * words > c->limit ? 0 : begin_record(c, t, FT_REC_MARK, words);
	if (!w) {
		lose(c, 1);
		return;
	}
	w[0] = value;
	memcpy(w + 1, text, n);
	end_record(w);
}
