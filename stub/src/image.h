/* The images of this process whose functions are traced. */
#ifndef FENTRY_IMAGE_H
#define FENTRY_IMAGE_H
#include "config.h"

/* An image. Once it is registered, only base and its switches ever change. */
struct image {
	const struct image_info *info;
	u64 thunks, size; /* address of the first thunk, bytes of all; 0: there are none */
	u8 *switches;     /* by local id, from 1 */
	const u8 *roots;  /* bitmap of graph roots by local id, 0: every function is one */
	u32 base;         /* ids in the trace are local ids plus this */
};

/* A traced function. */
struct function {
	struct image *image;
	u32 id; /* local */
};

static inline u32 trace_id(struct function f) { return f.image->base + f.id; }

extern hidden const struct image_info fentry_image;
extern hidden struct image fentry_own;

hidden int image_register(struct image *m, const struct image_info *info);
hidden int image_returns_to(u64 ret, struct function *f);
hidden int images_arm(int on);
hidden int images_armed(void);

#endif
