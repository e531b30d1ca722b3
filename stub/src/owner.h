/* What a file is, and whom it belongs to. */
#ifndef FENTRY_OWNER_H
#define FENTRY_OWNER_H
#include "types.h"

struct file_state {
	u64 dev, ino, size;
	u32 mode, uid;
};

enum { S_IFMT_ = 0170000, S_IFREG_ = 0100000, OTHERS_WRITE = 022 };

hidden i64 file_state(i64 fd, struct file_state *s);
hidden int file_is_ours(const struct file_state *s);
hidden int file_is_safe(i64 fd, const struct file_state *s);

#endif
