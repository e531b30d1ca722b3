/* Recorders that are found in a trace directory. */
#ifndef FENTRY_RECORDER_H
#define FENTRY_RECORDER_H
#include "types.h"

hidden int recorder_join(i64 dir);

#endif
