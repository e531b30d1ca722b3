/* Where the kernel calls traced handlers: a stub for each (signal.c). A handler's registers are x0 to x2,
   the signal and what is said of it, x29, which is a frame record of the kernel's, and x30; the others
   are left over from what was interrupted, and nobody relies on them. Nor has a handler anything of
   SVE and SME that was there. Without SA_SIGINFO x1 and x2 are left over, too, but what they would
   point to is at the stack pointer all the same (arch/arm64/kernel/signal.c). */
#include "layout.h"

#define SIGINFO_SIZE 128

	.text
	.p2align 4
	.globl	fentry_signal_stubs
	.hidden	fentry_signal_stubs
	.type	fentry_signal_stubs, %function
fentry_signal_stubs:
	.cfi_startproc
	.set	number, 0
	.rept	SIGNAL_STUBS
	.p2align 4
	hint	#34			/* bti c */
	mov	w3, #number
	b	1f
	.set	number, number + 1
	.endr
1:	stp	x29, x30, [sp, #-48]!
	.cfi_def_cfa_offset 48
	.cfi_offset x29, -48
	.cfi_offset x30, -40
	mov	x29, sp
	stp	x0, x1, [sp, #16]
	str	x2, [sp, #32]
	add	x1, sp, #48
	add	x2, sp, #48 + SIGINFO_SIZE
	bl	fentry_slow_signal
	mov	x16, x0
	ldr	x2, [sp, #32]
	ldp	x0, x1, [sp, #16]
	ldp	x29, x30, [sp], #48
	.cfi_def_cfa_offset 0
	.cfi_restore x29
	.cfi_restore x30
	br	x16
	.cfi_endproc
	.size	fentry_signal_stubs, . - fentry_signal_stubs

	.section .note.GNU-stack, "", %progbits
