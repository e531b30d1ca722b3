/* The function tracer's fast path: entries only. Sites before and behind the
   prologue are the same to it. */
#include "macros.h"

	.text
	.globl	fentry_mcount_func_enter
	.hidden	fentry_mcount_func_enter
	.type	fentry_mcount_func_enter, @function
	.set	fentry_mcount_func_enter, fentry_func_enter

	BEGIN_ENTER fentry_func_enter, on
1:	CHECK_OWNER 5f, 9f
	RESERVE 8, 5f, %gs:
	WRITE enter, 24(%rsp), (%rax)
	LEAVE_ENTER on
5:	SLOW_RECORD on, 1b
9:	FIND_BLOCK 6f
	RESERVE 8, 6f, , (%r11)
	WRITE enter, 24+8(%rsp), (%rax)
	LEAVE_ENTER on, 8
6:	popr	%r11
	SLOW_RECORD on, 1b
	END fentry_func_enter

	.section .note.GNU-stack, "", @progbits
