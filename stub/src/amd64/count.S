/* The tracer of counts. Its fast path is in each thunk (arch/amd64), which adds to an entry of
   the thread's table and goes on: a call of ours, and what it would save, take longer than
   that. Here is what thunks come to that have not found the thread's table, or do not know
   where it is: those of all images but the first (profile.c). Their switches say SLOW, so it
   is to be looked whether the function is on. The calls of a function are its entries, so
   nothing is done to return addresses, and whatever becomes of the call, it has been counted. */
#include "macros.h"

	.text
	.globl	fentry_mcount_count_enter
	.hidden	fentry_mcount_count_enter
	.type	fentry_mcount_count_enter, @function
	.set	fentry_mcount_count_enter, fentry_count_enter

	/* Count the call in the thread's table of this image, or to slow. */
	.macro COUNT_CALL slow, pre, x=0
	TABLES	%rdx, %edx, \pre
	mov	\pre\()T_ENTRIES(%rdx), %rdx
	test	%rdx, %rdx
	jz	\slow
	LOCAL_ID 24+\x(%rsp), %rcx, %ecx
	incq	(%rdx, %rcx, 8)
	LEAVE_ENTER on, \x
	.endm

	BEGIN_ENTER fentry_count_enter, on
	mov	fentry_self(%rip), %rdx
	LOCAL_ID 24(%rsp), %rcx, %ecx
	mov	I_SWITCHES(%rdx), %rdx
	testb	$SWITCH_ON, -1(%rdx, %rcx)
	jz	6f
	CHECK_OWNER 8f, 9f
	COUNT_CALL 8f, %gs:
6:	LEAVE_ENTER on
8:	SLOW_ENTER on, 6b
9:	FIND_BLOCK 7f
	COUNT_CALL 7f, , 8
7:	SLOW_ENTER on, 6b, 8
	END fentry_count_enter

	.section .note.GNU-stack, "", @progbits
