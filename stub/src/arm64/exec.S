/* Where the process comes before it executes another program, or filters its system calls (exec.c, follow.c).

   What it comes from is a stub in the place of the system call (arm64execs.go of the recorder): x8 has the number.
   No register is free there. The stub has saved x16 and x30, and makes the call itself when this returns; all else is kept,
   flags too. Below the stack pointer nothing is live. The stack can be that of a child that shares its memory with its
   parent, and small. */
#include "macros.h"

	.text
HIDDEN(fentry_exec)
fentry_exec:
	.cfi_startproc
	hint	#34		/* bti c */
	stp	x0, x1, [sp, #-48]!
	.cfi_def_cfa_offset 48
	stp	x2, x3, [sp, #16]
	mrs	x16, nzcv
	str	x16, [sp, #32]
	SLOW	48
	mov	x3, x4
	mov	x4, x2
	mov	x2, x1
	mov	x1, x0
	mov	x0, x8
	bl	fentry_executes
	ENDSLOW	48
	ldr	x16, [sp, #32]
	msr	nzcv, x16
	ldp	x2, x3, [sp, #16]
	ldp	x0, x1, [sp], #48
	.cfi_def_cfa_offset 0
	ret
	.cfi_endproc
	.size	fentry_exec, . - fentry_exec

	.section .note.GNU-stack, "", %progbits
