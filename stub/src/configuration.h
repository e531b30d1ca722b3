/* What the runtime was told by whoever put it into the program: config.S. */
#ifndef FENTRY_CONFIGURATION_H
#define FENTRY_CONFIGURATION_H
#include "config.h"

extern hidden const struct config fentry_config;

#endif
