/* How a thread of a process that a recorder has attached to comes to a routine of attach.c.

   The recorder sets the registers: rsp to a stack of its own, r12 to the routine, rdi and
   rsi to its arguments, rbx to two words. The second one gets the result, the first one
   then says that it is there. A breakpoint would be shorter, but a SIGTRAP that a thread blocks
   or ignores costs the program its handler, even if a tracer takes it. So the thread
   spins until the recorder stops it. */
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
1:	pause
	jmp	1b
	.cfi_endproc
	.size fentry_remote, . - fentry_remote

	.section .note.GNU-stack, "", @progbits
