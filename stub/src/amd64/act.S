/* Functions at whose calls more is done than recording them. Their thunks come here in place
   of the tracer's routines, so that no other function pays for asking. What is done is in C
   (act.c), which gets all registers that a call can be told apart by, as struct callregs
   (machine.h): those that the fast paths' slow parts save, those that a C function keeps, and
   the vector registers that arguments and results are in, which C leaves alone. */
#include "macros.h"

/* What is captured most is in registers: arguments in general ones, one after the other, and a result in one. That is
   recorded here, as graph.S records calls, where the index of actions says that it is all there is to do. Where anything is
   not in place, or calls have more in their shadow, nothing is changed, and C does it. */

#define ARGS_OF(words, exit) (FT_RECORD_BASE | FT_REC_ARGS << FT_RECORD_TYPE_SHIFT | (words) | (exit))
#define OPEN_ARGS_OF(words, exit) (ARGS_OF(words, exit) | FT_RECORD_OPEN)

	/* What the index says of the function at whose thunk \back is, to edx. Changes rax, rcx. */
	.macro FIND_ACTING back, none
	mov	fentry_self(%rip), %rcx
	mov	STATE_O_ACTING(%rcx), %rcx
	test	%rcx, %rcx
	jz	\none
	LOCAL_ID \back, %rdx, %edx
	imul	$ACTION_SIZE / 4, ACTING_O_COUNT(%rcx), %eax
	add	%eax, %edx
	mov	ACTING_O_ACTIONS(%rcx), %rcx
	mov	-4(%rcx, %rdx, 4), %edx
	.endm

	/* Back from what was pushed behind SAVE3. */
	.macro POP_PLAIN x
	.if \x == 16
	popr	%r11
	.endif
	popr	%r10
	.endm

	/* r10 is how many words are written. */
	.macro PLAIN_ENTER where, slow, pre, suf, x
	LOAD_RET \where, %rax, \x
	CHECK_TAIL 4f
2:	CHECK_STACK \where, \slow, \pre, \suf, \x
	btc	$SHADOW_RET, %rdx
	mov	%rax, (%rdx)
	btc	$SHADOW_PREV, %rdx
	LEA_SLOT \where, %rax, \x
	mov	%rcx, (%rdx)
	mov	%rax, \pre\()CB_TOP\suf
	RESERVE 0, 5f, \pre, \suf, CB_SYS_END, %r10
	WRITE enter, 24+\x(%rsp), (%rax)
	cmp	$3, %r10d
	jb	3f
	lea	OPEN_ARGS_OF(0, 0) - 2(%r10), %ecx
	shl	$32, %rcx
	or	%rdx, %rcx
	mov	%rcx, 8(%rax)
	mov	%rdi, 16(%rax)
	cmp	$4, %r10d
	jb	1f
	mov	%rsi, 24(%rax)
	je	1f
	mov	8+\x(%rsp), %rdx
	mov	%rdx, 32(%rax)
	cmp	$6, %r10d
	jb	1f
	mov	\x(%rsp), %rdx
	mov	%rdx, 40(%rax)
	je	1f
	mov	%r8, 48(%rax)
	cmp	$8, %r10d
	jb	1f
	mov	%r9, 56(%rax)
1:	btr	$OPEN_BIT, %rcx
	mov	%rcx, 8(%rax)
3:	.cfi_remember_state
	POP_PLAIN \x
	LEAVE_ENTER \where
	.cfi_restore_state
4:	IS_TAIL 2b
	jmp	\slow
5:	LEA_SLOT \where, %rdx, \x
	btc	$SHADOW_RET, %rdx
	btc	$SHADOW_PREV, %rdx
	mov	(%rdx), %rcx
	mov	%rcx, \pre\()CB_TOP\suf
	jmp	\slow
	.endm

	/* r10 says which result. */
	.macro PLAIN_EXIT slow, pre, suf, x
	lea	32+\x(%rsp), %rcx
	cmp	%rcx, \pre\()CB_TOP\suf
	jne	\slow
	cmp	$PLAIN_GENERAL, %r10d
	jb	3f
	RESERVE 16 + 8, \slow, \pre, \suf, CB_SYS_END
	WRITE exit, 24+\x(%rsp), (%rax)
	movl	$OPEN_ARGS_OF(1, FT_ID_EXIT), 12(%rax)
	mov	%edx, 8(%rax)
	UNLINK_BY %rcx, %rdx, \pre, \suf, \x
	mov	16+\x(%rsp), %rdx
	mov	%rdx, 16(%rax)
	cmp	$PLAIN_GENERAL, %r10d
	je	1f
	movlps	%xmm0, 16(%rax)
