/* The profile tracer's fast paths: counts and times a function, no events.

   The thread's table of an image has an entry a function (format.h, FT_P_*). A frame's shadow
   has the time of its entry and, to be put back when it is left, the time spent so
   far in the callees of the frame it was called from. The array "active" has for
   every function the slot of its outermost open call, so that recursive calls
   count once in its total time. Counts and sums are added to by one instruction, which
   a signal handler cannot split. A table that is not there yet is made by the slow path of
   the entry (profile.c); whoever comes to an exit has come by one. */
#include "macros.h"


	/* rdx:rax, the counter, to rax. */
	.macro COUNTER
	rdtsc
	shl	$32, %rdx
	or	%rdx, %rax
	.endm

	/* A call of function rdi whose slot is in rcx begins, rsi is from TABLES. Changes rdx, rdi. */
	.macro BEGIN_CALL pre
	mov	\pre\()T_ACTIVE(%rsi), %rdx
	cmpq	$0, (%rdx, %rdi, 8)
	jne	91f
	mov	%rcx, (%rdx, %rdi, 8)
91:	shl	$5, %rdi		/* FT_PROFILE_ENTRY */
	add	\pre\()T_ENTRIES(%rsi), %rdi
	incq	FT_P_CALLS(%rdi)
	.endm

	/* The call of function rdi whose slot is in rcx ends now. Leaves its duration in
	   rax. Changes rdx, rsi, rdi. What callees have taken is read before the clock: a
	   handler in between must not make the difference negative. */
	.macro END_CALL pre, suf
	mov	\pre\()CB_CHILD\suf, %rsi
	COUNTER
	mov	%rcx, %rdx
	btc	$SHADOW_PREV, %rdx
	sub	(%rdx), %rax
	neg	%rsi
	add	%rax, %rsi
	TABLES	%rdx, %edx, \pre
	mov	\pre\()T_ACTIVE(%rdx), %rdx
	cmp	%rcx, (%rdx, %rdi, 8)
	jne	91f			/* inside another call of it */
	movq	$0, (%rdx, %rdi, 8)
	TABLES	%rdx, %edx, \pre
	shl	$5, %rdi
	add	\pre\()T_ENTRIES(%rdx), %rdi
	add	%rax, FT_P_TOTAL(%rdi)
	jmp	92f
91:	TABLES	%rdx, %edx, \pre
	shl	$5, %rdi
	add	\pre\()T_ENTRIES(%rdx), %rdi
92:	add	%rsi, FT_P_SELF(%rdi)
	cmp	FT_P_MAX(%rdi), %rax
	jbe	93f
	mov	%rax, FT_P_MAX(%rdi)
93:
	.endm

	.macro PROFILE_ENTER where, again, pre, suf, x=0
	LOAD_RET \where, %rax, \x
	CHECK_TAIL 4f
2:	CHECK_STACK \where, 7f, \pre, \suf, \x
	.cfi_remember_state
	pushr	%rsi
	pushr	%rdi
	TABLES	%rsi, %esi, \pre
	cmpq	$0, \pre\()T_ENTRIES(%rsi)
	je	5f
	btc	$SHADOW_RET, %rdx
	mov	%rax, (%rdx)
	btc	$SHADOW_PREV, %rdx
	mov	%rcx, (%rdx)
	LEA_SLOT \where, %rcx, \x+16
	mov	%rcx, %rdx
	btc	$SHADOW_AUX, %rdx
	mov	\pre\()CB_CHILD\suf, %rax
	mov	%rax, (%rdx)
	mov	%rcx, \pre\()CB_TOP\suf
3:	ID_WORD enter, 24+16+\x(%rsp), %rdi
	shr	$32, %rdi
	BEGIN_CALL \pre
	btc	$SHADOW_PREV, %rcx
	COUNTER
	mov	%rax, (%rcx)
	movq	$0, \pre\()CB_CHILD\suf	/* now: what handlers took until here is none of this call's */
	popr	%rdi
	popr	%rsi
	LEAVE_ENTER \where, \x
	.cfi_restore_state

	/* A tail call: one call ends and another begins at the same slot. */
4:	IS_TAIL 2b
	LEA_SLOT \where, %rcx, \x
	cmp	%rcx, \pre\()CB_TOP\suf
	jne	7f
	.cfi_remember_state
	pushr	%rsi
	pushr	%rdi
	ID_WORD enter, %rax, %rdi
	shr	$32, %rdi
	END_CALL \pre, \suf
	mov	%rcx, %rdx
	btc	$SHADOW_AUX, %rdx
	add	%rax, (%rdx)
	TABLES	%rsi, %esi, \pre
	jmp	3b
5:	popr	%rdi
	popr	%rsi
	.cfi_restore_state
7:	SLOW_ENTER \where, \again, \x
	.endm

	.macro PROFILE_ENTRY name, where
	BEGIN_ENTER \name, \where
1:	CHECK_OWNER 8f, 9f
	PROFILE_ENTER \where, 1b, %gs:
8:	SLOW_ENTER \where, 1b
9:	FIND_BLOCK 7f
	PROFILE_ENTER \where, 1b, , (%r11), 8
	END \name
	.endm

	.macro PROFILE_EXIT pre, suf, x=0
	lea	32+\x(%rsp), %rcx
	cmp	%rcx, \pre\()CB_TOP\suf
	jne	6f
	.cfi_remember_state
	pushr	%rsi
	pushr	%rdi
	ID_WORD enter, 24+16+\x(%rsp), %rdi
	shr	$32, %rdi
	END_CALL \pre, \suf
	btc	$SHADOW_AUX, %rcx
	add	(%rcx), %rax
	mov	%rax, \pre\()CB_CHILD\suf
	popr	%rdi
	popr	%rsi
	UNLINK \pre, \suf, \x
	LEAVE_EXIT \x
	.cfi_restore_state
6:	SLOW_EXIT \x
	.endm

	.text
	PROFILE_ENTRY fentry_profile_enter, sp
	PROFILE_ENTRY fentry_mcount_profile_enter, fp

	BEGIN_EXIT fentry_profile_exit
	CHECK_OWNER 8f, 9f
	PROFILE_EXIT %gs:
8:	SLOW_EXIT
9:	FIND_BLOCK 6f
	PROFILE_EXIT , (%r11), 8
	END fentry_profile_exit

	.section .note.GNU-stack, "", @progbits
