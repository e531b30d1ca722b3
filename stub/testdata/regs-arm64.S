/* Does a traced call leave every register alone? caller loads known values into all
   of them, calls body, whose site is patched; body checks what it got (w20 counts
   differences), loads other values and returns; caller checks again. Left out are
   x16, x17 and x30, which a call may change (AAPCS64, 6.1.1 and 9), and x18 is
   written here although it is the platform's, which Linux does not use. With SVE
   defined the vectors are of any length, and there are predicates; with SME, too, it
   all happens in streaming mode. */
	.text
	.macro set reg, value
	movz	x\reg, #(\value) & 0xffff
	movk	x\reg, #(\value) >> 16, lsl #16
	movk	x\reg, #\reg, lsl #48
	.endm
	/* Changes x16 and x17. */
	.macro is reg, value
	set	16, \value
	and	x16, x16, #0xffffffff
	mov	x17, #\reg
	orr	x16, x16, x17, lsl #48
	cmp	x\reg, x16
	cinc	w20, w20, ne
	.endm
	.macro general op, value
	.irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 18, 19, 21, 22, 23, 24, 25, 26, 27, 28
	\op	\n, \value
	.endr
	.endm
#ifdef SVE
	.arch_extension sve
	/* All bits: each 64 of them are \value + n. The first and the last are looked at. */
	.macro vset n, value
	set	16, \value + \n
	dup	z\n\().d, x16
	.endm
	.macro vis n, value
	set	16, \value + \n
	adrp	x17, room
	add	x17, x17, #:lo12:room
	str	z\n, [x17]
	ldr	x17, [x17]
	cmp	x16, x17
	cinc	w20, w20, ne
	adrp	x17, room
	add	x17, x17, #:lo12:room
	addvl	x17, x17, #1
	ldur	x17, [x17, #-8]
	cmp	x16, x17
	cinc	w20, w20, ne
	.endm
	/* The first n + \value are set, as far as there are so many. */
	.macro pset n, value
	mov	x16, #\n + \value
	whilelo	p\n\().b, xzr, x16
	.endm
	.macro pis n, value
	cntp	x17, p\n, p\n\().b
	rdvl	x16, #1
	cmp	x16, #\n + \value
	b.lo	1f
	mov	x16, #\n + \value
1:	cmp	x16, x17
	cinc	w20, w20, ne
	.endm
	.macro predicates op, value
	.irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
	\op	\n, \value
	.endr
	.endm
	/* Behind predicates set: ffr is p3. Behind predicates is: the same. */
	.macro fset
#ifndef SME
	wrffr	p3.b
#endif
	.endm
	.macro fis value
#ifndef SME
	rdffr	p3.b
	pis	3, \value
#endif
	.endm
	.macro streaming
#ifdef SME
	mrs	x16, S3_3_C4_C2_2	/* SVCR */
	and	x16, x16, #1
	cmp	x16, #1
	cinc	w20, w20, ne
#endif
	.endm
	.local	room
	.comm	room, 256, 16
#else
	.macro predicates op, value
	.endm
	.macro fset
	.endm
	.macro fis value
	.endm
	.macro streaming
	.endm
	/* All 128 bits: both halves are \value + n */
	.macro vset n, value
	set	16, \value + \n
	dup	v\n\().2d, x16
	.endm
	.macro vis n, value
	set	16, \value + \n
	mov	x17, v\n\().d[0]
	cmp	x16, x17
	cinc	w20, w20, ne
	mov	x17, v\n\().d[1]
	cmp	x16, x17
	cinc	w20, w20, ne
	.endm
#endif
	.macro vector op, value
	.irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
	\op	\n, \value
	.endr
	.endm

	.globl	regs_round
	.type	regs_round, %function
/* int regs_round(void): differences seen */
regs_round:
	stp	x29, x30, [sp, #-192]!
	mov	x29, sp
	stp	x19, x20, [sp, #16]
	stp	x21, x22, [sp, #32]
	stp	x23, x24, [sp, #48]
	stp	x25, x26, [sp, #64]
	stp	x27, x28, [sp, #80]
	stp	d8, d9, [sp, #96]
	stp	d10, d11, [sp, #112]
	stp	d12, d13, [sp, #128]
	stp	d14, d15, [sp, #144]
#ifdef SME
	.inst	0xd503437f	/* smstart sm */
#endif
	mrs	x0, fpcr
	mrs	x1, fpsr
	stp	x18, x0, [sp, #160]
	str	x1, [sp, #176]
	mov	w20, #0
	vector	vset, 0x11110000
	predicates pset, 1
	fset
	general	set, 0x22222222
	set	16, 0x7ea51111
	str	x16, [sp, #-16]!	/* an argument on the stack */
	bl	body
	add	sp, sp, #16
	general	is, 0x33333333
	vector	vis, 0x44440000
	streaming
	predicates pis, 5
	fis	5
	mov	x16, sp
	cmp	x16, x29
	cinc	w20, w20, ne
	mrs	x0, fpcr
	ldp	x18, x1, [sp, #160]
	cmp	x0, x1
	cinc	w20, w20, ne
	ldr	x1, [sp, #176]
	mrs	x0, fpsr
	cmp	x0, x1
	cinc	w20, w20, ne
#ifdef SME
	.inst	0xd503427f	/* smstop sm */
#endif
	mov	w0, w20
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
	ret
	.size regs_round, . - regs_round

	.globl	body
	.type	body, %function
body:
#ifdef BEHIND_PROLOGUE
	stp	x29, x30, [sp, #-32]!
	mov	x29, sp
#endif
1:	nop
	nop
	.pushsection __patchable_function_entries, "awo", %progbits, body
	.balign 8
	.xword	1b
	.popsection
	general	is, 0x22222222
	vector	vis, 0x11110000
	streaming
	predicates pis, 1
	fis	1
#ifdef BEHIND_PROLOGUE
	cmp	sp, x29
	cinc	w20, w20, ne
	ldr	x0, [sp, #32]
#else
	ldr	x0, [sp]
#endif
	set	16, 0x7ea51111
	cmp	x0, x16
	cinc	w20, w20, ne
	vector	vset, 0x44440000
	predicates pset, 5
	fset
	general	set, 0x33333333
#ifdef BEHIND_PROLOGUE
	ldp	x29, x30, [sp], #32
#endif
	ret
	.size body, . - body
	.section .note.GNU-stack, "", %progbits
