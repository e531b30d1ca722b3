/* The function_graph tracer's fast paths with a limit of depth, a threshold, graph
   roots, or functions that are left out with all inside them.

   A frame's shadow has its function's id, whether its entry is in the trace, and
   its depth; and, with a threshold, the time of its entry. An entry that the
   threshold holds back is written when the call, or one inside it, has lasted that
   long: in C, as is everything else that is rare.

   Functions that are left out have routines of their own, so nobody pays for asking
   whether a function is one. Their frames are deeper than any limit (frame.c). */
#include "macros.h"

	.macro OPT_ENTER where, again, pre, suf, x=0
0:	LOAD_RET \where, %rax, \x
	CHECK_TAIL 4f
2:	CHECK_STACK \where, 7f, \pre, \suf, \x
	/* depth of the new frame, to eax */
	mov	$1, %eax
	test	$7, %cl
	jnz	5f			/* nothing is open, or a frame with a tag */
	btc	$SHADOW_AUX, %rcx
	mov	4(%rcx), %eax
	btc	$SHADOW_AUX, %rcx
	inc	%eax
	cmp	fentry_depth(%rip), %eax
	ja	6f
3:	shl	$32, %rax
	ID_WORD enter, 24+\x(%rsp), %rdx
	shr	$32, %rdx
	or	%rdx, %rax
	LEA_SLOT \where, %rdx, \x
	btc	$SHADOW_AUX, %rdx
	mov	%rax, (%rdx)
	btc	$SHADOW_AUX, %rdx
	btc	$SHADOW_RET, %rdx
	LOAD_RET \where, %rax, \x
	mov	%rax, (%rdx)
	btc	$SHADOW_PREV, %rdx
	mov	%rcx, (%rdx)
	btc	$SHADOW_RET, %rdx
	mov	%rdx, %rcx		/* the time's word */
	LEA_SLOT \where, %rax, \x
	mov	%rax, \pre\()CB_TOP\suf
	cmpq	$0, fentry_threshold(%rip)
	je	31f
	rdtsc
	shl	$32, %rdx
	or	%rdx, %rax
	mov	%rax, (%rcx)
	LEAVE_ENTER \where, \x
31:	RESERVE 8, 8f, \pre, \suf
	WRITE enter, 24+\x(%rsp), (%rax)
	LEA_SLOT \where, %rdx, \x
	btc	$SHADOW_AUX, %rdx
	orl	$FT_ID_EXIT, (%rdx)	/* its entry is in the trace */
	LEAVE_ENTER \where, \x

	/* A tail call. One that is held back and short leaves nothing. */
4:	IS_TAIL 2b
	LEA_SLOT \where, %rdx, \x
	cmp	%rdx, \pre\()CB_TOP\suf
	jne	7f
	btc	$SHADOW_AUX, %rdx
	testl	$FT_ID_EXIT, (%rdx)
	jz	41f
	cmpq	$0, fentry_threshold(%rip)
	jne	7f
	RESERVE 16, 42f, \pre, \suf
	LOAD_RET \where, %rcx, \x
	WRITE_LEFT (%rax)
	WRITE enter, 24+\x(%rsp), 8(%rax)
	ID_WORD enter, 24+\x(%rsp), %rax
	shr	$32, %rax
	or	$FT_ID_EXIT, %eax
	jmp	43f
41:	btc	$SHADOW_AUX, %rdx
	btc	$SHADOW_PREV, %rdx
	mov	%rdx, %rcx		/* the time's word */
	cmpq	$0, fentry_threshold(%rip)
	je	44f
	rdtsc
	shl	$32, %rdx
	or	%rdx, %rax
	mov	%rax, %rdx
	sub	(%rcx), %rdx
	cmp	fentry_threshold(%rip), %rdx
	jae	7f
	mov	%rax, (%rcx)
	ID_WORD enter, 24+\x(%rsp), %rax
	shr	$32, %rax
43:	LEA_SLOT \where, %rdx, \x
	btc	$SHADOW_AUX, %rdx
	mov	%eax, (%rdx)		/* the depth stays */
	LEAVE_ENTER \where, \x
42:	SLOW_RECORD \where, 0b, \x
	/* The function was left out, and so is what it jumps to. */
44:	LEA_SLOT \where, %rdx, \x
	btc	$SHADOW_AUX, %rdx
	cmpl	$0, 4(%rdx)
	jns	7f
	LEAVE_ENTER \where, \x

	/* At the bottom of a stack only graph roots are recorded, if there are any. */
5:	mov	%ecx, %edx
	and	$7, %edx
	cmp	$TOP_EMPTY, %edx
	jne	7f
	mov	fentry_roots(%rip), %rdx
	test	%rdx, %rdx
	jz	3b
	.cfi_remember_state
	pushr	%rcx
	LOCAL_ID 24+8+\x(%rsp), %rcx, %ecx
	bt	%rcx, (%rdx)
	popr	%rcx
	.cfi_restore_state
	jc	3b
