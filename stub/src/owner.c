/* What a file is, and whom it belongs to.

   A traced program is often root's, and finds what it writes to by looking around: at
   the descriptors of its ancestors, and at a name in its working directory. Another user
   can have put something there, and whoever shares memory with a program can do more than
   read its trace: a file that is made shorter while it is mapped ends the program by
   SIGBUS. So before anything is mapped or written it is asked, of the open file, whose it
   is. What is checked later of its contents is a copy that was read once. */
#include "machine.h"
#include "owner.h"
#include "sys.h"

/* file_state asks for the state of an open file. */
hidden i64 file_state(i64 fd, struct file_state *s)
{
	u64 st[18]; /* struct stat of the kernel: the machines differ in where mode and user are */
	i64 r = sys(SYS_fstat, fd, st, 0, 0, 0, 0);
	if (failed(r))
		return r;
	u8 *b = (u8 *)st;
	*s = (struct file_state){ st[0], st[1], *(u64 *)(b + 48), *(u32 *)(b + STAT_MODE), *(u32 *)(b + STAT_UID) };
	return 0;
}

/* file_is_ours says whether a file or directory belongs to this process's user. */
hidden int file_is_ours(const struct file_state *s)
{
	return s->uid == (u32)sys(SYS_geteuid, 0, 0, 0, 0, 0, 0);
}

/* file_is_safe says whether a file can be mapped together with whoever else has it open:
   it is this user's or root's, and others cannot make it shorter. That is what its mode is
   for, or, with a memory file, which is everybody's by its mode and is reached through
   /proc, a seal. */
hidden int file_is_safe(i64 fd, const struct file_state *s)
{
	enum { F_GET_SEALS_ = 1034, F_SEAL_SHRINK_ = 2 };
	if ((s->mode & S_IFMT_) != S_IFREG_ || (s->uid != 0 && !file_is_ours(s)))
		return 0;
	if (!(s->mode & OTHERS_WRITE))
		return 1;
	i64 seals = sys(SYS_fcntl, fd, F_GET_SEALS_, 0, 0, 0, 0);
	return !failed(seals) && (seals & F_SEAL_SHRINK_);
}
