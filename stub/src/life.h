/* Whether the memory of images is there. */
#ifndef FENTRY_LIFE_H
#define FENTRY_LIFE_H
#include "image.h"

hidden int image_there(const struct image *m);
hidden void images_use(void);
hidden void images_used(void);
hidden void images_unused(void);

#endif
