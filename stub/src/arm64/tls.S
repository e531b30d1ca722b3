/* The one thread-local word: a thread's control base (machine.h). Whoever links the runtime
   into an executable makes PT_TLS longer by it, at the end, where distances from the thread
   pointer to what is there already stay as they are. */
#include "layout.h"
#ifdef FENTRY_SHARED
	/* A shared object has none, but can learn of the executable's. */
	.bss
	.p2align 3
	.globl	fentry_word
	.hidden	fentry_word
	.type	fentry_word, %object
	.size	fentry_word, 8
fentry_word:
	.zero	8
#else
	.section .tbss, "awT", %nobits
	.p2align 3
	.globl	fentry_tls
	.hidden	fentry_tls
	.type	fentry_tls, %object
	.size	fentry_tls, 8
fentry_tls:
	.zero	8
#endif
	.section .note.GNU-stack, "", %progbits
