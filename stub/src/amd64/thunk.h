/* Where things are on x86-64: numbers for C and assembly. Those of a thunk are those of
   arch/amd64/thunk.go; a test compares them. */
#ifndef FENTRY_THUNK_H
#define FENTRY_THUNK_H

/* a thunk, arch/amd64: where its parts begin */
#define THUNK_SIZE         32 /* of the small ones, and what all are aligned to */
#define THUNK_BYPASS       7  /* jump to the body, untraced, if the zero flag is set */
#define THUNK_CALL_END     18 /* return address of the call of enter */
#define THUNK_RET          23 /* return address of the traced body */
#define THUNK_RET_END      31 /* return address of the call of exit */
#define BACK_SIZE          THUNK_SIZE /* thunks are in one piece */

/* words of a control block (layout.h): one instruction compares and exchanges next and end, at a multiple of 16 */
#define CB_TOP             8
#define CB_NEXT            16
#define CB_END             24

/* shadow words of the return address slot S: S with bits flipped. Of a thread's stack they are at 0x2fff..., 0x3fff..., 0x5fff...
   and 0x6fff..., out of the way of AddressSanitizer (below 0x1000...) and of CLISP's heap (0x1000... to 0x1fff...). */
#define SHADOW_RET         46 /* bit of: the caller's return address */
#define SHADOW_PREV        44 /* this bit too: the slot of the frame below it in the chain */
/* time:  bit SHADOW_PREV alone;  child time, depth: bit SHADOW_AUX alone */
#define SHADOW_AUX         45

/* bytes of struct callregs (machine.h) */
#define CALLREGS_SIZE      176

#endif
