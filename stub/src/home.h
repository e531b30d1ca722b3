/* What the first runtime of a process, its home, offers to the other images: guests have
   fast paths of their own, and nothing else. The structure is at HOME_PAGE (machine.h). */
#ifndef FENTRY_HOME_H
#define FENTRY_HOME_H
#include "control.h"
#include "image.h"

#define HOME_MAGIC 0x454d4f4859525446 /* the bytes FTRYHOME */
enum { HOME_VERSION = 1, HOME_SIZE = 4096 };

struct home {
	u64 magic;
	u32 version, size;
	/* Slow paths, for fast paths that find something not in place: slow.c. */
	int (*enter)(u64 slot, u32 id, struct image *m, u64 ret, u64 fp);
	u64 (*exit)(u64 slot, u32 id, struct image *m);
	struct control *(*record)(void);
	/* register_image returns 0 if the image cannot be traced: its switches stay off.
	   unregister_image is for one that is about to be unmapped. */
	struct image *(*register_image)(const struct image_info *info, struct words *words);
	void (*unregister_image)(struct image *m);
};

hidden void fentry_begin(u64 *sp);

#endif
