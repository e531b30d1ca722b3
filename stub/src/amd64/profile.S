/* The profile tracer's fast paths: counts and times a function, no events.

   The thread's table has an entry a function (format.h, FT_P_*). A frame's shadow
   has the time of its entry and, to be put back when it is left, the time spent so
   far in the callees of the frame it was called from. The array "active" has for
   every function the slot of its outermost open call, so that recursive calls
   count once in its total time. */
#include "macros.h"


	/* rdx:rax, the counter, to rax. */
	.macro COUNTER
	rdtsc
	shl	$32, %rdx
	or	%rdx, %rax
	.endm

	/* A call of function \id (in rdi) whose slot is in \slot begins. Changes rsi. */
	.macro BEGIN_CALL slot
	mov	%gs:CB_ACTIVE, %rsi
	cmpq	$0, (%rsi, %rdi, 8)
	jne	91f
	mov	\slot, (%rsi, %rdi, 8)
91:	shl	$5, %rdi		/* FT_PROFILE_ENTRY */
	add	%gs:CB_TABLE, %rdi
	incq	FT_P_CALLS(%rdi)
	.endm

	/* The call of function rdi whose slot is in rcx ends now, at rax. Leaves its
	   duration in rsi. Changes rdx, rdi; rax if \keep is not given. */
	.macro END_CALL
	mov	%rcx, %rdx
	btc	$SHADOW_PREV, %rdx
	mov	%rax, %rsi
	sub	(%rdx), %rsi
	mov	%gs:CB_ACTIVE, %rdx
	cmp	%rcx, (%rdx, %rdi, 8)
	jne	91f
	movq	$0, (%rdx, %rdi, 8)
	mov	%rsi, %rdx
	jmp	92f
91:	xor	%edx, %edx		/* inside another call of it */
92:	shl	$5, %rdi
	add	%gs:CB_TABLE, %rdi
	add	%rdx, FT_P_TOTAL(%rdi)
	mov	%rsi, %rdx
	sub	%gs:CB_CHILD, %rdx
	add	%rdx, FT_P_SELF(%rdi)
	cmp	FT_P_MAX(%rdi), %rsi
	jbe	93f
	mov	%rsi, FT_P_MAX(%rdi)
93:
	.endm

	.macro PROFILE_ENTER name, where
HIDDEN(\name)
\name:
	.cfi_startproc
	.cfi_def_cfa %rsp, 8
	.cfi_offset %rip, -8
	SAVE3			/* 24 thunk, 32 id, 40 S or the site */
1:	CHECK_OWNER 7f
	LOAD_RET \where, %rax
	lea	-THUNK_RET(%rax), %ecx
	test	$THUNK_SIZE - 1, %cl
	jz	4f
2:	mov	%gs:CB_TOP, %rcx
	LEA_SLOT \where, %rdx
	cmp	%rcx, %rdx
	jae	7f
	cmp	%gs:CB_LO, %rdx
	jb	7f
	.cfi_remember_state
	pushr	%rsi
	pushr	%rdi
	btc	$SHADOW_RET, %rdx
	mov	%rax, (%rdx)
	btc	$SHADOW_PREV, %rdx
	mov	%rcx, (%rdx)
	btc	$SHADOW_RET, %rdx
	btc	$SHADOW_PREV, %rdx
	mov	%gs:CB_CHILD, %rax
	btc	$SHADOW_AUX, %rdx
	mov	%rax, (%rdx)
	btc	$SHADOW_AUX, %rdx
	mov	%rdx, %gs:CB_TOP
	movq	$0, %gs:CB_CHILD
	mov	%rdx, %rcx
	mov	32+16(%rsp), %edi
	BEGIN_CALL %rcx
	btc	$SHADOW_PREV, %rcx
	COUNTER
	mov	%rax, (%rcx)
	popr	%rdi
	popr	%rsi
	LEAVE_ENTER \where
	.cfi_restore_state

	/* A tail call: one call ends and another begins at the same slot. */
4:	mov	%rax, %rcx
	sub	fentry_thunks(%rip), %rcx
	cmp	fentry_thunks_size(%rip), %rcx
	jae	2b
	LEA_SLOT \where, %rdx
	cmp	%gs:CB_TOP, %rdx
	jne	7f
	.cfi_remember_state
	pushr	%rsi
	pushr	%rdi
	mov	%rdx, %rcx
	mov	THUNK_RET_ID(%rax), %edi
	and	$0x7fffffff, %edi
	COUNTER
	END_CALL
	mov	%rcx, %rdx
	btc	$SHADOW_AUX, %rdx
	add	%rsi, (%rdx)
	movq	$0, %gs:CB_CHILD
	mov	32+16(%rsp), %edi
	BEGIN_CALL %rcx
	btc	$SHADOW_PREV, %rcx
	mov	%rax, (%rcx)
	popr	%rdi
	popr	%rsi
	LEAVE_ENTER \where
	.cfi_restore_state

7:	SLOW_ENTER \where
	jb	1b
	ja	8f
	SKIP_ENTER \where
8:	LEAVE_ENTER \where
	.cfi_endproc
	.size \name, . - \name
	.endm

	.text
	PROFILE_ENTER fentry_profile_enter, sp
	PROFILE_ENTER fentry_mcount_profile_enter, fp

HIDDEN(fentry_profile_exit)
fentry_profile_exit:
	.cfi_startproc
	.cfi_def_cfa %rsp, 17
	CFI_SHADOW_FRAME
	SAVE3			/* 24 id, 32 S */
	CHECK_OWNER 6f
	lea	32(%rsp), %rcx
	cmp	%rcx, %gs:CB_TOP
	jne	6f
	.cfi_remember_state
	COUNTER
	pushr	%rsi
	pushr	%rdi
	mov	24+16(%rsp), %edi
	and	$0x7fffffff, %edi
	END_CALL
	mov	%rcx, %rdx
	btc	$SHADOW_AUX, %rdx
	add	(%rdx), %rsi
	mov	%rsi, %gs:CB_CHILD
	btc	$SHADOW_AUX, %rdx
	btc	$SHADOW_RET, %rdx
	mov	(%rdx), %rax
	btc	$SHADOW_PREV, %rdx
	mov	(%rdx), %rcx
	popr	%rdi
	popr	%rsi
	mov	%rax, 32(%rsp)
	mov	%rcx, %gs:CB_TOP
	LEAVE_EXIT
	.cfi_restore_state
6:	SLOW_EXIT
	LEAVE_EXIT
	.cfi_endproc
	.size fentry_profile_exit, . - fentry_profile_exit

	.section .note.GNU-stack, "", @progbits
