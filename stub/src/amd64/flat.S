/* The function tracer's fast path for thunks of function_graph, while a recorder wants no more, or
   no more yet: the body runs as if the function was not traced. Readers of these know no entry
   without an exit, so the call ends where it begins. */
#include "macros.h"

	.macro FLAT_RECORD where, again
	ENTER_OFF \where
	SLOW	enter_off
	call	*fentry_home_record(%rip)
	ENDSLOW	enter_off
	GOT_BLOCK \again, 0
	SKIP_ENTER \where
	.endm

	.macro WRITE_FLAT back
	WRITE	enter, \back, (%rax)
	ID_WORD	enter, \back, %rcx
	bts	$63, %rcx
	or	%rdx, %rcx
	mov	%rcx, 8(%rax)
	.endm

	.macro FLAT_ENTRY name, where
	BEGIN_ENTER \name, \where
1:	CHECK_OWNER 5f, 9f
	RESERVE 16, 5f, %gs:
	WRITE_FLAT 24(%rsp)
	SKIP_ENTER \where
5:	FLAT_RECORD \where, 1b
9:	FIND_BLOCK 6f
	RESERVE 16, 6f, , (%r11)
	WRITE_FLAT 24+8(%rsp)
	SKIP_ENTER \where, 8
6:	popr	%r11
	FLAT_RECORD \where, 1b
	END \name
	.endm

	.text
	FLAT_ENTRY fentry_flat_enter, sp
	FLAT_ENTRY fentry_mcount_flat_enter, fp

	.section .note.GNU-stack, "", @progbits
