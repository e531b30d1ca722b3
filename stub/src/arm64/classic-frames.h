/* Words of fentry_classic_frames: what is known of a call of _mcount. Only #defines:
   assembly includes this. */
#ifndef FENTRY_CLASSIC_FRAMES_H
#define FENTRY_CLASSIC_FRAMES_H

/* of the index: the call's distance from the image's start / 16, as functions with calls
   are longer */
#define FRAMES_BITS 16
#define FRAMES      (1 << FRAMES_BITS)
#define FRAME_KEY   32   /* bit, of that distance / 4 */
#define FRAME_PLAIN 0x80000000 /* the return address is in the frame record as it is; */
#define FRAME_A     0x40000000 /* signed by key A, with the stack pointer at the function's start; */
#define FRAME_B     0x20000000 /* by key B; if none of the three, nothing is known */
#define FRAME_SIZE  0x1fffffff /* of x29 from that stack pointer, in words of 8 bytes */

#ifndef __ASSEMBLER__
hidden u64 fentry_classic_frame(u64 pc, u64 sp, u64 fp);
hidden void fentry_classic_find_frames(void);
#endif
#endif
