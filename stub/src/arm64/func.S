/* The function tracer's fast path: entries only. Sites before and behind the
   prologue are the same to it, and x16 is left alone. */
#include "macros.h"

	.text
	/* This file is the first of the runtime's code, which so begins with a page of 4
	   KiB: what is in the last 8 bytes of one is then known, and can be tested. An adrp
	   there is read wrongly by early Cortex-A53 when certain loads follow (erratum
	   843419), and nothing but the test looks after that in code that is injected. */
	.p2align 12
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
