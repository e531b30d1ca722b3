/* Where a thread is in the program while it is in the copy of a system call: backtrace.c. arm64/copies.h answers the
   same questions. */
#ifndef FENTRY_COPIES_H
#define FENTRY_COPIES_H
#include "memory.h"
#include "process.h"
#include "sys.h"
#include "walk.h"

/* at_syscall is the registers at a system call that is about to be made. */
static inline struct registers at_syscall(const struct sysregs *r, u64 sp)
{
	return (struct registers){ syscall_place(r), sp, syscall_fp(r), 1 };
}

/* original_place is where a copied system call goes on, behind the original one: pc is where it goes on to, in the copy.
   Its last instruction is a jump, to behind a window that begins with a jump to the copy, which no other bytes
   lead to. 0: it is not found, because the function returns in the copy. */
static inline u64 original_place(u64 pc)
{
	enum { LONGEST = 96, JUMP = 0xe9, JUMP_LEN = 5 };
	u8 copy[LONGEST + JUMP_LEN], code[LONGEST];
	u32 i;
	if (check_filter())
		return 0;
	u64 have = read_program(getpid(), copy, pc, sizeof copy);
	for (u64 n = 0; n + JUMP_LEN <= have; n++) {
		u64 to = pc + n + JUMP_LEN + (u64)(i64)*(const i32 *)(copy + n + 1);
		/* Any byte may look like a jump, and lead to where nothing is. */
		if (copy[n] != JUMP || !loaded_at(to - LONGEST, &i) || !read_own(code, to - LONGEST, LONGEST))
			continue;
		for (u32 k = LONGEST - JUMP_LEN; k > 0; k--)
			if (code[k] == JUMP && pc - (to - LONGEST + k + JUMP_LEN + (u64)(i64)*(const i32 *)(code + k + 1)) < LONGEST)
				return to;
	}
	return 0;
}

#endif
