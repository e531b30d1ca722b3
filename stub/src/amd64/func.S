/* The function tracer's fast path: entries only. Sites before and behind the
   prologue are the same to it. */
#include "macros.h"

	.text
	.globl	fentry_mcount_func_enter
	.hidden	fentry_mcount_func_enter
	.type	fentry_mcount_func_enter, @function
	.set	fentry_mcount_func_enter, fentry_func_enter

	/* LEAVE_ENTER's form for "sp" is right for both: the body is not called from here. */
	BEGIN_ENTER fentry_func_enter
1:	CHECK_OWNER 5f, 9f
	RESERVE 8, 5f, %gs:
	WRITE 32(%rsp), (%rax)
	LEAVE_ENTER sp
5:	SLOW_RECORD sp, 1b
9:	FIND_BLOCK 6f
	RESERVE 8, 6f, , (%r11)
	WRITE 32+8(%rsp), (%rax)
	LEAVE_ENTER sp, 8
6:	popr	%r11
	SLOW_RECORD sp, 1b
	END fentry_func_enter

	/* The same for thunks of the function_graph tracer, while a recorder wants no more: the body runs as if the function was
	   not traced. Readers of these know no entry without an exit, so the call ends where it begins. */
	.macro FLAT_RECORD again
	SLOW	40
	call	*fentry_home_record(%rip)
	ENDSLOW	40
	GOT_BLOCK \again, 0
	SKIP_ENTER
	.endm

	BEGIN_ENTER fentry_flat_enter
1:	CHECK_OWNER 5f, 9f
	RESERVE 16, 5f, %gs:
	WRITE	32(%rsp), (%rax)
	orl	$FT_ID_EXIT, 32(%rsp)
	WRITE	32(%rsp), 8(%rax)
	SKIP_ENTER
5:	FLAT_RECORD 1b
9:	FIND_BLOCK 6f
	RESERVE 16, 6f, , (%r11)
	WRITE	32+8(%rsp), (%rax)
	orl	$FT_ID_EXIT, 32+8(%rsp)
	WRITE	32+8(%rsp), 8(%rax)
	SKIP_ENTER 8
6:	popr	%r11
	FLAT_RECORD 1b
	END fentry_flat_enter

	.section .note.GNU-stack, "", @progbits
