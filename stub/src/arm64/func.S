/* The function tracer's fast path: entries only, and x16 is left alone. Thunks of sites before the
   prologue go on to the body at once, and those behind it are left by the routine itself. */
#include "macros.h"

	.text
	/* This file is the first of the runtime's code, which so begins with a page of 4
	   KiB: what is in the last 8 bytes of one is then known, and can be tested. An adrp
	   there is read wrongly by early Cortex-A53 when certain loads follow (erratum
	   843419), and nothing but the test looks after that in code that is injected. */
	.p2align 12
	.macro FUNC_ENTRY name, body
	BEGIN_ENTER \name, sp
	GET_BLOCK x0, 9f
2:	RESERVE 8, 5f, 8f, CB_HIGH, ID_BASE
	str	x3, [x1]
	LEAVE_ENTER sp, \body
8:	RETRY 2b, ID_BASE
9:	FIND_BLOCK_X0 2b
5:	SLOW_RECORD sp, 2b, local, \body
	END \name
	.endm

	FUNC_ENTRY fentry_func_enter, body
	FUNC_ENTRY fentry_mcount_func_enter

	.section .note.GNU-stack, "", %progbits
