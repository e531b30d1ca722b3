/* The program's memory. */
#ifndef FENTRY_MEMORY_H
#define FENTRY_MEMORY_H
#include "control.h"

hidden u64 read_program(u32 pid, void *to, u64 at, u64 n);
hidden int check_filter(void);
hidden int read_own(void *to, u64 at, u64 n);
hidden u64 fetch(struct control *c, void *to, u64 at, u64 n);
hidden u32 read_data(struct control *c, u64 *w, int text, u32 arg, u64 at, u64 n, u64 want, u64 *have);
hidden const u8 *write_data(struct control *c, u64 t, int text, u32 arg, u64 at, u64 n, u64 want, u64 *have);

#endif
