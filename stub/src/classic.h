/* The classic tracer: what classic.c and the machines' classic-machine.c share. */
#ifndef FENTRY_CLASSIC_H
#define FENTRY_CLASSIC_H
#include "block.h"
#include "blocks.h"
#include "chunk.h"
#include "fentry.h"
#include "frame.h"
#include "source.h"
#include "stack.h"
#include "start.h"

#define public __attribute__((visibility("default")))
#define HANDLER ((u64)return_to_handler)

/* Where the image is in memory: linkers define these. */
extern hidden const u8 image_start[] __asm__("__ehdr_start"), text_end[] __asm__("_etext");

/* ---- classic.c ---- */
hidden void fentry_classic_record(u64 *parent, u64 slot, u32 id, u64 fp);
hidden void fentry_classic_prepare(u64 *parent, u64 slot, u64 selfpc, u64 fp);

hidden void fentry_classic_lost(void);

/* ---- classic-machine.c ---- */
/* fentry_classic_machine looks at the processor and the image, at the start. */
hidden void fentry_classic_machine(void);

#endif
