/*
 * A program whose memory is guarded (BTI), with a function to be traced that is
 * farther from its thunk than a branch reaches. It exits with 42 if the function
 * has run once and both routines have. The test fills in site, islands and thunk.
 */
	.text
	.globl	_start, f, island_near, landing_near
_start:	bti	c
	mov	x0, #20
	bl	f
	adrp	x1, seen
	ldr	x1, [x1, #:lo12:seen]
	add	x0, x0, x1
	mov	x8, #93
	svc	#0

	.type	f, %function
f:	bti	c
	nop
	nop
	paciasp
	add	x0, x0, #11
	autiasp
	ret
	.size	f, . - f
	.p2align 3
island_near:	.fill	8, 4, 0xd4200000
landing_near:	.fill	2, 4, 0xd4200000

	.section .far, "ax", %progbits
	.globl	thunks, backs, graph_enter, thunk_exit, island_far, landing_far
	.p2align 6
thunks:		.fill	8, 4, 0xd4200000
backs:		.fill	4, 4, 0xd4200000
island_far:	.fill	8, 4, 0xd4200000
landing_far:	.fill	2, 4, 0xd4200000
graph_enter:
	adrp	x17, thunks
	add	x17, x17, #:lo12:thunks
	sub	x17, x30, x17
	cmp	x17, #20
	b.ne	1f
	adrp	x17, kept
	str	x16, [x17, #:lo12:kept]
	adrp	x17, seen
	ldr	x16, [x17, #:lo12:seen]
	add	x16, x16, #1
	str	x16, [x17, #:lo12:seen]
1:	ret
thunk_exit:
	tbz	w17, #31, 1f
	adrp	x16, seen
	ldr	x17, [x16, #:lo12:seen]
	add	x17, x17, #10
	str	x17, [x16, #:lo12:seen]
1:	adrp	x16, kept
	ldr	x30, [x16, #:lo12:kept]
	ret

	.data
	.globl	armed
armed:	.word	1
	.p2align 3
kept:	.quad	0
seen:	.quad	0
