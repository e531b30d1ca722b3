/* What a recorder changes while the process runs. */
#ifndef FENTRY_CHANGE_H
#define FENTRY_CHANGE_H
#include "config.h"

hidden u64 fentry_change(const struct change *to);
hidden void fentry_remote(void); /* attach.S */

#endif
