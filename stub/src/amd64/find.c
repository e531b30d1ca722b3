/* What unwinders of a process that a recorder has attached to find where.

   glibc knows what its loader has loaded, and nothing of what was added to that since. */
#include "image.h"
#include "walk.h"

/* What glibc tells unwinders of an address: the beginning of struct dl_find_object (<dlfcn.h>). */
struct object { u64 flags, from, to, link_map, header; };

hidden int fentry_find_object(u64 pc, struct object *to);
hidden int (*fentry_finder)(u64 pc, struct object *to); /* glibc's routine for that; a recorder puts it here */

/* fentry_find_object is what glibc's _dl_find_object comes to in place of its own routine: unwinders ask it for the table that
   knows an address, in signal handlers, too. Of what was added to an image glibc knows nothing, and of all else more. What
   was added belongs to the image of its first function, or, if it has none, of the first entry of the table. */
hidden int fentry_find_object(u64 pc, struct object *to)
{
	int (*find)(u64, struct object *) = load(&fentry_finder);
	struct fde f;
	if (find(pc, to) == 0)
		return 0;
	struct image *m = find_added(pc, &f);
	u64 of = m ? image_site((struct function){ m, 1 }) : 0;
	if (m && !of)
		of = (u64)m->unwind + (u64)(i64)*search_table(m->unwind);
	if (!of || find(of, to) != 0)
		return -1;
	to->from = f.pc;
	to->to = f.pc + f.size;
	to->header = (u64)m->unwind;
	return 0;
}
