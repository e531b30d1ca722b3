/* Chunks of a recorder's pool. */
#ifndef FENTRY_POOL_H
#define FENTRY_POOL_H
#include "control.h"

hidden int pool_open(i64 fd, const u8 *head);
hidden int pool_chunk(struct control *c, struct chunk *out, u32 least);
hidden u64 pool_ahead(const struct chunk *k, u32 n);
hidden int recorder_is_dead(void);
hidden int pool_keeps(const struct chunk *k);
hidden void pool_wake(void);
hidden void pool_full(struct control *c, struct chunk *k);

#endif
