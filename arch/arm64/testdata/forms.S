/*
 * One function for each PC-relative form that can stand at a function's entry,
 * long f(long), called by main with small arguments. Each returns something else
 * when its operand or target is wrong, or when it destroys another register.
 */
	.arch	armv8-a
	.macro	function name
	.globl	\name
	.type	\name, %function
	.p2align 4
\name:
	.endm
	.macro	end name
	.size	\name, . - \name
	.pushsection functions, "a", %progbits
	.quad	\name
	.popsection
	.endm

	.data
	.p2align 4
value:	.quad	1000, 2000, 3000, 4000

	.text
	.p2align 4
literal: .long	0x11111111, 0x22222222, 0x81234567, 0x3f800000
	.quad	0x400921fb54442d18, 0x0123456789abcdef
	.long	7, 0x89abcdef, 0x76543210	/* a quad that is not aligned to 8 */

	function helper
	add	x0, x0, #7
	ret
	end helper

	function jump
	b	1f
	.inst	0
1:	add	x0, x0, #1
	ret
	end jump

	function tail
	b	helper
	end tail

	function branch_eq
	b.eq	1f		/* flags of the caller: both ways are the same */
1:	cmp	x0, #2
	b.eq	2f
	mov	x0, #11
	ret
2:	mov	x0, #22
	ret
	end branch_eq

	function branch_second
	cmp	x0, #2
	b.lt	1f
	mov	x0, #33
	ret
1:	mov	x0, #44
	ret
	end branch_second

	function branch_al
	b.al	1f
	.inst	0
1:	add	x0, x0, #90
	ret
	end branch_al

	function branch_nv
	b.nv	1f
	.inst	0
1:	add	x0, x0, #91
	ret
	end branch_nv

	function zero
	cbz	x0, 1f
	mov	x0, #55
	ret
1:	mov	x0, #66
	ret
	end zero

	function not_zero
	cbnz	w0, 1f
	mov	x0, #77
	ret
1:	mov	x0, #88
	ret
	end not_zero

	function bit_clear
	tbz	w0, #0, 1f
	mov	x0, #101
	ret
1:	mov	x0, #102
	ret
	end bit_clear

	function bit_set
	tbnz	x0, #1, 1f
	mov	x0, #103
	ret
1:	mov	x0, #104
	ret
	end bit_set

	function address
	adr	x1, literal + 4
	ldr	w2, [x1]
	add	x0, x0, x2
	ret
	end address

	function address_zero
	adr	xzr, literal
	add	x0, x0, #5
	ret
	end address_zero

	function address_odd
	adr	x1, literal + 3
	ldrb	w2, [x1]
	add	x0, x0, x2
	ret
	end address_odd

	function page
	adrp	x1, value
	add	x1, x1, #:lo12:value
	ldr	x0, [x1, x0, lsl #3]
	ret
	end page

	function load_w
	ldr	w1, literal
	add	x0, x0, x1
	ret
	end load_w

	function load_x
	ldr	x1, literal + 24
	add	x0, x0, x1
	ret
	end load_x

	function load_x_unaligned
	ldr	x1, literal + 36
	add	x0, x0, x1
	ret
	end load_x_unaligned

	function load_zero
	ldr	xzr, literal
	add	x0, x0, #6
	ret
	end load_zero

	function load_signed
	ldrsw	x1, literal + 8
	add	x0, x0, x1
	ret
	end load_signed

	function prefetch
	prfm	pldl1keep, literal
	add	x0, x0, #8
	ret
	end prefetch

	function load_s
	ldr	s1, literal + 12
	fmov	w1, s1
	add	x0, x0, x1
	ret
	end load_s

	function load_d
	mov	x16, #77
	ldr	d1, literal + 16
	fmov	x1, d1
	add	x0, x0, x1
	add	x0, x0, x16
	ret
	end load_d

	function load_q
	mov	x16, #78
	ldr	q1, literal
	umov	x1, v1.d[1]
	add	x0, x0, x1
	add	x0, x0, x16
	ret
	end load_q

	function calls
	stp	x29, x30, [sp, #-16]!
	bl	helper
	ldp	x29, x30, [sp], #16
	ret
	end calls

	function loops
	mov	x1, x0
1:	cbz	x1, 2f
	sub	x1, x1, #1
	add	x0, x0, #3
	b	1b
2:	ret
	end loops

	.section .rodata
format:	.asciz	"%d: %lx %lx %lx\n"

	.text
	.globl	main
	.type	main, %function
main:	stp	x29, x30, [sp, #-64]!
	mov	x29, sp
	stp	x19, x20, [sp, #16]
	stp	x21, x22, [sp, #32]
	adrp	x19, __start_functions
	add	x19, x19, #:lo12:__start_functions
	adrp	x20, __stop_functions
	add	x20, x20, #:lo12:__stop_functions
	mov	x21, #0
1:	ldr	x9, [x19]
	mov	x0, #0
	blr	x9
	str	x0, [sp, #48]
	ldr	x9, [x19]
	mov	x0, #1
	blr	x9
	str	x0, [sp, #56]
	ldr	x9, [x19], #8
	mov	x0, #2
	blr	x9
	mov	x4, x0
	ldp	x2, x3, [sp, #48]
	mov	x1, x21
	adrp	x0, format
	add	x0, x0, #:lo12:format
	bl	printf
	add	x21, x21, #1
	cmp	x19, x20
	b.lo	1b
	mov	x0, #0
	ldp	x21, x22, [sp, #32]
	ldp	x19, x20, [sp, #16]
	ldp	x29, x30, [sp], #64
	ret
	.size	main, . - main
	.section .note.GNU-stack, "", %progbits
