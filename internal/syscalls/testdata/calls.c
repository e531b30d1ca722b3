// Makes system calls, each once or in a few forms, with arguments that are the same in every run. What is between the
// two marks is compared with what strace shows.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/openat2.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <arpa/inet.h>
#include <linux/netlink.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/times.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/utsname.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>
#include <utime.h>

#define S(name, ...) syscall(SYS_##name, ##__VA_ARGS__)

static void files(void)
{
	static char buf[100], big[64];
	struct stat st;
	struct statx sx;
	struct statfs sf;
	struct timespec ts[2] = { { 1, 2 }, { 0, UTIME_OMIT } }, now[2] = { { 0, UTIME_NOW }, { 1000000000, 0 } };
	struct timeval tv[2] = { { 3, 4 }, { 5, 0 } };
	struct open_how how = { O_RDONLY | O_CLOEXEC, 0, RESOLVE_NO_SYMLINKS };
	struct iovec v[2] = { { "abc", 3 }, { "defg\n\1\0022\377\"\\", 11 } }, r[2] = { { buf, 5 }, { big, 20 } };
	loff_t off = 1;
	memset(big, 'x', sizeof big);
	int fd = S(openat, AT_FDCWD, "file", O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	S(open, "file", O_RDONLY | O_NONBLOCK | O_DIRECTORY);
	S(open, "new", O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_SYNC, 0600);
	S(open, "file", O_RDWR | O_DSYNC | O_NOFOLLOW | O_NOATIME | O_PATH);
	S(openat, AT_FDCWD, ".", O_TMPFILE | O_WRONLY, 0666);
	S(openat, AT_FDCWD, "nothing", O_RDONLY);
	S(openat, AT_FDCWD, "a string that is much longer than thirty-two bytes, but a path", O_RDONLY);
	S(openat2, AT_FDCWD, "file", &how, sizeof how);
	S(creat, "created", 0640);
	S(write, fd, "hello\n", 6);
	S(write, fd, big, sizeof big);
	S(write, fd, "", 0);
	S(write, 99, "bad", 3);
	S(write, fd, NULL, 3);
	S(pwrite64, fd, "at", 2, 7);
	S(lseek, fd, 0, SEEK_SET);
	S(lseek, fd, -3, SEEK_END);
	S(lseek, fd, 0, SEEK_DATA);
	S(read, fd, buf, 6);
	S(read, fd, buf, 50);
	S(read, fd, buf, 0);
	S(read, 99, buf, 10);
	S(pread64, fd, buf, 4, 2);
	S(writev, fd, v, 2);
	S(lseek, fd, 0, SEEK_SET);
	S(readv, fd, r, 2);
	S(preadv, fd, r, 2, 3L, 0L);
	S(pwritev, fd, v, 1, 3L, 0L);
	S(preadv2, fd, r, 2, 3L, 0L, RWF_HIPRI);
	S(fsync, fd);
	S(fdatasync, fd);
	S(ftruncate, fd, 10);
	S(truncate, "file", 20);
	S(fallocate, fd, FALLOC_FL_KEEP_SIZE, 0, 4096);
	S(fallocate, fd, 0, 0, 100);
	S(fadvise64, fd, 0, 0, POSIX_FADV_WILLNEED);
	S(sync_file_range, fd, 0, 10, SYNC_FILE_RANGE_WRITE);
	S(stat, "file", &st);
	S(lstat, ".", &st);
	S(fstat, fd, &st);
	S(newfstatat, AT_FDCWD, "/dev/null", &st, 0);
	S(newfstatat, fd, "", &st, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW);
	S(stat, "nothing", &st);
	S(statx, AT_FDCWD, "file", AT_STATX_SYNC_AS_STAT | AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS, &sx);
	S(statx, AT_FDCWD, "nothing", AT_STATX_DONT_SYNC, STATX_MODE | STATX_UID, &sx);
	S(statfs, ".", &sf);
	S(fstatfs, fd, &sf);
	S(access, "file", F_OK);
	S(access, "file", R_OK | W_OK);
	S(faccessat, AT_FDCWD, "file", X_OK);
	S(faccessat2, AT_FDCWD, "file", R_OK, AT_EACCESS);
	S(chmod, "file", 0644);
	S(chmod, "file", 04755);
	S(fchmod, fd, 0);
	S(fchmodat, AT_FDCWD, "file", 0600);
	S(chown, "file", -1, -1);
	S(lchown, "file", 0, -1);
	S(fchown, fd, -1, -1);
	S(fchownat, AT_FDCWD, "file", -1, -1, AT_SYMLINK_NOFOLLOW);
	S(umask, 027);
	S(umask, 022);
	S(link, "file", "link");
	S(linkat, AT_FDCWD, "file", AT_FDCWD, "link2", AT_SYMLINK_FOLLOW);
	S(symlink, "file", "sym");
	S(symlinkat, "file", AT_FDCWD, "sym2");
	S(readlink, "sym", buf, 100);
	S(readlinkat, AT_FDCWD, "sym2", buf, 2);
	S(rename, "link", "link3");
	S(renameat, AT_FDCWD, "link3", AT_FDCWD, "link4");
	S(renameat2, AT_FDCWD, "link4", AT_FDCWD, "link2", RENAME_NOREPLACE);
	S(unlink, "link4");
	S(unlinkat, AT_FDCWD, "link2", 0);
	S(mkdir, "dir", 0755);
	S(mkdirat, AT_FDCWD, "dir2", 0700);
	S(rmdir, "dir");
	S(unlinkat, AT_FDCWD, "dir2", AT_REMOVEDIR);
	S(mknod, "fifo", S_IFIFO | 0600, 0);
	S(mknodat, AT_FDCWD, "nowhere/null", S_IFCHR | 0666, 0x103);
	S(chdir, "nothing");
	S(fchdir, 99);
	S(getcwd, buf, 100);
	S(chroot, "nothing");
	S(utimensat, AT_FDCWD, "file", ts, 0);
	S(utimensat, AT_FDCWD, "file", now, AT_SYMLINK_NOFOLLOW);
	S(utimensat, AT_FDCWD, "file", NULL, 0);
	S(utimes, "file", tv);
	S(futimesat, AT_FDCWD, "file", tv);
	struct utimbuf ut = { 1, 2000000000 };
	S(utime, "file", &ut);
	S(setxattr, "file", "user.a", "value", 5, XATTR_CREATE);
	S(getxattr, "file", "user.a", buf, 100);
	S(getxattr, "file", "user.none", buf, 100);
	S(listxattr, "nothing", buf, 100);
	S(removexattr, "file", "user.a");
	S(flock, fd, LOCK_EX | LOCK_NB);
	S(flock, fd, LOCK_UN);
	struct flock fl = { F_WRLCK, SEEK_SET, 0, 10, 0 };
	S(fcntl, fd, F_SETLK, &fl);
	S(fcntl, fd, F_GETLK, &fl);
	S(fcntl, fd, F_GETFD);
	S(fcntl, fd, F_SETFD, 0);
	S(fcntl, fd, F_GETFD);
	S(fcntl, fd, F_SETFD, FD_CLOEXEC);
	S(fcntl, fd, F_GETFL);
	S(fcntl, fd, F_SETFL, O_RDWR | O_NONBLOCK);
	S(fcntl, fd, F_DUPFD, 20);
	S(fcntl, fd, F_DUPFD_CLOEXEC, 20);
	S(fcntl, fd, F_GETOWN);
	S(fcntl, fd, F_GETSIG);
	S(fcntl, fd, F_GETLEASE);
	S(fcntl, fd, 12345, 1);
	S(dup, fd);
	S(dup2, fd, 30);
	S(dup3, fd, 31, O_CLOEXEC);
	S(close, 31);
	S(close, 31);
	S(close_range, 40, 50, CLOSE_RANGE_CLOEXEC);
	int p[2];
	S(pipe, p);
	S(pipe2, p, O_CLOEXEC | O_NONBLOCK);
	S(fcntl, p[0], F_GETPIPE_SZ);
	S(splice, fd, NULL, p[1], NULL, 5, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
	S(splice, fd, &off, p[1], NULL, 5, 0);
	S(tee, p[0], p[1], 5, 0);
	S(vmsplice, p[1], v, 1, SPLICE_F_NONBLOCK);
	S(sendfile, p[1], fd, NULL, 4);
	off = 1;
	S(sendfile, p[1], fd, &off, 4);
	S(copy_file_range, fd, NULL, 99, NULL, 10, 0);
	int mf = S(memfd_create, "mem", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	S(fcntl, mf, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK);
	S(fcntl, mf, F_GET_SEALS);
	int dir = S(open, "/proc/self/task", O_RDONLY | O_DIRECTORY);
	(void)dir;
	S(mount, "none", "nowhere", "tmpfs", MS_RDONLY | MS_NOSUID, "size=1");
	S(umount2, "nowhere", MNT_DETACH);
	S(pivot_root, "nowhere", "nowhere/else");
	S(swapoff, "nowhere");
	S(quotactl, 0, "nowhere", 0, 0);
	S(sync);
	S(syncfs, fd);
	S(readahead, fd, 0, 10);
	S(acct, "nowhere");
	S(inotify_init);
	int in = S(inotify_init1, IN_CLOEXEC | IN_NONBLOCK);
	S(inotify_add_watch, in, "file", IN_MODIFY | IN_CREATE);
	S(inotify_rm_watch, in, 1);
	S(ioctl, fd, FIONREAD, buf);
	S(ioctl, fd, TCGETS, buf);
	S(ioctl, fd, TIOCGWINSZ, buf);
	S(ioctl, fd, FIOCLEX);
	int one = 1;
	S(ioctl, p[0], FIONBIO, &one);
	S(ioctl, p[0], FIONREAD, buf);
}

static void terminals(void)
{
	struct termios t;
	struct winsize w = { 24, 80, 0, 0 };
	int n = 0, fd = S(open, "/dev/ptmx", O_RDWR | O_NOCTTY);
	S(ioctl, fd, TCGETS, &t);
	S(ioctl, fd, TIOCSWINSZ, &w);
	S(ioctl, fd, TIOCGWINSZ, &w);
	S(ioctl, fd, TIOCSPTLCK, &n);
	S(ioctl, fd, TCSETS, &t);
}

static void memory(void)
{
	char *p = (char *)S(mmap, NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	S(mmap, p, 4096, PROT_NONE, MAP_SHARED | MAP_FIXED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	S(mmap, NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_DENYWRITE, 99, 0x1000);
	S(mmap, NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_STACK | MAP_POPULATE | MAP_GROWSDOWN, 99, 0);
	S(mprotect, p, 4096, PROT_READ);
	S(mprotect, p, 4096, PROT_NONE);
	S(madvise, p, 4096, MADV_DONTNEED);
	S(madvise, p, 4096, MADV_NORMAL);
	S(msync, p, 4096, MS_SYNC);
	S(mlock, p, 4096);
	S(mlock2, p, 4096, MLOCK_ONFAULT);
	S(munlock, p, 4096);
	S(mlockall, 99);
	S(munlockall);
	S(mincore, 1, 4096, p);
	S(mremap, p + 4096, 4096, 8192, MREMAP_MAYMOVE);
	S(mremap, 1, 4096, 8192, MREMAP_MAYMOVE | MREMAP_FIXED, 0x1000);
	S(munmap, p, 4096);
	S(munmap, 1, 4096);
	S(brk, 0);
	S(pkey_free, 9);
	S(membarrier, 0, 0, 0);
	S(remap_file_pages, 1, 4096, 0, 0, 0);
}

static void network(void)
{
	struct sockaddr_in in = { AF_INET, htons(53), { htonl(0x7f000001) } }, got;
	struct sockaddr_in6 in6 = { AF_INET6, htons(80), 0, IN6ADDR_LOOPBACK_INIT, 0 };
	struct sockaddr_un un = { AF_UNIX, "nowhere" }, abs = { AF_UNIX, "\0abstract" };
	struct sockaddr_nl nl = { AF_NETLINK, 0, 0, 1 };
	struct timeval tv = { 1, 500 };
	struct linger li = { 1, 2 };
	struct ucred cred;
	socklen_t len = sizeof got;
	int one = 1, val, sv[2];
	char buf[64];
	int t = S(socket, AF_INET, SOCK_STREAM | SOCK_CLOEXEC, IPPROTO_TCP);
	int u = S(socket, AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, IPPROTO_IP);
	int s6 = S(socket, AF_INET6, SOCK_DGRAM, 0);
	int n = S(socket, AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);
	int x = S(socket, AF_UNIX, SOCK_STREAM, 0);
	S(socketpair, AF_UNIX, SOCK_DGRAM, 0, sv);
	S(connect, x, &un, sizeof un);
	S(connect, x, &abs, offsetof(struct sockaddr_un, sun_path) + 9);
	S(connect, s6, &in6, sizeof in6);
	S(bind, n, &nl, sizeof nl);
	S(bind, 99, &in, sizeof in);
	S(connect, u, &in, sizeof in);
	S(getpeername, u, &got, &len);
	S(getsockname, 99, &got, &len);
	S(listen, 99, 5);
	S(accept, 99, NULL, NULL);
	S(accept4, 99, &got, &len, SOCK_CLOEXEC);
	S(shutdown, t, SHUT_RDWR);
	S(setsockopt, t, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	S(setsockopt, t, SOL_TCP, TCP_NODELAY, &one, sizeof one);
	S(setsockopt, t, SOL_SOCKET, SO_LINGER, &li, sizeof li);
	S(setsockopt, t, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof tv);
	S(setsockopt, t, SOL_IP, IP_TTL, &one, sizeof one);
	S(setsockopt, s6, SOL_IPV6, IPV6_V6ONLY, &one, sizeof one);
	len = sizeof val;
	S(getsockopt, t, SOL_SOCKET, SO_TYPE, &val, &len);
	S(getsockopt, t, SOL_SOCKET, SO_ERROR, &val, &len);
	S(getsockopt, t, SOL_SOCKET, SO_KEEPALIVE, &val, &len);
	len = sizeof cred;
	S(getsockopt, sv[0], SOL_SOCKET, SO_PEERCRED, &cred, &len);
	S(sendto, sv[0], "datagram", 8, MSG_NOSIGNAL, NULL, 0);
	S(recvfrom, sv[1], buf, 64, MSG_DONTWAIT, NULL, NULL);
	S(recvfrom, sv[1], buf, 64, MSG_DONTWAIT | MSG_PEEK, NULL, NULL);
	S(sendto, 99, "x", 1, 0, &in, sizeof in);
	struct iovec v = { "message", 7 }, r = { buf, 64 };
	union { struct cmsghdr c; char b[CMSG_SPACE(4)]; } ctl = { { CMSG_LEN(4), SOL_SOCKET, SCM_RIGHTS } };
	memcpy(CMSG_DATA(&ctl.c), &one, 4);
	struct msghdr m = { NULL, 0, &v, 1, &ctl, sizeof ctl, 0 }, mr = { NULL, 0, &r, 1, NULL, 0, 0 };
	S(sendmsg, sv[0], &m, 0);
	S(recvmsg, sv[1], &mr, 0);
	struct mmsghdr mm[2] = { { { NULL, 0, &v, 1, NULL, 0, 0 } }, { { NULL, 0, &v, 1, NULL, 0, 0 } } };
	S(sendmmsg, sv[0], mm, 2, MSG_DONTWAIT);
}

static void handler(int sig) { (void)sig; }

struct ksigaction { void *handler; unsigned long flags; void *restorer; unsigned long mask; };

static void signals(void)
{
	unsigned long set = 1UL << (SIGINT - 1) | 1UL << (SIGTERM - 1), old, all = ~0UL;
	struct ksigaction sa = { SIG_IGN, SA_RESTART, NULL, 1UL << (SIGHUP - 1) }, was;
	struct ksigaction hd = { (void *)handler, SA_SIGINFO | SA_NODEFER | SA_ONSTACK, NULL, 0 };
	struct timespec zero = { 0, 0 };
	siginfo_t si;
	stack_t st = { NULL, SS_DISABLE, 0 };
	S(rt_sigprocmask, SIG_BLOCK, &set, &old, 8);
	S(rt_sigprocmask, SIG_SETMASK, &all, &old, 8);
	S(rt_sigprocmask, SIG_SETMASK, &old, NULL, 8);
	S(rt_sigprocmask, SIG_UNBLOCK, NULL, &old, 8);
	S(rt_sigaction, SIGUSR1, &sa, &was, 8);
	S(rt_sigaction, SIGUSR2, NULL, &was, 8);
	S(rt_sigaction, SIGUSR2, &hd, NULL, 8);
	S(rt_sigaction, SIGRTMIN + 1, &sa, NULL, 8);
	S(rt_sigaction, 99, &sa, NULL, 8);
	S(rt_sigpending, &old, 8);
	S(kill, 0x3fffffff, SIGTERM);
	S(kill, 0x3fffffff, 0);
	S(tgkill, 0x3fffffff, 0x3fffffff, SIGUSR1);
	S(tkill, 0x3fffffff, SIGRTMIN);
	S(kill, getpid(), SIGINT);
	S(rt_sigtimedwait, &set, &si, &zero, 8);
	S(rt_sigtimedwait, &set, &si, &zero, 8);
	S(sigaltstack, NULL, &st);
	st.ss_flags = SS_DISABLE;
	S(sigaltstack, &st, NULL);
	S(signalfd4, -1, &set, 8, SFD_CLOEXEC | SFD_NONBLOCK);
}

static void waits(void)
{
	struct timespec zero = { 0, 0 }, ms = { 0, 1000 };
	struct timeval tv = { 0, 0 };
	unsigned long set = 0;
	int p[2];
	fd_set in, out;
	if (pipe(p)) return;
	struct pollfd pf[2] = { { p[0], POLLIN, 0 }, { p[1], POLLOUT | POLLPRI, 0 } }, none = { -1, POLLIN, 0 };
	S(poll, pf, 2, 0);
	S(poll, pf, 1, 0);
	S(poll, &none, 1, 0);
	S(poll, NULL, 0, 0);
	S(ppoll, pf, 2, &zero, &set, 8);
	FD_ZERO(&in); FD_ZERO(&out);
	FD_SET(p[0], &in); FD_SET(p[1], &out);
	S(select, 40, &in, &out, NULL, &tv);
	FD_SET(p[0], &in); FD_CLR(p[1], &out);
	S(select, 40, &in, NULL, NULL, &tv);
	S(pselect6, 40, &in, NULL, NULL, &zero, NULL);
	int ep = S(epoll_create1, EPOLL_CLOEXEC);
	S(epoll_create, 5);
	struct epoll_event ev = { EPOLLOUT | EPOLLET, { .u64 = 0x100000002 } }, got[4];
	S(epoll_ctl, ep, EPOLL_CTL_ADD, p[1], &ev);
	S(epoll_wait, ep, got, 4, 0);
	S(epoll_wait, ep, got, 4, 0);
	S(epoll_pwait, ep, got, 4, 0, &set, 8);
	S(epoll_ctl, ep, EPOLL_CTL_DEL, p[1], NULL);
	S(eventfd, 1);
	S(eventfd2, 3, EFD_SEMAPHORE | EFD_CLOEXEC);
	S(nanosleep, &ms, NULL);
	S(nanosleep, &ms, &zero);
	S(clock_nanosleep, CLOCK_MONOTONIC, 0, &ms, NULL);
	S(clock_nanosleep, CLOCK_REALTIME, TIMER_ABSTIME, &ms, NULL);
	S(clock_getres, CLOCK_MONOTONIC, &ms);
	S(clock_gettime, 99, &ms);
	S(clock_settime, 99, &ms);
	struct itimerval it = { { 0, 0 }, { 100, 0 } }, ot;
	S(setitimer, ITIMER_REAL, &it, &ot);
	S(setitimer, ITIMER_REAL, &(struct itimerval){ 0 }, NULL);
	S(getitimer, ITIMER_VIRTUAL, &ot);
	S(alarm, 0);
	struct itimerspec is = { { 0, 0 }, { 0, 1000 } }, os;
	int tf = S(timerfd_create, CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	S(timerfd_settime, tf, TFD_TIMER_ABSTIME, &is, &os);
	S(timerfd_settime, tf, 0, &(struct itimerspec){ 0 }, NULL);
	S(timerfd_gettime, tf, &os);
	struct sigevent se = { .sigev_notify = SIGEV_NONE };
	int id;
	S(timer_create, CLOCK_REALTIME, &se, &id);
	S(timer_settime, id, 0, &is, NULL);
	S(timer_getoverrun, id);
	S(timer_delete, id);
	unsigned word = 7;
	S(futex, &word, FUTEX_WAKE_PRIVATE, 1);
	S(futex, &word, FUTEX_WAIT, 8, NULL);
	S(futex, &word, FUTEX_WAIT_PRIVATE, 8, &ms);
	S(futex, &word, FUTEX_WAIT_BITSET_PRIVATE | FUTEX_CLOCK_REALTIME, 8, NULL, NULL, FUTEX_BITSET_MATCH_ANY);
	S(futex, &word, FUTEX_WAKE_BITSET, 1, NULL, NULL, 3);
	S(futex, &word, FUTEX_REQUEUE, 1, 2, &word + 1);
	S(futex, &word, FUTEX_CMP_REQUEUE_PRIVATE, 1, 2, &word + 1, 7);
	S(futex, &word, FUTEX_WAKE_OP_PRIVATE, 1, 1, &word, FUTEX_OP(FUTEX_OP_SET, 0, FUTEX_OP_CMP_GT, 1));
	S(futex, &word, FUTEX_UNLOCK_PI);
}

static void processes(void)
{
	struct rlimit rl = { 1024, RLIM_INFINITY };
	struct rusage ru;
	struct utsname un;
	struct sched_param sp = { 0 };
	unsigned long cpus[16] = { 1 };
	unsigned a, b, c;
	int st;
	char name[16], buf[8];
	struct { unsigned version; int pid; } hdr = { 0x20080522, 0 };
	unsigned data[6];
	S(getpid);
	S(getppid);
	S(gettid);
	S(getuid);
	S(geteuid);
	S(getgid);
	S(getegid);
	S(getresuid, &a, &b, &c);
	S(getresgid, &a, &b, &c);
	S(getpgrp);
	S(getpgid, 0);
	S(getsid, 0);
	S(setpgid, 0x3fffffff, 0);
	S(setuid, 0);
	S(setreuid, -1, -1);
	S(setresuid, -1, -1, -1);
	S(setfsuid, -1);
	S(getgroups, 0, NULL);
	S(getrlimit, RLIMIT_NOFILE, &rl);
	S(setrlimit, 99, &rl);
	S(prlimit64, 0, RLIMIT_CORE, NULL, &rl);
	rl.rlim_cur = 8 << 20;
	S(prlimit64, 0x3fffffff, RLIMIT_STACK, &rl, NULL);
	S(getrusage, 99, &ru);
	S(getpriority, PRIO_PROCESS, 0);
	S(setpriority, PRIO_USER, 0x3fffffff, 5);
	S(sched_yield);
	S(sched_getscheduler, 0);
	S(sched_setscheduler, 0, SCHED_OTHER, &sp);
	S(sched_getparam, 0, &sp);
	S(sched_get_priority_max, SCHED_FIFO);
	S(sched_get_priority_min, SCHED_RR);
	S(sched_setaffinity, 0x3fffffff, 8, cpus);
	S(sched_rr_get_interval, 0x3fffffff, NULL);
	S(uname, &un);
	S(sethostname, "name", -1);
	S(prctl, PR_SET_NAME, "task-name");
	S(prctl, PR_GET_NAME, name);
	S(prctl, PR_SET_PDEATHSIG, 0);
	S(prctl, PR_GET_PDEATHSIG, &st);
	S(prctl, PR_GET_DUMPABLE);
	S(prctl, PR_SET_DUMPABLE, 1);
	S(prctl, PR_SET_KEEPCAPS, 0);
	S(prctl, PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0);
	S(prctl, PR_CAPBSET_READ, 21);
	S(prctl, PR_GET_SECCOMP);
	S(prctl, PR_GET_TIMERSLACK);
	S(arch_prctl, 0x1003, &cpus[1]);
	S(personality, 0xffffffff);
	S(capget, &hdr, data);
	S(ioprio_get, 1, 0);
	S(getrandom, buf, 8, 1);
	S(kcmp, 0x3fffffff, 0x3fffffff, 0, 0, 0);
	S(pidfd_open, 0x3fffffff, 0);
	S(unshare, 0);
	S(unshare, CLONE_NEWNS | 0x1);
	S(setns, 99, CLONE_NEWNET);
	S(set_tid_address, &st);
	S(set_robust_list, NULL, 1);
	S(ptrace, 99, 0, 0, 0);
	S(wait4, -1, &st, WNOHANG | __WALL, NULL);
	S(waitid, P_PID, 0x3fffffff, NULL, WEXITED | WNOHANG, NULL);
	char *argv[] = { "prog", "an argument", NULL }, *envp[] = { "A=1", NULL };
	S(execve, "nowhere", argv, envp);
	S(execveat, AT_FDCWD, "nowhere", argv, envp, AT_SYMLINK_NOFOLLOW);
	pid_t pid = S(clone, CLONE_CHILD_SETTID | SIGCHLD, 0, 0, &st, 0);
	if (pid == 0)
		S(exit, 3);
	S(wait4, pid, &st, 0, NULL);
	if (S(fork) == 0)
		S(kill, getpid(), SIGKILL);
	S(waitid, P_ALL, 0, NULL, WEXITED | WNOWAIT, NULL);
	S(wait4, -1, &st, 0, NULL);
	S(clone, 0x80000000 | CLONE_SIGHAND, 0, 0, 0, 0);
	S(seccomp, 2, 0, NULL);
	S(syslog, 10, NULL, 0);
	S(bpf, 99, NULL, 0);
	S(keyctl, 99, 0, 0, 0, 0);
}

static void ipc(void)
{
	struct sembuf sb = { 0, -1, IPC_NOWAIT };
	struct { long type; char text[8]; } m = { 1, "text" };
	int key = 0x10000000 | getpid(); /* nobody else's, also if another run of this program was killed */
	int private = S(shmget, IPC_PRIVATE, 4096, 0), shared = S(shmget, key, 4096, IPC_CREAT | IPC_EXCL | 0600);
	S(shmctl, private, IPC_RMID, 0);
	S(shmctl, shared, IPC_RMID, 0);
	S(shmat, 99, NULL, SHM_RDONLY);
	S(shmdt, 1);
	S(semget, IPC_PRIVATE, -1, 0600);
	S(semop, -1, &sb, 1);
	S(msgget, 0x4321, 0);
	S(msgsnd, -1, &m, 4, IPC_NOWAIT);
	S(msgrcv, -1, &m, 4, 1, IPC_NOWAIT | MSG_NOERROR);
}

int main(void)
{
	S(write, -1, "begin", 5);
	files();
	terminals();
	memory();
	network();
	signals();
	waits();
	processes();
	ipc();
	S(write, -1, "end", 3);
	return 0;
}
