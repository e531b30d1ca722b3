/* What the first runtime of a process, its home, offers to the other images. The structure
   is at HOME_PAGE (machine.h). */
#ifndef FENTRY_HOME_H
#define FENTRY_HOME_H
#include "control.h"
#include "image.h"

enum { HOME_VERSION = 15, HOME_SIZE = 4096 };

struct home {
	u64 magic;
	u32 version, size;
	/* An image that cannot be traced is left as it is: its switches stay off. Else its
	   words are filled in, among them the home's slow paths. */
	void (*register_image)(const struct image_info *info, struct words *words);
	/* For a recorder, which changes what is traced. */
	struct image **images;
	u32 *armed, *silent;
	void (*remote)(void);
	u64 (*change)(const struct change *to);
	/* How far an image is that has registered, and says so (image.h). */
	void (*stage)(struct image *m, u32 stage);
	u32 *switched;
};

at(home, magic, MEETING_O_MAGIC);
at(home, version, MEETING_O_VERSION);
at(home, size, MEETING_O_SIZE);
at(home, images, MEETING_O_IMAGES);
at(home, armed, MEETING_O_ARMED);
at(home, silent, MEETING_O_SILENT);
at(home, remote, MEETING_O_REMOTE);
at(home, change, MEETING_O_CHANGE);
at(home, switched, MEETING_O_SWITCHED);

hidden void fentry_begin(u64 *sp);
hidden void home_begin(u64 *sp);
hidden void home_leave(void);

#endif
