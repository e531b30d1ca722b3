/* Where a patched program starts: instead of its entry point, and before that, where the
   dynamic loader can be made to come here (start.c). A shared object starts by a relocation,
   or else where its own initialisation begins (DT_INIT).

   The kernel leaves a stack and no caller. What the registers hold is the program's, as
   libcs expect x0 to be the loader's and nothing is said of the others: all are put back
   before the branch to the original entry point. */
#include "macros.h"

	.text
	/* The new entry point: the stack is as the kernel made it, x0 is for the
	   program (what the dynamic loader wants run at exit). A branch comes here. */
HIDDEN(fentry_start)
fentry_start:
	.cfi_startproc
	.cfi_undefined x30
	hint	#38		/* bti jc */
	stp	x0, x1, [sp, #-176]!
	.cfi_def_cfa_offset 176
	stp	x2, x3, [sp, #16]
	stp	x4, x5, [sp, #32]
	stp	x6, x7, [sp, #48]
	stp	x8, x9, [sp, #64]
	stp	x10, x11, [sp, #80]
	stp	x12, x13, [sp, #96]
	stp	x14, x15, [sp, #112]
	stp	x16, x17, [sp, #128]
	stp	x18, x29, [sp, #144]
	str	x30, [sp, #160]
	add	x0, sp, #176
	bl	fentry_begin
	ldr	x30, [sp, #160]
	ldp	x18, x29, [sp, #144]
	ldp	x16, x17, [sp, #128]
	ldp	x14, x15, [sp, #112]
	ldp	x12, x13, [sp, #96]
	ldp	x10, x11, [sp, #80]
	ldp	x8, x9, [sp, #64]
	ldp	x6, x7, [sp, #48]
	ldp	x4, x5, [sp, #32]
	ldp	x2, x3, [sp, #16]
	ldp	x0, x1, [sp], #176
	.cfi_def_cfa_offset 0
	b	fentry_orig_entry
	.cfi_endproc
	.size fentry_start, . - fentry_start

	/* Resolver of a relocation R_AARCH64_IRELATIVE: the dynamic loader calls it
	   while it relocates the program, before any constructor runs. */
HIDDEN(fentry_irel)
fentry_irel:
	.cfi_startproc
	hint	#34		/* bti c */
	stp	x29, x30, [sp, #-16]!
	.cfi_def_cfa_offset 16
	.cfi_offset x29, -16
	.cfi_offset x30, -8
	mov	x29, sp
	mov	x0, #0
	bl	fentry_begin
	adrp	x0, fentry_irel_ret
	add	x0, x0, #:lo12:fentry_irel_ret
	ldp	x29, x30, [sp], #16
	.cfi_def_cfa_offset 0
	.cfi_restore x29
	.cfi_restore x30
	ret
	.cfi_endproc
	.size fentry_irel, . - fentry_irel

#ifdef FENTRY_SHARED
	/* The initialisation of a shared object, before its constructors: glibc hands them
	   the program's arguments and environment. fentry_init_first goes on to what the
	   object has, fentry_init_only is for one that has nothing. */
	.macro INIT name, routine=fentry_library_begins
HIDDEN(\name)
\name:
	.cfi_startproc
	hint	#34		/* bti c */
	stp	x29, x30, [sp, #-48]!
	.cfi_def_cfa_offset 48
	.cfi_offset x29, -48
	.cfi_offset x30, -40
	mov	x29, sp
	stp	x0, x1, [sp, #16]
	str	x2, [sp, #32]
	bl	\routine
	ldp	x0, x1, [sp, #16]
	ldr	x2, [sp, #32]
	ldp	x29, x30, [sp], #48
	.cfi_def_cfa_offset 0
	.cfi_restore x29
	.cfi_restore x30
	.endm
	.macro ENDINIT name
	.cfi_endproc
	.size \name, . - \name
	.endm

	INIT fentry_init_first
	b	fentry_orig_entry
	ENDINIT fentry_init_first
	INIT fentry_init_only
	ret
	ENDINIT fentry_init_only

	/* Its finalisation, behind its destructors (DT_FINI). */
	INIT fentry_fini_first, fentry_library_ends
	b	fentry_orig_fini
	ENDINIT fentry_fini_first
	INIT fentry_fini_only, fentry_library_ends
	ret
	ENDINIT fentry_fini_only
#endif

	.section .note.GNU-stack, "", %progbits
