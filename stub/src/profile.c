/* The profile tracer's part in C. */
#include "runtime.h"

/* profile_skipped forgets the calls whose slots are in [from, to): they were left by a jump. */
hidden void profile_skipped(struct control *c, u64 from, u64 to)
{
	if (!c->active)
		return;
	for (u32 i = 0; i <= fentry_config.sites; i++)
		if (c->active[i] - from < to - from)
			c->active[i] = 0;
}
