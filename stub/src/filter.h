/* System calls that the program has forbidden itself (filter.c). */
#ifndef FENTRY_FILTER_H
#define FENTRY_FILTER_H
#include "types.h"

/* not 0: there are some, for some threads, or for all at once. They are avoided by all of the process. */
extern hidden u32 fentry_forbids;
enum { FORBIDS_SOME = 1, FORBIDS_ALL = 2 };

/* syscall6 makes a system call, but for those that are forbidden. */
hidden i64 syscall6(i64 nr, i64 a, i64 b, i64 c, i64 d, i64 e, i64 f);

/* What a system call has to do with filters. */
enum { NO_FILTER, FILTER, STRICT };

hidden int filter_comes(u64 nr, const u64 *a);

#endif
