/* What a recorder has a process do that it has attached to. */
#ifndef FENTRY_ATTACH_H
#define FENTRY_ATTACH_H
#include "types.h"

/* An area of a process: from its first byte to the one behind its last. */
struct area { u64 from, to; };

hidden u64 fentry_attach(u64 *sp);
hidden u64 fentry_areas(struct area *to, u64 room);
hidden u64 fentry_shed(u64 brought, u64 most);
hidden u64 fentry_leave(u64 brought);

#endif
