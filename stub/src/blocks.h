/* The memory of control blocks, and how a thread finds its own. */
#ifndef FENTRY_BLOCKS_H
#define FENTRY_BLOCKS_H
#include "control.h"

/* What a forked child finds of the thread of its parent that a block was of. */
struct twin { u32 pid, tid; u64 owner; };

struct null_block { u8 b[128]; };

extern hidden struct control **fentry_blocks;
extern hidden struct null_block fentry_null_cb;
extern hidden u64 fentry_first_thread[8];
extern hidden u32 based;

hidden struct twin *find_twin(u64 p);
hidden int take_block(struct control *c, u32 pid, u32 tid);
hidden struct control *free_block(u32 pid, u32 tid);
hidden struct control *find_block(u64 owner, int forked);
hidden struct control *leader_block(u32 pid);
hidden int share_base(void);
hidden u32 *own_libtid(u32 tid);
hidden int publish(struct control *c);
hidden struct control *table_block(u64 owner);
hidden void blocks_wipe(void);
hidden void blocks_bases(void);
hidden struct control *next_block(u32 *i);
hidden void blocks_leave(void);

#endif
