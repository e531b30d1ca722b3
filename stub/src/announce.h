/* What readers are told of the image. */
#ifndef FENTRY_ANNOUNCE_H
#define FENTRY_ANNOUNCE_H
#include "control.h"
#include "image.h"

hidden int announce(struct control *c);
hidden void announce_joined(struct control *c);
hidden void announce_image(struct control *c, const struct image_info *info, struct image *m);
hidden int announce_images(struct control *c);

#endif
