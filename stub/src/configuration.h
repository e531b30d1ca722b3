/* What the runtime was told by whoever put it into the program: config.S. */
#ifndef FENTRY_CONFIGURATION_H
#define FENTRY_CONFIGURATION_H
#include "config.h"

extern hidden const struct config fentry_config;

/* tables says whether threads have a table of counts, and write no events. */
static inline int tables(void) { return fentry_config.mode == MODE_PROFILE || fentry_config.mode == MODE_COUNT; }

/* clockless says whether events have sequence numbers in place of times. */
static inline int clockless(void) { return (fentry_config.flags & FLAG_NO_CLOCK) != 0; }

#endif
