/* Where a thread is in the program while it is in the copy of a system call: backtrace.c. The copies are
   those of arch/arm64, syscall.go and cancel.go; each is as long as all others of its kind. */
#ifndef FENTRY_COPIES_H
#define FENTRY_COPIES_H
#include "walk.h"

/* Behind the call of fentry_syscall_enter. */
enum { POP_LINK = 0xa8c17bf0, TO_SVC = 4, SYSCALL_JUMP = 20, CALL_JUMP = 44 };

static inline int is_svc_copy(u64 place) { return *(const u32 *)place == POP_LINK; }

/* at_syscall: a copy of the instruction itself has saved x16 and x30 behind the other registers. That of a call has its
   arguments there, and its rows say so. */
static inline struct registers at_syscall(const struct sysregs *r, u64 sp)
{
	u64 place = syscall_place(r);
	if (is_svc_copy(place))
		return (struct registers){ place + TO_SVC, sp, syscall_fp(r), r->x30, 1 };
	return (struct registers){ place, (u64)&r->x16, syscall_fp(r), 0, 1 };
}

/* original_place: pc is what at_syscall had. 0: the copy does not go back to where a file is. */
static inline u64 original_place(u64 pc)
{
	u64 jump = is_svc_copy(pc - TO_SVC) ? pc - TO_SVC + SYSCALL_JUMP : pc + CALL_JUMP;
	u32 w = *(const u32 *)jump, i;
	u64 to = jump + (u64)((i64)((u64)w << 38) >> 36);
	if (w >> 26 != 5) /* b */
		return 0;
	const u32 *far = (const u32 *)to;
	if (far[0] == 0x58000050 && far[1] == 0xd61f0200) /* ldr x16, .+8; br x16 */
		__builtin_memcpy(&to, far + 2, sizeof to);
	return loaded_at(to, &i) ? to : 0;
}

#endif
