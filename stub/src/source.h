/* Where chunks come from, and the end of tracing. */
#ifndef FENTRY_SOURCE_H
#define FENTRY_SOURCE_H
#include "types.h"
#include "format.h"

enum { CLOSED, FILE, POOL };
struct source {
	u32 kind;
	u32 chunk_size;
	u8 *header; /* of the file or the pool, mapped */
	u32 header_size;
};
extern hidden struct source source;

#define HEADER(t, off) ((t *)(source.header + (off)))

hidden int header_ok(const u8 *head);
hidden i64 allocate_ids(u64 image, u32 count);
hidden void stop_tracing(const char *why, i64 err);
hidden void only_count(i64 err);
hidden void uncounted(i32 n);
hidden int watch_filters(u64 nr, const u64 *a);
hidden u64 counter_hz(void);

#endif
