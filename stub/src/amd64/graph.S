/* The function_graph tracer's fast paths: sites before the prologue, whose thunk
   comes here with the caller's return address on the stack, and sites behind it,
   where that is at 8(%rbp).

   All is there twice, as macros with a prefix and a suffix for words of the block: through
   gs, and through r11 in programs that use gs themselves. A test at every word, or a block
   address that is always loaded, would be paid for by the many for the few. */
#include "macros.h"

	.macro GRAPH_ENTER where, again, pre, suf, x=0
0:	LOAD_RET \where, %rax, \x
	CHECK_TAIL 4f
2:	CHECK_STACK \where, 7f, \pre, \suf, \x
	btc	$SHADOW_RET, %rdx
	mov	%rax, (%rdx)
	btc	$SHADOW_PREV, %rdx
	LEA_SLOT \where, %rax, \x
	mov	%rcx, (%rdx)
	mov	%rax, \pre\()CB_TOP\suf
3:	RESERVE_CALL 8, 5f, \pre, \suf, 51f
31:	WRITE enter, 24+\x(%rsp), (%rax)
	LEAVE_ENTER \where, \x
	/* A tail call: S is a live frame's slot, and the function whose body came here
	   by a jump has ended. Its shadow stays, so a loop of tail calls takes no space. */
4:	IS_TAIL 2b
	LEA_SLOT \where, %rdx, \x
	cmp	%rdx, \pre\()CB_TOP\suf
	jne	7f
	RESERVE_CALL 16, 6f, \pre, \suf, 61f
41:	LOAD_RET \where, %rcx, \x
	WRITE_LEFT (%rax)
	WRITE enter, 24+\x(%rsp), 8(%rax)
	LEAVE_ENTER \where, \x
5:	SLOW_RECORD \where, 3b, \x
6:	SLOW_RECORD \where, 0b, \x
7:	SLOW_ENTER \where, \again, \x
	ENTER_OFF \where
51:	SETTLE 8, enter_off+\x, 3b, 31b
61:	SETTLE 16, enter_off+\x, 0b, 41b
	.endm

	.macro GRAPH_ENTRY name, where
	BEGIN_ENTER \name, \where
1:	CHECK_OWNER 8f, 9f
	GRAPH_ENTER \where, 1b, %gs:
8:	SLOW_ENTER \where, 1b
9:	FIND_BLOCK 7f
	GRAPH_ENTER \where, 1b, , (%r11), 8
	END \name
	.endm

	.macro GRAPH_EXIT pre, suf, x=0
	lea	32+\x(%rsp), %rcx
	cmp	%rcx, \pre\()CB_TOP\suf
	jne	6f
3:	RESERVE_CALL 8, 5f, \pre, \suf, 51f
31:	WRITE exit, 24+\x(%rsp), (%rax)
	UNLINK \pre, \suf, \x
	LEAVE_EXIT \x
5:	SLOW_RECORD_EXIT 3b, \x
6:	SLOW_EXIT \x
51:	SETTLE 8, 40+\x, 3b, 31b
	.endm

	.text
	GRAPH_ENTRY fentry_graph_enter, sp
	GRAPH_ENTRY fentry_mcount_graph_enter, fp

	BEGIN_EXIT fentry_graph_exit
	CHECK_OWNER 8f, 9f
	GRAPH_EXIT %gs:
8:	SLOW_EXIT
9:	FIND_BLOCK 6f
	GRAPH_EXIT , (%r11), 8
	END fentry_graph_exit

	.section .note.GNU-stack, "", @progbits
