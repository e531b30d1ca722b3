# The profiling functions of a program that has them linked in, as glibc's are, and where it starts.
	.text
	.globl	_start
	.type	_start,@function
_start:	.cfi_startproc
	call	start
	ud2
	.cfi_endproc
	.size	_start,.-_start

	.macro	profiler name, frompc
	.globl	\name
	.type	\name,@function
\name:	.cfi_startproc
	sub	$0x40,%rsp
	mov	%rax,(%rsp)
	mov	%rcx,8(%rsp)
	mov	%rdx,16(%rsp)
	mov	%rsi,24(%rsp)
	mov	%rdi,32(%rsp)
	mov	%r8,40(%rsp)
	mov	%r9,48(%rsp)
	mov	0x40(%rsp),%rsi
	mov	\frompc,%rdi
	call	count
	mov	48(%rsp),%r9
	mov	40(%rsp),%r8
	mov	32(%rsp),%rdi
	mov	24(%rsp),%rsi
	mov	16(%rsp),%rdx
	mov	8(%rsp),%rcx
	mov	(%rsp),%rax
	add	$0x40,%rsp
	ret
	.cfi_endproc
	.size	\name,.-\name
	.endm

	profiler __fentry__, 0x48(%rsp)
	profiler _mcount, 8(%rbp)
	.globl	mcount
	.set	mcount,_mcount

	.type	count,@function
count:	.cfi_startproc
	incq	calls(%rip)
	ret
	.cfi_endproc
	.size	count,.-count
	.local	calls
	.comm	calls,8,8
	.section .note.GNU-stack,"",@progbits
