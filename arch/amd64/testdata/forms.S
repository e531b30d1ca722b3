/*
 * One function for each PC-relative form that can stand at a function's entry,
 * long f(long), called by main with small arguments. Each prints differently
 * when its operand or target is wrong.
 */
	.macro	function name
	.globl	\name
	.type	\name, @function
	.p2align 4
\name:
	.endm
	.macro	end name
	.size	\name, . - \name
	.section .rodata
	.pushsection functions, "a", @progbits
	.quad	\name
	.popsection
	.text
	.endm

	.data
	.p2align 5
value:	.long	1000, 2000, 3000, 4000, 5000, 6000, 7000, 8000
slot:	.quad	helper

	.text
	function helper
	lea	7(%rdi), %rax
	ret
	end helper

	function jcc_short
	cmp	$2, %rdi
	je	1f
	mov	$11, %eax
	ret
1:	mov	$22, %eax
	ret
	end jcc_short

	function jcc_hint
	test	$1, %dil
	jnz,pt	1f
	mov	$33, %eax
	ret
1:	mov	$44, %eax
	ret
	end jcc_hint

	function jcc_near
	cmp	$3, %rdi
	.byte	0x0f, 0x8c			/* jl, 32-bit */
	.long	1f - . - 4
	mov	$55, %eax
	ret
1:	mov	$66, %eax
	ret
	end jcc_near

	function jmp_short
	mov	%rdi, %rax
	jmp	1f
	ud2
1:	inc	%rax
	ret
	end jmp_short

	function jmp_near
	.byte	0xe9
	.long	1f - . - 4
	ud2
1:	lea	2(%rdi), %rax
	ret
	end jmp_near

	function loop_forward
	mov	%rdi, %rcx
	loop	1f
	mov	$77, %eax
	ret
1:	mov	%rcx, %rax
	ret
	end loop_forward

	function loope_forward
	mov	$3, %ecx
	cmp	$2, %rdi
	loope	1f
	lea	80(%rcx), %rax
	ret
1:	lea	90(%rcx), %rax
	ret
	end loope_forward

	function loopne_forward
	mov	$3, %ecx
	cmp	$2, %rdi
	loopne	1f
	lea	100(%rcx), %rax
	ret
1:	lea	110(%rcx), %rax
	ret
	end loopne_forward

	function jrcxz_forward
	mov	%rdi, %rcx
	jrcxz	1f
	mov	$120, %eax
	ret
1:	mov	$130, %eax
	ret
	end jrcxz_forward

	function jecxz_forward
	mov	%rdi, %rcx
	bts	$40, %rcx			/* seen by jrcxz only */
	jecxz	1f
	mov	$140, %eax
	ret
1:	mov	$150, %eax
	ret
	end jecxz_forward

	function load
	mov	value+4(%rip), %eax
	add	%rdi, %rax
	ret
	end load

	function address
	lea	value(%rip), %rax
	mov	(%rax,%rdi,4), %eax
	ret
	end address

	function address32
	lea	value(%eip), %eax
	mov	8(%rax), %eax
	ret
	end address32

	function immediate
	cmpl	$0x7d0, value+4(%rip)		/* an immediate behind the displacement */
	sete	%al
	movzbl	%al, %eax
	ret
	end immediate

	function immediate8
	testb	$0xe8, value(%rip)		/* 1000 is 0x3e8 */
	setnz	%al
	movzbl	%al, %eax
	ret
	end immediate8

	function sse
	movdqa	value+16(%rip), %xmm0
	pshufd	$0xff, value(%rip), %xmm1
	movd	%xmm0, %eax
	movd	%xmm1, %edx
	add	%rdx, %rax
	ret
	end sse

	function call_direct
	sub	$8, %rsp
	call	helper
	add	$8, %rsp
	ret
	end call_direct

	function call_indirect
	sub	$8, %rsp
	call	*slot(%rip)
	add	$8, %rsp
	ret
	end call_indirect

	function jmp_indirect
	jmp	*slot(%rip)
	end jmp_indirect

	function padded_call
	push	%rbp
	mov	%rsp, %rbp
	.byte	0x67				/* as relaxed by linkers */
	call	helper
	pop	%rbp
	ret
	end padded_call

	function big_immediate
	endbr64
	movabs	$0x123456789abcdef0, %rax
	xor	%rdi, %rax
	ret
	end big_immediate

	function framed
	enter	$32, $0
	mov	%rdi, -8(%rbp)
	mov	-8(%rbp), %rax
	leave
	ret
	end framed

	function back_to_entry
	sub	$1, %rdi
	cmp	$0, %rdi
	jg	back_to_entry
	mov	%rdi, %rax
	ret
	end back_to_entry

	.globl	main
main:	/* not a function symbol: stays where it is */
	push	%rbx
	push	%r12
	push	%r13
	lea	__start_functions(%rip), %rbx
1:	xor	%r12d, %r12d
2:	mov	%r12, %rdi
	call	*(%rbx)
	lea	format(%rip), %rdi
	mov	%r12, %rsi
	mov	%rax, %rdx
	xor	%eax, %eax
	call	printf
	inc	%r12
	cmp	$6, %r12
	jne	2b
	add	$8, %rbx
	lea	__stop_functions(%rip), %rax
	cmp	%rax, %rbx
	jne	1b
	pop	%r13
	pop	%r12
	pop	%rbx
	xor	%eax, %eax
	ret

	.section .rodata
format:	.asciz	"%ld %lx\n"

#include "room.S"
