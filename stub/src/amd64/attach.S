/* How a thread of a process that a recorder has attached to comes to a routine of attach.c.

   The recorder sets the registers: rsp to a stack of its own, r12 to the routine, rdi and
   rsi to its arguments, rbx to two words, and r13 to code that leads the thread back to where it was,
   where the recorder stops it at a system call. The second word gets the result, the first one
   then says that it is there. A breakpoint would be shorter, but a SIGTRAP that a thread blocks
   or ignores costs the program its handler, even if a tracer takes it; and the recorder can be killed
   meanwhile. Any other signal may be pending, for a file that tells of it or a thread that waits for it. */
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
	jmp	*%r13
	.cfi_endproc
	.size fentry_remote, . - fentry_remote

	.section .note.GNU-stack, "", @progbits
