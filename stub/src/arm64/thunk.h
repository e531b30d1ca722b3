/* Where things are on arm64: numbers for C and assembly. Those of a thunk are those of
   arch/arm64/thunk.go; a test compares them. */
#ifndef FENTRY_THUNK_H
#define FENTRY_THUNK_H

/* a thunk, arch/arm64: its front and its back, and where their parts begin */
#define FRONT_SIZE         32
#define FRONT_SHIFT        5
#define BACK_SIZE          16
#define BACK_SHIFT         4
#define THUNK_CALL_END     20 /* front: return address of the call of enter */
#define THUNK_BYPASS       24 /* front: jump to the body, untraced */
#define THUNK_RET          4  /* back: return address of the traced body */

/* words of a control block (layout.h) */
#define CB_NEXT            8
#define CB_END             16
#define CB_TOP             24

/* A frame's slot is what is 16 bytes below S, the stack pointer at the call: S is a
   multiple of 16, so each call has 16 bytes of shadow of its own. They are the slot
   before it in the chain, and at 8 the caller's return address: the shadow of S - 8,
   as arch/arm64 and its unwind rules have it. In a second shadow are the time of the
   entry, and at 8 the child time, or the depth.

   A shadow is the slot with bits flipped. Which ones depends on the address, because
   address spaces have 48, 47, 42 or 39 bits, as the kernel was configured: stacks
   from SHADOW_SPLIT on are of the large ones. Positions of programs, at two thirds
   of the address space with the heap behind, and of what is mapped, from its top
   downwards, are far from a stack's shadow with any of them:

       bits   stack           shadow          second          program
       48     ffff xxxxxxxx   bfff xxxxxxxx   9fff xxxxxxxx   aaaa xxxxxxxx
       47     7fff xxxxxxxx   3fff xxxxxxxx   1fff xxxxxxxx   5555 xxxxxxxx
       42      3ff xxxxxxxx    3df xxxxxxxx    3cf xxxxxxxx    2aa xxxxxxxx
       39       7f xxxxxxxx     5f xxxxxxxx     4f xxxxxxxx     55 xxxxxxxx  */
#define SHADOW_SPLIT       42 /* bit: stacks that have it or a higher one set are high */
#define SHADOW_HIGH        46 /* bit flipped for these; in the second shadow the one below it, too */
#define SHADOW_LOW         37 /* bit flipped for others */

/* bits of fentry_sve: what the processor has */
#define SVE_REGISTERS      0
#define SVE_STREAMING      1 /* SME */

/* bytes of struct callregs (machine.h) */
#define CALLREGS_SIZE      240

#ifdef __ASSEMBLER__
#include "note.h"
#endif

#endif
