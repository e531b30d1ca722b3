/* The running thread. */
#ifndef FENTRY_THREAD_H
#define FENTRY_THREAD_H
#include "control.h"

hidden struct control *quick_block(void);
hidden struct control *this_thread(void);
hidden struct control *child_block(struct control *parent, u32 tid);

#endif
