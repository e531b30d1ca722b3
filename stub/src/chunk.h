/* Events that slow paths write, and the chunks that all events go to. */
#ifndef FENTRY_CHUNK_H
#define FENTRY_CHUNK_H
#include "configuration.h"
#include "control.h"
#include "format.h"
#include "machine.h"

/* Where events go that nobody will read, when a thread has no chunk. Shared by all threads. */
enum { SCRAP = 64 }; /* words */
extern hidden u64 scrap[SCRAP];

hidden int take_chunk(struct control *c, struct chunk *k, u32 least);
hidden void hand_over(struct control *c, struct chunk *k);
hidden void chunk_header(struct control *c, u64 base, u32 kind, u64 image, u32 number);
hidden void give_up_chunks(struct control *c);
hidden void end_chunks(struct control *c);
hidden void forget_ahead(struct control *c);
hidden void catch_up(struct control *c);
hidden void lose(struct control *c, u64 n);
hidden void room(struct control *c, u32 words);
hidden void put(struct control *c, u64 t, u32 id);
hidden void record(struct control *c, u64 t, u32 type, const u64 *payload, u32 n);
hidden void record1(struct control *c, u64 t, u32 type, u64 word);
hidden u64 *begin_record(struct control *c, u64 t, u32 type, u32 n);
hidden void cut_record(struct control *c, u64 *payload, u32 n);
hidden u64 *begin_syscall(struct control *c, u64 t, int exit, u32 n, u32 behind);
hidden void read_name(struct control *c);
hidden void room_ends(struct control *c);
hidden void set_pace(struct control *c, u32 events);
hidden void write_mark(struct control *c, u64 value, const char *text, u32 n);

/* holds says whether a slot that was reserved is still this thread's to write to: a handler that came meanwhile can have
   filled so many chunks that its own is somebody else's by now, or be in a forked child. */
static inline int holds(const struct control *c, const u64 *w)
{
	u64 at = (u64)w;
	return c->owner && (at - c->chunk.base < c->chunk.size + c->ahead || at - c->old[0].base < c->old[0].size ||
			    at - c->old[1].base < c->old[1].size);
}

/* reserve reserves n words for events of now as fast paths do, and finds the low half of the time. 0: there is no room, or the high
   half is another one. */
static inline u64 *reserve(struct control *c, u32 n, u32 *t)
{
	for (;;) {
		u64 next = load(&c->next), now = counter();
		if (!c->chunk.base || next + 8 * (n + 2UL) > c->end + 8)
			return 0;
		if (!clockless() && (u32)(now >> 32) != c->high)
			return 0;
		*t = clockless() ? (u32)next + c->order : (u32)now;
		if (own_cas(&c->next, next, next + 8UL * n))
			return (u64 *)next;
	}
}

/* open_record writes the header of a record with n words of payload to slots that are reserved for it, and returns where
   the payload goes. The record is open until end_record or shorten_record. */
static inline u64 *open_record(u64 *w, u32 t, u32 type, u32 n)
{
	store(w, (u64)(FT_RECORD_BASE | FT_RECORD_OPEN | type << FT_RECORD_TYPE_SHIFT | n) << 32 | t);
	fence();
	return w + 1;
}

static inline void end_record(u64 *payload) { store(payload - 1, payload[-1] & ~((u64)FT_RECORD_OPEN << 32)); }

/* shorten_record ends a record of which only n words are used. */
static inline void shorten_record(u64 *payload, u32 n)
{
	store(payload - 1, (payload[-1] & ~((u64)(FT_RECORD_OPEN | FT_RECORD_WORDS) << 32)) | (u64)n << 32);
}

/* MARK_TEXT is how many bytes of text a mark has room for. */
enum { MARK_TEXT = 8 * (FT_RECORD_WORDS - 1) };

#endif