6:	SKIP_ENTER \where, \x
8:	SLOW_RECORD \where, 31b, \x
7:	SLOW_ENTER \where, \again, \x
	.endm

	.macro OPT_ENTRY name, where
	BEGIN_ENTER \name, \where
1:	CHECK_OWNER 80f, 9f
	OPT_ENTER \where, 1b, %gs:
80:	SLOW_ENTER \where, 1b
9:	FIND_BLOCK 7f
	OPT_ENTER \where, 1b, , (%r11), 8
	END \name
	.endm

	.macro OPT_EXIT pre, suf, x=0
	lea	32+\x(%rsp), %rcx
	cmp	%rcx, \pre\()CB_TOP\suf
	jne	6f
	btc	$SHADOW_AUX, %rcx
	testl	$FT_ID_EXIT, (%rcx)
	jz	4f
3:	RESERVE 8, 5f, \pre, \suf
	WRITE exit, 24+\x(%rsp), (%rax)
2:	UNLINK \pre, \suf, \x
	LEAVE_EXIT \x
	/* held back */
4:	btc	$SHADOW_AUX, %rcx
	btc	$SHADOW_PREV, %rcx
	rdtsc
	shl	$32, %rdx
	or	%rdx, %rax
	sub	(%rcx), %rax
	cmp	fentry_threshold(%rip), %rax
	jb	2b
	btc	$SHADOW_PREV, %rcx
	btc	$SHADOW_AUX, %rcx
	cmpl	$0, 4(%rcx)
	js	2b			/* hidden */
	jmp	6f
5:	SLOW_RECORD_EXIT 3b, \x
6:	SLOW_EXIT \x
	.endm

	.macro HIDE_ENTER where, again, pre, suf, x=0
	LOAD_RET \where, %rax, \x
	CHECK_TAIL 4f
2:	CHECK_STACK \where, 7f, \pre, \suf, \x
	test	$7, %cl
	jnz	5f
	btc	$SHADOW_AUX, %rcx
	mov	4(%rcx), %edx
	btc	$SHADOW_AUX, %rcx
	cmp	fentry_depth(%rip), %edx
	jae	6f			/* what is inside is too deep anyway */
3:	LEA_SLOT \where, %rdx, \x
	btc	$SHADOW_AUX, %rdx
	movl	$0, (%rdx)
	movl	$DEPTH_HIDDEN, 4(%rdx)
	btc	$SHADOW_AUX, %rdx
	btc	$SHADOW_RET, %rdx
	mov	%rax, (%rdx)
	btc	$SHADOW_PREV, %rdx
	mov	%rcx, (%rdx)
	LEA_SLOT \where, %rax, \x
	mov	%rax, \pre\()CB_TOP\suf
	LEAVE_ENTER \where, \x
4:	IS_TAIL 2b
	jmp	7f
5:	mov	%ecx, %edx
	and	$7, %edx
	cmp	$TOP_EMPTY, %edx
	je	3b
	jmp	7f
6:	SKIP_ENTER \where, \x
7:	SLOW_ENTER \where, \again, \x
	.endm

	.macro HIDE_ENTRY name, where
	BEGIN_ENTER \name, \where
1:	CHECK_OWNER 80f, 9f
	HIDE_ENTER \where, 1b, %gs:
80:	SLOW_ENTER \where, 1b
9:	FIND_BLOCK 7f
	HIDE_ENTER \where, 1b, , (%r11), 8
	END \name
	.endm

	.macro HIDE_EXIT pre, suf, x=0
	lea	32+\x(%rsp), %rcx
	cmp	%rcx, \pre\()CB_TOP\suf
	jne	6f
	UNLINK \pre, \suf, \x
	LEAVE_EXIT \x
6:	SLOW_EXIT \x
	.endm

	.text
	OPT_ENTRY fentry_opt_enter, sp
	OPT_ENTRY fentry_mcount_opt_enter, fp

	BEGIN_EXIT fentry_opt_exit
	CHECK_OWNER 8f, 9f
	OPT_EXIT %gs:
8:	SLOW_EXIT
9:	FIND_BLOCK 6f
	OPT_EXIT , (%r11), 8
	END fentry_opt_exit

	HIDE_ENTRY fentry_hide_enter, sp
	HIDE_ENTRY fentry_mcount_hide_enter, fp

	BEGIN_EXIT fentry_hide_exit
	CHECK_OWNER 8f, 9f
	HIDE_EXIT %gs:
8:	SLOW_EXIT
9:	FIND_BLOCK 6f
	HIDE_EXIT , (%r11), 8
	END fentry_hide_exit

	.section .note.GNU-stack, "", @progbits
