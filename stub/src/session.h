/* The search for where the trace goes. */
#ifndef FENTRY_SESSION_H
#define FENTRY_SESSION_H
#include "types.h"

hidden int open_source(char **env);

#endif
