/* System calls without a clock: sequence numbers in place of times (chunk.c). */
#define NO_CLOCK
#define fentry_syscall_enter fentry_order_syscall_enter
#define fentry_some_syscall_enter fentry_order_some_syscall_enter
#define fentry_syscall_exit fentry_order_syscall_exit
#include "syscall.S"
#ifdef FENTRY_SHARED
	/* Moves an adrp of the compiled code, which comes next, from the end of a page: func.S says why. */
	.text
	.rept	4
	nop
	.endr
#endif
