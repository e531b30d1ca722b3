/* What readers are told of the image. */
#ifndef FENTRY_ANNOUNCE_H
#define FENTRY_ANNOUNCE_H
#include "control.h"

hidden int announce(struct control *c);
hidden int announce_images(struct control *c);

#endif
