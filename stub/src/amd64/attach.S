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

/* Where the dynamic loader comes in place of a function of its own that does nothing
   (attach.c): r11 is where it is to go on. A caller may know what that function leaves alone. */
HIDDEN(fentry_loaded)
fentry_loaded:
	.cfi_startproc
	.cfi_undefined %rip
	SAVE3
	SLOW	24
	call	fentry_loader_changed
	ENDSLOW	24
	RESTORE3
	notrack jmp *%r11
	.cfi_endproc
	.size fentry_loaded, . - fentry_loaded

	.section .note.GNU-stack, "", @progbits
