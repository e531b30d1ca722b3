/* How a thread of a process that a recorder has attached to comes to a routine of attach.c.

   The recorder sets the registers: rsp to a stack of its own, r12 to the routine, rdi and
   rsi to its arguments, rbx to two words, r14 to a signal that the program does not handle, and r13
   to code that leads the thread back to where it was. The second word gets the result, the first one
   then says that it is there. A breakpoint would be shorter, but a SIGTRAP that a thread blocks
   or ignores costs the program its handler, even if a tracer takes it; and the recorder can be killed
   meanwhile. A signal that is ignored stops a thread only if that is traced. */
#include "macros.h"

	.text
HIDDEN(fentry_remote)
fentry_remote:
	.cfi_startproc
	.cfi_undefined %rip
	and	$-16, %rsp
	call	*%r12
	mov	%rax, 8(%rbx)
	movl	$1, (%rbx)
	mov	$39, %eax		/* getpid */
	syscall
	mov	%eax, %edi
	mov	$186, %eax		/* gettid */
	syscall
	mov	%eax, %esi
	mov	%r14d, %edx
	mov	$234, %eax		/* tgkill */
	syscall
	jmp	*%r13
	.cfi_endproc
	.size fentry_remote, . - fentry_remote

	.section .note.GNU-stack, "", @progbits
