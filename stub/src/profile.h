/* The tables of the tracers profile and count. */
#ifndef FENTRY_PROFILE_H
#define FENTRY_PROFILE_H
#include "control.h"

struct image;

hidden int has_table(struct control *c, const struct image *m);
hidden struct table *image_table(struct control *c, const struct image *m);
hidden int begin_tables(struct control *c, struct table first);
hidden void profile_skipped(struct control *c, u64 from, u64 to);

#endif
