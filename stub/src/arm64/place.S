/* Events of functions that have no thunk, as on x86-64 (amd64/place.S): OCaml's.

   x16 is the way back, w17 the function's id in its image, with FT_ID_EXIT at the end, x30 the return address at an entry, and
   the stack pointer is what it is at the call. These two registers, d16 to d20 and the flags are free at both ends. Nothing
   is put on the stack: the fast path keeps registers in d16 to d20, and the slow one has room of its own. */
#include "macros.h"

	.text
HIDDEN(fentry_place)
fentry_place:
	.cfi_startproc
	fmov	d16, x0
	fmov	d17, x1
	fmov	d18, x2
	fmov	d19, x3
	fmov	d20, x16
1:	GET_BLOCK x0, 9f
2:	adrp	x1, fentry_plain
	ldr	w1, [x1, #:lo12:fentry_plain]
	cbz	w1, 6f
	sub	x3, sp, #16
	ldp	x1, x2, [x0, #W(CB_TOP)]
	tbnz	w17, #31, 4f
	cmp	x3, x1
	b.hs	6f		/* frames were left, or this is another stack */
	cmp	x3, x2
	b.lo	6f
3:	RESERVE 8, 6f, 8f, CB_HIGH, ID_BASE
	sub	x16, sp, #16
	ldr	x2, [x0, #W(CB_SHADOW)]
	add	x2, x16, x2
	ldr	x17, [x0, #W(CB_TOP)]
	stp	x17, x30, [x2]
	str	x16, [x0, #W(CB_TOP)]
	str	x3, [x1]
	b	90f
4:	cmp	x3, x1
	b.ne	6f
5:	RESERVE 8, 6f, 82f, CB_HIGH, ID_BASE
	sub	x16, sp, #16
	ldr	x2, [x0, #W(CB_SHADOW)]
	ldr	x17, [x16, x2]
	str	x17, [x0, #W(CB_TOP)]
	str	x3, [x1]
	b	90f
8:	RETRY	3b, ID_BASE
82:	RETRY	5b, ID_BASE
9:	FIND_BLOCK_X0 2b
	mov	x1, #0
	b	10f
6:	ldr	x1, [x0, #W(CB_ROOM)]

	/* fentry_slow_place(slot, id, image, ret), on the thread's own room, or where it is for want of that. */
10:	mov	x2, sp
	.cfi_def_cfa x2, 0
	cbnz	x1, 11f
	mov	x1, x2
11:	sub	x1, x1, #144
	mov	sp, x1
	stp	x29, x30, [sp]
	stp	x2, x16, [sp, #16]
	mov	x29, sp
	.cfi_escape 0x0f, 3, 0x8d, 16, 0x06		/* CFA: what is at 16(x29) */
	.cfi_escape 0x10, 29, 2, 0x8d, 0
	.cfi_escape 0x10, 30, 2, 0x8d, 8
	stp	x4, x5, [sp, #32]
	stp	x6, x7, [sp, #48]
	stp	x8, x9, [sp, #64]
	stp	x10, x11, [sp, #80]
	stp	x12, x13, [sp, #96]
	stp	x14, x15, [sp, #112]
	fmov	x16, d20
	str	x16, [sp, #128]
	sub	x0, x2, #16
	mov	w1, w17
	LOAD	x2, fentry_self
	mov	x3, x30
	CALL_HOME fentry_home_place
	ldr	x16, [sp, #128]
	fmov	d20, x16
	ldp	x14, x15, [sp, #112]
	ldp	x12, x13, [sp, #96]
	ldp	x10, x11, [sp, #80]
	ldp	x8, x9, [sp, #64]
	ldp	x6, x7, [sp, #48]
	ldp	x4, x5, [sp, #32]
	ldr	x2, [sp, #16]
	ldp	x29, x30, [sp]
	.cfi_def_cfa x2, 0
	.cfi_restore x29
	.cfi_restore x30
	mov	sp, x2
	.cfi_def_cfa sp, 0
90:	fmov	x0, d16
	fmov	x1, d17
	fmov	x2, d18
	fmov	x3, d19
	fmov	x16, d20
	br	x16
	.cfi_endproc
	.size	fentry_place, . - fentry_place

	.section .note.GNU-stack, "", %progbits
