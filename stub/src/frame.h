/* Frames as slow paths open and close them. */
#ifndef FENTRY_FRAME_H
#define FENTRY_FRAME_H
#include "control.h"
#include "image.h"

hidden void frames_init(u64 hz);
hidden void frames_limit(u32 depth, u64 threshold, u64 hz);
hidden void frames_adopt(struct control *c);
hidden void frames_forget(struct control *c);
hidden int open_frame(struct control *c, u64 slot, u64 ret, struct function f, u64 t);
hidden void close_frame(struct control *c, u64 slot, struct function f, u64 t);
hidden void replace_frame(struct control *c, u64 slot, struct function old, struct function f, u64 t);
hidden int put_at_once(struct control *c, u32 first, u32 second);
hidden int skips_at_once(struct control *c, u64 slot, struct function f);
hidden int profile_open_at_once(struct control *c, u64 slot, u64 ret, struct function f);
hidden int profile_close_at_once(struct control *c, u64 slot, struct function f);
hidden int open_frame_at_once(struct control *c, u64 slot, u64 ret, struct function f);
hidden int close_frame_at_once(struct control *c, u64 slot, struct function f);
hidden int replace_frame_at_once(struct control *c, u64 slot, struct function old, struct function f);
hidden void pop_skipped(struct control *c, u64 slot, u64 t);
hidden u64 previous_frame(struct control *c, u64 slot);
hidden int call_lasted(u64 slot, u64 t, u64 ns);
hidden void keep_call(struct control *c, u64 slot);
hidden int slot_taken(struct control *c, u64 slot, u64 fp);
hidden int go_to_stack(struct control *c, u64 slot);
hidden void new_signal(struct control *c, u64 slot);

#endif
