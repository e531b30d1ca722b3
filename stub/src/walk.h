/* Walking a stack by unwind tables. */
#ifndef FENTRY_WALK_H
#define FENTRY_WALK_H
#include "caller.h"
#include "cfi.h"
#include "control.h"
#include "image.h"

/* A program or library in memory, as the dynamic loader has put it there. */
struct loaded {
	u64 lo, hi, bias;
	const u8 *header;    /* search table; 0: it has none */
	u64 check[2];        /* its first words */
	u32 nowhere;         /* the path is none: it is memory, or has been deleted */
	u32 idlen;           /* of the build-id */
	u8 id[32];
	char path[512];      /* "" if it is longer */
};

/* Mappings that are stacks, as far as they have been met. */
struct ranges { struct { u64 lo, hi; } range[4]; u32 next; };

hidden void walk_leave(void);
hidden u32 walk(struct ranges *known, struct registers r, u64 *pcs, u32 most, u32 *end);
hidden struct image *find_added(u64 pc, struct fde *f);
hidden int code_around(u64 pc, u64 *lo, u64 *hi);
hidden int walk_up(struct ranges *known, struct registers *r);
hidden const struct loaded *loaded_at(u64 pc, u32 *index);
hidden const struct loaded *mapped_at(u64 pc, u32 *index);

/* search_table is the table of a header whose form search knows: pairs of an address and that of its entry, as distances from
   the header. */
static inline const i32 *search_table(const u8 *header) { return (const i32 *)(header + 12); }

/* Bit of an address that is the id of a function whose first instructions have been moved to where the frame is. */
#define MOVED_CODE (1UL << 63)

/* lookup is an address in the instruction that a frame is at, as walk has it. */
static inline u64 lookup(u64 pc) { return pc & FT_EXACT_PC ? pc & ~FT_EXACT_PC : pc - 1; }

#endif
