/* Functions at whose calls more is done than recording them. Their thunks come here in place
   of the tracer's routines, so that no other function pays for asking. What is done is in C
   (act.c), which gets all registers that a call can be told apart by, as struct callregs
   (machine.h): those that the fast paths' slow parts save, those that a C function keeps, and
   the vector registers that arguments and results are in, which C leaves alone. */
#include "macros.h"

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
	SLOW 41
	CALLREGS
	lea	64+32(%rbp), %rdi
	LOCAL_ID 64+24(%rbp), %rsi, %esi
	mov	fentry_self(%rip), %rdx
	call	*fentry_home_act_exit(%rip)
	ENDSLOW 41
	mov	%rax, 32(%rsp)
	LEAVE_EXIT
	END fentry_act_exit

	.section .note.GNU-stack, "", @progbits
