/* Where the events of Go's functions come to that are not recorded in place (arch/arm64, goevent.go).

   A goroutine's stack can be full, and nothing may be put there that the program's own stack checks do not know of. So
   this goes on where the program's runtime does for what needs room: on the stack of the goroutine g0 that every thread has,
   which is not in use while another one runs. On g0's stack itself, and on that of a signal's handler, whose goroutines
   have the number 0, there is room.

   w17 has the event's id, x19 the goroutine's number, x28 the goroutine, x20 the way back; x16, x17, x19 to x25 and the
   flags are free there. All else is kept: C keeps x19 and what is above, and uses no vectors. */
#include "macros.h"

#define SAVED	144	/* struct goregs */

	.text
HIDDEN(fentry_go_slow)
fentry_go_slow:
	.cfi_startproc
	.cfi_register x30, x20
	cbz	x19, 1f
	ldr	x21, [x28, #GO_M]
	ldr	x21, [x21, #GO_M_G0]
	ldr	x21, [x21, #GO_SCHED_SP]
	b	2f
1:	mov	x21, sp
2:	and	x21, x21, #-16
	mov	x22, sp
	sub	sp, x21, #SAVED
	.cfi_def_cfa x22, 0
	stp	x0, x1, [sp]
	stp	x2, x3, [sp, #16]
	stp	x4, x5, [sp, #32]
	stp	x6, x7, [sp, #48]
	stp	x8, x9, [sp, #64]
	stp	x10, x11, [sp, #80]
	stp	x12, x13, [sp, #96]
	stp	x14, x15, [sp, #112]
	stp	x30, x22, [sp, #128]
	mov	w0, w17
	mov	x1, x28
	mov	x2, sp
	bl	fentry_slow_go
	ldr	x30, [sp, #128]
	ldp	x14, x15, [sp, #112]
	ldp	x12, x13, [sp, #96]
	ldp	x10, x11, [sp, #80]
	ldp	x8, x9, [sp, #64]
	ldp	x6, x7, [sp, #48]
	ldp	x4, x5, [sp, #32]
	ldp	x2, x3, [sp, #16]
	ldp	x0, x1, [sp]
	mov	sp, x22
	.cfi_def_cfa sp, 0
	br	x20
	.cfi_endproc
	.size	fentry_go_slow, . - fentry_go_slow

	.section .note.GNU-stack, "", %progbits
