/* A recorder that cannot be seen in /proc: it is in another PID namespace, as it is for
   programs in containers, or in another user's namespace, or /proc is not mounted.

   What such a program and its recorder have in common is at best a directory: the program
   finds a trace where its own would be, which is being recorded. There the recorder listens
   at a socket (session/join.go), looks who asks, and hands over a descriptor of its pool. The
   descriptor is closed as soon as the pool is mapped. An inherited descriptor, or a variable
   of the environment, would be seen by the program and by all that it starts; a name in the
   abstract namespace of sockets belongs to whoever takes it first, and is not seen where
   there is a network namespace, which containers have.

   The directory has been found to be this user's alone (directory.c), and so is the socket.
   Nobody is waited for long: a recorder that is stopped does not answer. */
#include "machine.h"
#include "owner.h"
#include "pool.h"
#include "recorder.h"
#include "source.h"
#include "sys.h"
#include "text.h"

enum {
	AF_UNIX_ = 1, SOCK_STREAM_ = 1, SOCK_CLOEXEC_ = O_CLOEXEC_,
	SOL_SOCKET_ = 1, SO_RCVTIMEO_ = 20, SO_SNDTIMEO_ = 21, SCM_RIGHTS_ = 1, MSG_CMSG_CLOEXEC_ = 0x40000000,
	PATIENCE = 500000, /* us */
};

/* receive takes one descriptor from a socket. */
static i64 receive(i64 s)
{
	/* struct iovec, struct cmsghdr and struct msghdr */
	u8 byte;
	struct { u8 *base; u64 len; } data = { &byte, 1 };
	struct { u64 len; i32 level, type, fd; } rights = { 0, 0, 0, 0 };
	enum { ONE = offsetof(__typeof__(rights), fd) + sizeof rights.fd };
	struct { void *name; u64 namelen; void *data; u64 ndata; void *control; u64 ncontrol; u64 flags; } m = {
		0, 0, &data, 1, &rights, ONE, 0,
	};
	i64 r = sys(SYS_recvmsg, s, &m, MSG_CMSG_CLOEXEC_, 0, 0, 0);
	if (failed(r))
		return r;
	return m.ncontrol >= ONE && rights.len == ONE && rights.level == SOL_SOCKET_ && rights.type == SCM_RIGHTS_
		? rights.fd : -EINVAL_;
}

/* ask asks the recorder of the trace in dir for a descriptor of its pool. */
static i64 ask(i64 dir)
{
	struct { unsigned short family; char path[108]; } a = { AF_UNIX_, "/proc/self/fd/" };
	struct { i64 sec, usec; } wait = { 0, PATIENCE };
	char *e = decimal(a.path + length(a.path), (u64)dir);
	memcpy(e, "/" FT_FILE_SOCKET, sizeof "/" FT_FILE_SOCKET);
	i64 s = sys(SYS_socket, AF_UNIX_, SOCK_STREAM_ | SOCK_CLOEXEC_, 0, 0, 0, 0);
	if (failed(s))
		return s;
	sys(SYS_setsockopt, s, SOL_SOCKET_, SO_RCVTIMEO_, &wait, sizeof wait, 0);
	sys(SYS_setsockopt, s, SOL_SOCKET_, SO_SNDTIMEO_, &wait, sizeof wait, 0);
	i64 r = sys(SYS_connect, s, &a, sizeof a, 0, 0, 0);
	if (!failed(r))
		r = receive(s);
	close(s);
	return r;
}

/* recorder_join joins the recorder of the trace in dir. It returns 0 if there is none, or if
   it does not want this process. */
hidden int recorder_join(i64 dir)
{
	u8 head[FT_H_SCARCE + 4] __attribute__((aligned(8)));
	i64 fd = ask(dir);
	if (failed(fd))
		return 0;
	int ok = sys(SYS_pread64, fd, head, sizeof head, 0, 0, 0) == (i64)sizeof head && header_ok(head) &&
		 *(u32 *)(head + FT_H_CHUNKS) && pool_open(fd, head);
	close(fd);
	return ok;
}
