/* Where the dynamic loader comes after a system call that has opened a file (loader.c).

   What it comes from is a stub (arm64opens.go of the recorder), in the middle of a function that nobody has prepared: x0 is
   the new descriptor. The stub has saved x16 and x30, and goes on to an instruction that sets the flags; all else is kept. */
#include "macros.h"

	.text
HIDDEN(fentry_loader_open)
fentry_loader_open:
	.cfi_startproc
	hint	#34		/* bti c */
	stp	x0, x1, [sp, #-16]!
	.cfi_def_cfa_offset 16
	SLOW	16
	bl	fentry_loader_opened
	ENDSLOW	16
	ldp	x0, x1, [sp], #16
	.cfi_def_cfa_offset 0
	ret
	.cfi_endproc
	.size	fentry_loader_open, . - fentry_loader_open

	.section .note.GNU-stack, "", %progbits
