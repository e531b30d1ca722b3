/* Slow paths make system calls, and those do not keep all of the program's state: of
   SVE's registers Linux keeps the low 128 bits, which are those of v0 to v31, and it
   leaves SME's streaming mode (Documentation/arch/arm64/sve.rst and sme.rst, "System
   call behaviour"). A function that takes such arguments may be a traced one. So where
   the processor has these, what a system call takes away is put on the stack before,
   and back after. ZA is kept by Linux.

   These are the routines that the fast paths call in place of the C functions, those of
   other images by their addresses. */
#include "macros.h"
	.arch_extension sve

	.macro Z_REGS op
	.irp	n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31
	\op	z\n, [sp, #\n, mul vl]
	.endr
	.endm
	.macro P_REGS op
	.irp	n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15
	\op	p\n, [sp, #\n, mul vl]
	.endr
	.endm

	.text
	/* Makes room on the stack. Below the registers is a word with the bits KEPT_REGISTERS
	   and KEPT_STREAMING, and fpsr, which leaving streaming mode changes. Callers have a
	   frame with x29. Changes x9 to x12. */
HIDDEN(fentry_sve_save)
fentry_sve_save:
	.cfi_startproc
	.cfi_def_cfa x29, 16
	adrp	x9, fentry_sve
	ldr	w9, [x9, #:lo12:fentry_sve]
	mov	x11, #0
	tbz	w9, #SVE_STREAMING, 1f
	mrs	x11, S3_3_C4_C2_2	/* SVCR */
	and	x11, x11, #1		/* SM */
1:	tbnz	w9, #SVE_REGISTERS, 2f
	cbz	x11, 4f			/* SME without SVE: these registers are there in streaming mode only */
2:	orr	x11, x11, #1 << KEPT_REGISTERS
	addvl	sp, sp, #-32
	Z_REGS	str
	addvl	sp, sp, #-3
	P_REGS	str
	tbnz	x11, #KEPT_STREAMING, 4f	/* in which there is no ffr */
	rdffr	p0.b
	str	p0, [sp, #16, mul vl]
4:	mrs	x12, fpsr
	stp	x11, x12, [sp, #-16]!
	ret
	.cfi_endproc
	.size	fentry_sve_save, . - fentry_sve_save

	/* Leaves x0 alone. */
HIDDEN(fentry_sve_restore)
fentry_sve_restore:
	.cfi_startproc
	.cfi_def_cfa x29, 16
	ldp	x11, x12, [sp], #16
	tbz	x11, #KEPT_REGISTERS, 3f
	tbnz	x11, #KEPT_STREAMING, 1f
	ldr	p0, [sp, #16, mul vl]
	wrffr	p0.b
	b	2f
1:	.inst	0xd503437f		/* smstart sm */
2:	P_REGS	ldr
	addvl	sp, sp, #3
	Z_REGS	ldr
	addvl	sp, sp, #31
	addvl	sp, sp, #1
3:	msr	fpsr, x12
	ret
	.cfi_endproc
	.size	fentry_sve_restore, . - fentry_sve_restore

	.macro KEEPING name, function
HIDDEN(\name)
\name:
	.cfi_startproc
	hint	#34		/* bti c */
	adrp	x9, fentry_sve
	ldr	w9, [x9, #:lo12:fentry_sve]
	cbnz	w9, 1f
	b	\function
1:	stp	x29, x30, [sp, #-16]!
	.cfi_def_cfa_offset 16
	.cfi_offset x29, -16
	.cfi_offset x30, -8
	mov	x29, sp
	.cfi_def_cfa_register x29
	bl	fentry_sve_save
	bl	\function
	bl	fentry_sve_restore
	ldp	x29, x30, [sp], #16
	.cfi_def_cfa sp, 0
	.cfi_restore x29
	.cfi_restore x30
	ret
	.cfi_endproc
	.size \name, . - \name
	.endm
	KEEPING fentry_enter_keeping, fentry_slow_enter
	KEEPING fentry_exit_keeping, fentry_slow_exit
	KEEPING fentry_record_keeping, fentry_slow_record
#ifndef FENTRY_CLASSIC
	KEEPING fentry_act_keeping, fentry_slow_act
	KEEPING fentry_act_exit_keeping, fentry_slow_act_exit
	KEEPING fentry_place_keeping, fentry_slow_place
#endif

	.section .note.GNU-stack, "", %progbits
