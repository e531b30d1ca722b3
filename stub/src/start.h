/* Start of the runtime. */
#ifndef FENTRY_START_H
#define FENTRY_START_H
#include "control.h"

hidden void fentry_init(u64 *sp);
hidden int ready(void);
hidden struct control *traced_thread(void);
hidden int is_off(void);

#endif
