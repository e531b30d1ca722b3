/* System calls of the program. */
#ifndef FENTRY_SYSCALL_H
#define FENTRY_SYSCALL_H
#include "types.h"
#include "layout.h"

struct sysregs;

/* What is to be done with a system call, by its number. The fast path records those for which there
   is nothing. */
enum {
	CALL_FORKS = 1,    /* it can make a child that runs in this thread's place, or take the control base */
};
extern hidden const u8 fentry_syscalls[SYSCALLS];

hidden void fentry_slow_syscall(struct sysregs *r, int exit);

#endif