1:	movl	$ARGS_OF(1, FT_ID_EXIT), 12(%rax)
	jmp	4f
3:	RESERVE 8, \slow, \pre, \suf
	WRITE exit, 24+\x(%rsp), (%rax)
	UNLINK_BY %rcx, %rdx, \pre, \suf, \x
4:	.cfi_remember_state
	POP_PLAIN \x
	LEAVE_EXIT
	.cfi_restore_state
	.endm

	/* To PLAIN_ENTER or PLAIN_EXIT, or on. */
	.macro PLAIN shift, mask, plain:vararg
	cmpl	$0, fentry_plain(%rip)
	je	8f
	FIND_ACTING 24(%rsp), 8f
	shr	$\shift, %edx
	and	$\mask, %edx
	jz	8f
	pushr	%r10
	mov	%edx, %r10d
	CHECK_OWNER 7f, 9f
	\plain 7f, %gs:, , 8
9:	FIND_BLOCK 6f
	\plain 6f, , (%r11), 16
6:	popr	%r11
7:	popr	%r10
8:
	.endm

	/* Behind SLOW: struct callregs at the stack pointer, which rdi points to. */
	.macro CALLREGS
	lea	-CALLREGS_SIZE(%rsp), %rsp
	.irp	n, 0,1,2,3,4,5,6,7
	movups	%xmm\n, 16*\n(%rsp)
	.endr
	mov	%rbx, 128(%rsp)
	mov	%r12, 136(%rsp)
	mov	%r13, 144(%rsp)
	mov	%r14, 152(%rsp)
	mov	%r15, 160(%rsp)
	mov	%rbp, 168(%rsp)
	mov	%rsp, %rcx
	.endm

	/* fentry_slow_act(slot, id, image, registers) does all there is to do. leave is how the thunk is
	   gone back to: "fp" replaces the return address behind a prologue. With the tracer of entries
	   none is replaced, and nothing is left out: skip is 0. */
	.macro ACT_ENTRY name, where, leave, skip
	BEGIN_ENTER \name, \leave
	.if \skip
	PLAIN	ACTIONS_ENTRY, ACTIONS_ENTRY_MASK, PLAIN_ENTER \where,
	.endif
	ENTER_OFF \leave
	SLOW enter_off
	CALLREGS
	.ifc \where, sp
	lea	64+32(%rbp), %rdi
	.else
	mov	8(%rbp), %rdi
	add	$8, %rdi
	.endif
	LOCAL_ID 64+24(%rbp), %rsi, %esi
	mov	fentry_self(%rip), %rdx
	call	*fentry_home_act(%rip)
	ENDSLOW enter_off
	.if \skip
	cmp	$ENTER_SKIP, %eax
	je	1f
	.endif
	LEAVE_ENTER \leave
	.if \skip
1:	SKIP_ENTER \where
	.endif
	END \name
	.endm

	.text
	ACT_ENTRY fentry_act_enter, sp, sp, 1
	ACT_ENTRY fentry_mcount_act_enter, fp, fp, 1
	ACT_ENTRY fentry_actfunc_enter, sp, on, 0
	ACT_ENTRY fentry_mcount_actfunc_enter, fp, on, 0

	/* fentry_slow_act_exit(slot, id, image, registers) returns where the caller is. */
	BEGIN_EXIT fentry_act_exit
	PLAIN	ACTIONS_RESULT, ACTIONS_RESULT_MASK, PLAIN_EXIT
	SLOW 40
	CALLREGS
	lea	64+32(%rbp), %rdi
	LOCAL_ID 64+24(%rbp), %rsi, %esi
	mov	fentry_self(%rip), %rdx
	call	*fentry_home_act_exit(%rip)
	ENDSLOW 40
	mov	%rax, 32(%rsp)
	LEAVE_EXIT
	END fentry_act_exit

	.section .note.GNU-stack, "", @progbits
