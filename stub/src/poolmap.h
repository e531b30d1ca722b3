/* A recorder's pool as this process maps it: two areas of chunks behind one header. */
#ifndef FENTRY_POOLMAP_H
#define FENTRY_POOLMAP_H
#include "types.h"

/* Numbers of chunks: those of full size come first, then the small ones. */
struct pool {
	u32 full, small;  /* how many of each */
	u32 small_size;   /* bytes */
	u64 *free_small;  /* a bit each, set: free, as far as is known */
};
extern hidden struct pool pool;

hidden u32 *chunk_state(u32 i);
hidden u32 pool_chunk_size(u32 i);
hidden u64 pool_address(u32 i, int may_map);
hidden int pool_reachable(u32 i);
hidden void pool_populate(u32 i, u64 base);
hidden u64 pool_shed(u64 most);
hidden void pool_leave(void);

#endif
