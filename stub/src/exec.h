/* Programs that this one executes: where the machine can follow them. */
#ifndef FENTRY_EXEC_H
#define FENTRY_EXEC_H
#include "types.h"

hidden void follow_programs(u64 *sp, int again);

#endif
