/* The one thread-local word: a thread's control base (machine.h). */
#include "layout.h"
	.section .tbss, "awT", %nobits
	.p2align 3
	.globl	fentry_tls
	.hidden	fentry_tls
	.type	fentry_tls, %object
	.size	fentry_tls, 8
fentry_tls:
	.zero	8
	.section .note.GNU-stack, "", %progbits
