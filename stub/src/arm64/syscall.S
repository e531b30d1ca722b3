/* System calls: where the copies of moved svc instructions come from and go back to.

   A copy (arch/arm64) calls in front of the instruction and behind it. It has saved x16 and x30,
   as no register is free here: the kernel keeps all but x0, and compilers know it. So what else
   changes is saved, flags too, below the program's stack pointer, where nothing is live. At
   the instruction the stack pointer is the program's again: a child made by clone begins on another
   stack at the instruction behind, one made by vfork on the same.

   Nothing is kept from the one end to the other: who reads the trace finds out what belongs
   together. A signal can come between any two instructions, as in the other fast paths
   (macros.h): its events lie behind what was reserved, never inside. A record is reserved as a
   whole, and is open until all of it is there.

   The kernel leaves streaming mode and what SVE has beside v0 to v31 at any system call, so the slow
   path, which makes some, takes nothing away. */
#include "macros.h"

/* from the way back to where a copy makes a call that is not recorded, arch/arm64 */
#define UNRECORDED 24

	.macro BEGIN_SYSCALL name, recorded
HIDDEN(\name)
\name:
	.cfi_startproc
	hint	#34		/* bti c: the dynamic loader's copies come by a register */
	adrp	x16, fentry_syscalls_on
	ldr	w16, [x16, #:lo12:fentry_syscalls_on]
	tbz	w16, #\recorded >> 1, 20f
	stp	x0, x1, [sp, #-48]!
	.cfi_def_cfa_offset 48
	stp	x2, x3, [sp, #16]
	mrs	x16, nzcv
	str	x16, [sp, #32]
	.endm

	.macro LEAVE_SYSCALL
	.cfi_remember_state
	ldr	x16, [sp, #32]
	msr	nzcv, x16
	ldp	x2, x3, [sp, #16]
	ldp	x0, x1, [sp], #48
	.cfi_def_cfa_offset 0
	ret
	.cfi_restore_state
	.endm

	/* To the copy's other instruction. x30 stays what unwinders find the copy by. */
	.macro UNRECORDED_CALL
	add	x16, x30, #UNRECORDED
	ret	x16
	.endm

	/* The slow path: fentry_slow_syscall(registers, exit). */
	.macro END_SYSCALL name, exit
8:	SLOW	48
	mov	x0, sp
	mov	w1, #\exit
	CALL_HOME fentry_home_syscall
	ENDSLOW	48
	LEAVE_SYSCALL
20:	.cfi_def_cfa_offset 0
	.if \exit == 0
	UNRECORDED_CALL
	.else
	ret
	.endif
	END \name
	.endm

	/* A system call whose number is known only now, where some are recorded. */
	.macro SOME name, all
HIDDEN(\name)
\name:
	.cfi_startproc
	hint	#34
	lsr	x16, x8, #9	/* SYSCALL_NUMBERS */
	cbnz	x16, 1f
	stp	x0, x1, [sp, #-16]!
	.cfi_def_cfa_offset 16
	adrp	x16, fentry_syscall_filter
	add	x16, x16, #:lo12:fentry_syscall_filter
	lsr	x0, x8, #3
	ldrb	w0, [x16, x0]
	and	w1, w8, #7
	lsr	w16, w0, w1
	ldp	x0, x1, [sp], #16
	.cfi_def_cfa_offset 0
	tbz	w16, #0, 1f
	b	\all
1:	UNRECORDED_CALL
	END \name
	.endm

	.text
	BEGIN_SYSCALL fentry_syscall_enter, SYSCALLS_BEGINS
	lsr	x16, x8, #9	/* SYSCALL_NUMBERS */
	cbnz	x16, 1f
	adrp	x16, fentry_syscalls
	add	x16, x16, #:lo12:fentry_syscalls
	ldrb	w16, [x16, x8]
	cbnz	w16, 8f
1:	GET_BLOCK x0, 9f
2:	RESERVE_RECORD 64, 7, 0, 8f, 2b
	ldp	x0, x2, [sp]
	stp	x8, x0, [x1, #8]
	ldr	x0, [sp, #16]
	stp	x2, x0, [x1, #24]
	ldr	x2, [sp, #24]
	stp	x2, x4, [x1, #40]
	str	x5, [x1, #56]
	stlr	x3, [x1]
	LEAVE_SYSCALL
9:	FIND_BLOCK_X0 2b
	END_SYSCALL fentry_syscall_enter, 0

	SOME fentry_some_syscall_enter, fentry_syscall_enter

	BEGIN_SYSCALL fentry_syscall_exit, SYSCALLS_ENDS
	GET_BLOCK x0, 9f
2:	ldr	w1, [x0, #W(CB_SYS_OPEN)]
	cbnz	w1, 8f
	RESERVE_RECORD 16, 1, FT_ID_EXIT, 8f, 2b
	ldr	x0, [sp]
	str	x0, [x1, #8]
	stlr	x3, [x1]
	LEAVE_SYSCALL
9:	FIND_BLOCK_X0 2b
	END_SYSCALL fentry_syscall_exit, 1

	.section .note.GNU-stack, "", %progbits
