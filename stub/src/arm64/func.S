/* The function tracer's fast path: entries only. Sites before and behind the
   prologue are the same to it, and x16 is left alone. */
#include "macros.h"

	.text
	.globl	fentry_mcount_func_enter
	.hidden	fentry_mcount_func_enter
	.type	fentry_mcount_func_enter, %function
	.set	fentry_mcount_func_enter, fentry_func_enter

	BEGIN_ENTER fentry_func_enter, sp
	GET_BLOCK x0, 9f
2:	RESERVE 8, 5f, 8f
	str	x3, [x1]
	LEAVE_ENTER sp
8:	RETRY 2b
9:	FIND_BLOCK_X0 2b
5:	SLOW_RECORD sp, 2b
	END fentry_func_enter

	.section .note.GNU-stack, "", %progbits
