/* The configuration, which the patcher fills in; the classic tracer does so at its start.
   It is assembly, so that no value of it is ever folded. */
#include "config.h"
#include "layout.h"

#ifdef FENTRY_CLASSIC
	.bss
	.globl fentry_classic_config
	.hidden fentry_classic_config
	.type fentry_classic_config, @object
	.size fentry_classic_config, CONFIG_SIZE
#else
	.section .rodata
#endif
	.p2align 6
	.globl fentry_config
	.hidden fentry_config
	.type fentry_config, @object
	.size fentry_config, CONFIG_SIZE
fentry_config:
#ifdef FENTRY_CLASSIC
fentry_classic_config:
#endif
	.zero CONFIG_SIZE
	.section .note.GNU-stack, "", @progbits
