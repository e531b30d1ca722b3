/* Chunks that a thread has taken before it needs them. */
#ifndef FENTRY_AHEAD_H
#define FENTRY_AHEAD_H
#include "control.h"

/* Where the next chunk is prepared, and lies behind the one that fast paths write to, end has in its low bits how many there
   are. Slots begin at multiples of 8, so fast paths go on up to AHEAD_ROOM bytes before the chunk's end: what they leave is
   room for a record without content. */
enum { AHEAD_LEFT = 7, AHEAD_ROOM = 32 };

/* ahead_end is what end is in the chunk at base, with so many prepared behind it. */
static inline u64 ahead_end(u64 base, u64 size, u64 left) { return base + size - AHEAD_ROOM - 8 + left; }

/* LATE is how far numbers may stay behind the counter, in ticks, as those of prepared chunks follow each other, and later how
   much further: 0 but in tests, which go on where all is so slow that numbers are always late. */
enum { LATE = 1 << 18 };
extern hidden i32 later;

hidden int go_ahead(struct control *c);

#endif
