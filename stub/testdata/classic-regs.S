/* arm64: does a traced call leave every register alone? regs_round loads known values into all
   of them and calls body, which has a site; body stores what it got, loads other values
   and returns; regs_round stores again. compare (classic-regs.c) looks.

   SITE_CALL is the trampoline that the site calls. BEHIND_PROLOGUE: the site is that of -pg. */
	.arch	armv8.2-a+sve
#define X	0	/* x0 to x30 */
#define Q	256
#define Z	768	/* of at most 256 bytes each, and behind them p */
#define AREA	9600	/* 768 + 32 * 256 + 16 * 32, and some */

	.macro EACH_X op, at
	.irp	n, 0,1,2,3,4,5,6,7,8,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28
	\op	x\n, [\at, #X + 8 * \n]
	.endr
	.endm
	.macro EACH_Q op, at
	.irp	n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31
	\op	q\n, [\at, #Q + 16 * \n]
	.endr
	.endm
	/* at: Z's address; changed */
	.macro EACH_Z op, at
	.irp	n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31
	\op	z\n, [\at, #\n, mul vl]
	.endr
	addvl	\at, \at, #16
	addvl	\at, \at, #16
	.irp	n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15
	\op	p\n, [\at, #\n, mul vl]
	.endr
	.endm
	/* All registers from a symbol. x9 is lost. */
	.macro LOAD_ALL from
	adrp	x9, regs_sve
	ldr	w9, [x9, #:lo12:regs_sve]
	cbz	w9, 1f
	adrp	x9, \from + Z
	add	x9, x9, #:lo12:\from + Z
	EACH_Z	ldr, x9
1:	adrp	x9, \from
	add	x9, x9, #:lo12:\from
	cbnz	x9, 2f
2:	EACH_XQ	\from
	.endm
	.macro EACH_XQ from
	adrp	x10, regs_sve
	ldr	w10, [x10, #:lo12:regs_sve]
	cbnz	w10, 3f
	EACH_Q	ldr, x9
3:	EACH_X	ldr, x9
	.endm
	/* All registers to room below the stack pointer. x9 is lost, but its value stored. */
	.macro STORE_ALL
	sub	sp, sp, #(AREA / 4096) << 12
	sub	sp, sp, #AREA & 4095
	str	x9, [sp, #X + 72]
	mov	x9, sp
	EACH_X	str, x9
	EACH_Q	str, x9
	adrp	x10, regs_sve
	ldr	w10, [x10, #:lo12:regs_sve]
	cbz	w10, 4f
	add	x9, sp, #Z
	EACH_Z	str, x9
4:
	.endm
	.macro DROP_ALL
	add	sp, sp, #AREA & 4095
	add	sp, sp, #(AREA / 4096) << 12
	.endm

	.text
	.globl	regs_round
	.type	regs_round, %function
/* int regs_round(void): differences seen */
regs_round:
	stp	x29, x30, [sp, #-192]!
	stp	x19, x20, [sp, #16]
	stp	x21, x22, [sp, #32]
	stp	x23, x24, [sp, #48]
	stp	x25, x26, [sp, #64]
	stp	x27, x28, [sp, #80]
	stp	d8, d9, [sp, #96]
	stp	d10, d11, [sp, #112]
	stp	d12, d13, [sp, #128]
	stp	d14, d15, [sp, #144]
	str	x18, [sp, #160]
	mov	x29, sp
	LOAD_ALL regs_in
	bl	body
	STORE_ALL
	mov	x0, sp
	mov	w1, #1
	bl	compare
	DROP_ALL
	ldr	x18, [sp, #160]
	ldp	d14, d15, [sp, #144]
	ldp	d12, d13, [sp, #128]
	ldp	d10, d11, [sp, #112]
	ldp	d8, d9, [sp, #96]
	ldp	x27, x28, [sp, #80]
	ldp	x25, x26, [sp, #64]
	ldp	x23, x24, [sp, #48]
	ldp	x21, x22, [sp, #32]
	ldp	x19, x20, [sp, #16]
	ldp	x29, x30, [sp], #192
	adrp	x0, regs_wrong
	ldr	w0, [x0, #:lo12:regs_wrong]
	ret
	.size	regs_round, . - regs_round

	.globl	body
	.type	body, %function
body:
	.cfi_startproc
#ifdef BEHIND_PROLOGUE
	stp	x29, x30, [sp, #-32]!
	.cfi_def_cfa_offset 32
	.cfi_offset 29, -32
	.cfi_offset 30, -24
	mov	x29, sp
	bl	SITE_CALL
#else
	mov	x9, x30
	bl	SITE_CALL
	stp	x29, x30, [sp, #-32]!
	.cfi_def_cfa_offset 32
	.cfi_offset 29, -32
	.cfi_offset 30, -24
#endif
	STORE_ALL
	mov	x0, sp
	mov	w1, #0
	bl	compare
	DROP_ALL
	LOAD_ALL regs_out
	ldr	x30, [sp, #8]
	ldr	x9, [x9, #X + 72]
	ldr	x29, [sp], #32
	ret
	.cfi_endproc
	.size	body, . - body

	.section .note.GNU-stack, "", %progbits
