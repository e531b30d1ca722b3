/* Unwind information, which walk.c walks stacks by. */
#include "cfi-read.h"
