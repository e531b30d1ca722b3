/* Messages to people. */
#ifndef FENTRY_SAY_H
#define FENTRY_SAY_H
#include "types.h"

hidden void say(const char *a, const char *b, const char *c, i64 err);

#endif
