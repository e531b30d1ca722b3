/* The module of a Go program's moved code. */
#ifndef FENTRY_GOMODULE_H
#define FENTRY_GOMODULE_H
#include "types.h"

hidden void link_module(void);
hidden void restore_code(void);

#endif
