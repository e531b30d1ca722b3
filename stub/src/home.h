/* What the first runtime of a process, its home, offers to the other images. The structure
   is at HOME_PAGE (machine.h). */
#ifndef FENTRY_HOME_H
#define FENTRY_HOME_H
#include "control.h"
#include "image.h"

#define HOME_MAGIC 0x454d4f4859525446 /* the bytes FTRYHOME; 0: the home is still starting */
enum { HOME_VERSION = 6, HOME_SIZE = 4096 };

struct home {
	u64 magic;
	u32 version, size;
	/* An image that cannot be traced is left as it is: its switches stay off. Else its
	   words are filled in, among them the home's slow paths. */
	void (*register_image)(const struct image_info *info, struct words *words);
};

hidden void fentry_begin(u64 *sp);
hidden void home_begin(u64 *sp);
hidden void home_leave(void);

#endif
