/* Where the dynamic loader comes in place of a function of its own that does nothing
   (fentry_loader_changed): r11 is where it is to go on. A caller may know what that function leaves alone. */
#include "macros.h"

	.text
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
