/* System calls of the program. */
#ifndef FENTRY_SYSCALL_H
#define FENTRY_SYSCALL_H
#include "types.h"
#include "layout.h"

struct sysregs;

/* What is to be done with a system call, in up to four parts. The tables are generated (calls.h). */
enum form { NOTHING, SPECIAL, STRING, BYTES, VECTORS, POINTERS };
enum count { ONE, ARGUMENT, BEHIND, RESULT };
struct plan {
	struct part {
		u8 form;
		u8 arg;         /* which argument points to it */
		u8 count, by;   /* how many there are: one, or what argument by says, or points to, or the result */
		u8 exit;        /* when the call has ended */
		unsigned short size;  /* bytes of one */
		unsigned short limit; /* bytes of all, at most */
		u8 when, values, n;   /* n of case_values from values on: argument when has to be one of them, under the first */
	} part[4];
};

/* Which plan a system call has, by its number. The fast path records those that have none. */
extern hidden const u8 fentry_syscalls[SYSCALL_NUMBERS];

struct control;

hidden struct control *acting_block(struct control *c);
hidden void syscall_event(struct control *c, const struct sysregs *r, u64 sp, int exit, u64 t);
hidden void fentry_slow_syscall(struct sysregs *r, int exit);

#endif
