/* The running thread. */
#ifndef FENTRY_THREAD_H
#define FENTRY_THREAD_H
#include "control.h"

hidden struct control *this_thread(void);

#endif
