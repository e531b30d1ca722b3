/* A program whose threads are in one state each: blocked in a system call, in a handler, in a restartable sequence, or
   whatever the name says that is given as an argument. They check what they get, until standard input ends. All the
   time a thread calls a function. It is called "ready" when each state has been come round to. At the end it says
   "right", or what was wrong. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/aio_abi.h>
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <mqueue.h>
#include <poll.h>
#include <pthread.h>
#include <pty.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/rseq.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static volatile int stop, stopped;
static int wrong;
#define NOINLINE __attribute__((noinline))

#define BAD(...) (__atomic_fetch_add(&wrong, 1, __ATOMIC_RELAXED) < 20 ? dprintf(2, __VA_ARGS__) : 0)

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

NOINLINE long sum(long n)
{
	long r = n ? n + sum(n - 1) : 0;
	__asm__ volatile("" : "+r"(r));
	return r;
}

/* A state: a call that is made again and again, and what it is to return: a value, and with -1 an error. It lasts for so
   many seconds at least. */
struct state {
	const char *name;
	long (*call)(int *p);	/* with whatever prepare has made */
	void (*prepare)(int *p);
	long result;
	int error;
	double seconds;
	long rounds;
};

static struct timespec in(double s)
{
	struct timespec t = { (time_t)s, (long)((s - (long)s) * 1e9) };
	return t;
}

#define SHORT 0.05

/* Time limits. */
static long c_nanosleep(int *p) { struct timespec t = in(SHORT); return nanosleep(&t, &t); }
static long c_clock(int *p)
{
	struct timespec t;
	clock_gettime(CLOCK_REALTIME, &t);
	t.tv_nsec += 50000000;
	if (t.tv_nsec >= 1000000000) t.tv_sec++, t.tv_nsec -= 1000000000;
	return clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &t, 0);
}
static void pipes(int *p) { if (pipe(p)) exit(9); }
static long c_poll(int *p) { struct pollfd f = { p[0], POLLIN, 0 }; return poll(&f, 1, 50); }
static long c_ppoll(int *p) { struct pollfd f = { p[0], POLLIN, 0 }; struct timespec t = in(SHORT); sigset_t s; sigemptyset(&s); return ppoll(&f, 1, &t, &s); }
static long c_select(int *p) { struct timeval t = { 0, 50000 }; fd_set r; FD_ZERO(&r); FD_SET(p[0], &r); return select(p[0] + 1, &r, 0, 0, &t); }
static long c_pselect(int *p) { struct timespec t = in(SHORT); fd_set r; sigset_t s; sigemptyset(&s); FD_ZERO(&r); FD_SET(p[0], &r); return pselect(p[0] + 1, &r, 0, 0, &t, &s); }
static void epolls(int *p) { p[0] = epoll_create1(0); }
static long c_epoll(int *p) { struct epoll_event e; return epoll_wait(p[0], &e, 1, 50); }
static long c_epoll_pwait(int *p) { struct epoll_event e; sigset_t s; sigemptyset(&s); return epoll_pwait(p[0], &e, 1, 50, &s); }
static long c_epoll_pwait2(int *p) { struct epoll_event e; struct timespec t = in(SHORT); return syscall(SYS_epoll_pwait2, p[0], &e, 1, &t, 0, 0); }
static long c_futex(int *p) { struct timespec t = in(SHORT); p[0] = 0; return syscall(SYS_futex, p, FUTEX_WAIT_PRIVATE, 0, &t, 0, 0); }
static long c_futex_until(int *p)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	t.tv_nsec += 50000000;
	if (t.tv_nsec >= 1000000000) t.tv_sec++, t.tv_nsec -= 1000000000;
	p[0] = 0;
	return syscall(SYS_futex, p, FUTEX_WAIT_BITSET_PRIVATE, 0, &t, 0, -1);
}
static long c_sigtimedwait(int *p) { sigset_t s; struct timespec t = in(SHORT); sigemptyset(&s); sigaddset(&s, SIGRTMIN + 3); return sigtimedwait(&s, 0, &t); }
static int sets[8], queue = -1; /* which would outlive the process */
static void semaphores(int *p)
{
	static int n;
	if ((p[0] = semget(IPC_PRIVATE, 1, 0600)) < 0) exit(9);
	sets[__sync_fetch_and_add(&n, 1)] = p[0] + 1;
}
static long c_semtimedop(int *p) { struct sembuf b = { 0, -1, 0 }; struct timespec t = in(SHORT); return semtimedop(p[0], &b, 1, &t); }
static void sockets(int *p)
{
	struct timeval t = { 0, 50000 };
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, p)) exit(9);
	setsockopt(p[0], SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t);
}
static long c_recv(int *p) { char c; return recv(p[0], &c, 1, 0); }
static long c_socket_read(int *p) { char c; return read(p[0], &c, 1); }
static void listening(int *p)
{
	struct timeval t = { 0, 50000 };
	struct sockaddr_un a = { AF_UNIX };
	p[0] = socket(AF_UNIX, SOCK_STREAM, 0);
	if (bind(p[0], (struct sockaddr *)&a, sizeof a.sun_family) || listen(p[0], 1)) exit(9);
	setsockopt(p[0], SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t);
}
static long c_accept(int *p) { return accept(p[0], 0, 0); }
static void aio(int *p) { aio_context_t c = 0; if (syscall(SYS_io_setup, 1, &c)) exit(9); memcpy(p, &c, sizeof c); }
static long c_getevents(int *p) { aio_context_t c; struct io_event e; struct timespec t = in(SHORT); memcpy(&c, p, sizeof c); return syscall(SYS_io_getevents, c, 1, 1, &e, &t); }
static void *timed(void *arg)
{
	pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
	pthread_cond_t c = PTHREAD_COND_INITIALIZER;
	struct timespec t;
	clock_gettime(CLOCK_REALTIME, &t);
	t.tv_nsec += 50000000;
	if (t.tv_nsec >= 1000000000) t.tv_sec++, t.tv_nsec -= 1000000000;
	pthread_mutex_lock(&m);
	*(int *)arg = pthread_cond_timedwait(&c, &m, &t);
	pthread_mutex_unlock(&m);
	return 0;
}
static long c_cond(int *p) { int r = 0; timed(&r); return r; }

/* Waits that another thread ends: p[0] is what is waited for, p[1] what ends it. */
struct waker { void (*wake)(int *p); int *p; };
static void *wakes(void *arg)
{
	struct waker w = *(struct waker *)arg;
	free(arg);
	for (;;) { /* until the process ends: who is woken may have looked at stop, and not wait yet */
		usleep(stop ? 1000 : 50000);
		w.wake(w.p);
	}
	return 0;
}
static void wake_with(void (*wake)(int *p), int *p)
{
	pthread_t t;
	struct waker *w = malloc(sizeof *w);
	*w = (struct waker){ wake, p };
	pthread_create(&t, 0, wakes, w);
	pthread_detach(t);
}
static void writes(int *p) { if (write(p[1], "12345678", 8) != 8) BAD("write: %d\n", errno); }
static void nonblock(int fd) { fcntl(fd, F_SETFL, O_NONBLOCK); }
static void writes_some(int *p) { if (write(p[1], "\1\0\0\0\0\0\0\0", 8) < 0 && errno != EAGAIN) BAD("write: %d\n", errno); }
static void piped(int *p) { pipes(p); nonblock(p[1]); wake_with(writes_some, p); }
static long c_read(int *p) { char b[8]; return read(p[0], b, 8); }
static void events(int *p) { p[0] = p[1] = eventfd(0, 0); wake_with(writes, p); }
static void terminal(int *p) { if (openpty(&p[1], &p[0], 0, 0, 0)) exit(9); nonblock(p[1]); }
static void types(int *p) { if (write(p[1], "1234567\n", 8) < 0 && errno != EAGAIN) BAD("pty: %d\n", errno); }
static void typed(int *p) { terminal(p); wake_with(types, p); }
static long c_timer(int *p)
{
	struct itimerspec t = { { 0, 0 }, in(SHORT) };
	uint64_t n = 0;
	timerfd_settime(p[0], 0, &t, 0);
	return read(p[0], &n, 8) == 8 ? (long)n : -1;
}
static void timers(int *p) { p[0] = timerfd_create(CLOCK_MONOTONIC, 0); }
static void *ends_soon(void *arg) { usleep(50000); return arg; }
static long c_join(int *p) { pthread_t t; void *r = 0; pthread_create(&t, 0, ends_soon, p); pthread_join(t, &r); return r == p; }
static long c_waitpid(int *p)
{
	int status = 0;
	pid_t pid = fork();
	if (pid == 0) { usleep(50000); _exit(42); }
	return waitpid(pid, &status, 0) == pid ? WEXITSTATUS(status) : -1;
}
static long c_waitid(int *p)
{
	siginfo_t s;
	pid_t pid = fork();
	if (pid == 0) { usleep(50000); _exit(43); }
	return waitid(P_PID, pid, &s, WEXITED) == 0 ? s.si_status : -1;
}
static long c_vfork(int *p)
{
	int status = 0;
	pid_t pid = vfork();
	if (pid == 0) { struct timespec t = in(SHORT); syscall(SYS_nanosleep, &t, 0); _exit(44); }
	return waitpid(pid, &status, 0) == pid ? WEXITSTATUS(status) : -1;
}
static void locking(int *p)
{
	char name[] = "/tmp/fentry-states-XXXXXX";
	p[0] = mkstemp(name);
	char path[64];
	sprintf(path, "/proc/self/fd/%d", p[0]);
	p[1] = open(path, O_RDWR);
	unlink(name);
}
static void *unlocks(void *arg) { usleep(50000); flock(((int *)arg)[1], LOCK_UN); return 0; }
static long c_flock(int *p)
{
	pthread_t t;
	flock(p[1], LOCK_EX);
	pthread_create(&t, 0, unlocks, p);
	long r = flock(p[0], LOCK_EX);
	flock(p[0], LOCK_UN);
	pthread_join(t, 0);
	return r;
}
static void *unlocks_range(void *arg)
{
	struct flock l = { F_UNLCK, SEEK_SET, 0, 1 };
	usleep(50000);
	fcntl(((int *)arg)[1], F_OFD_SETLK, &l);
	return 0;
}
static long c_setlkw(int *p)
{
	pthread_t t;
	struct flock l = { F_WRLCK, SEEK_SET, 0, 1 };
	fcntl(p[1], F_OFD_SETLK, &l);
	pthread_create(&t, 0, unlocks_range, p);
	long r = fcntl(p[0], F_OFD_SETLKW, &l);
	l.l_type = F_UNLCK;
	fcntl(p[0], F_OFD_SETLK, &l);
	pthread_join(t, 0);
	return r;
}
static void messages(int *p) { if ((p[0] = queue = msgget(IPC_PRIVATE, 0600)) < 0) exit(9); }
static void sends(int *p) { struct { long type; char b[8]; } m = { 1, "message" }; msgsnd(p[0], &m, 8, IPC_NOWAIT); }
static void messaged(int *p) { messages(p); wake_with(sends, p); }
static long c_msgrcv(int *p) { struct { long type; char b[8]; } m; return msgrcv(p[0], &m, 8, 0, 0); }
static void posts(int *p) { struct sembuf b = { 0, 1, 0 }; semop(p[0], &b, 1); }
static void posted(int *p) { semaphores(p); wake_with(posts, p); }
static long c_semop(int *p) { struct sembuf b = { 0, -1, 0 }; return semop(p[0], &b, 1); }
static void watching(int *p) { locking(p); p[1] = inotify_init(); char path[64]; sprintf(path, "/proc/self/fd/%d", p[0]); inotify_add_watch(p[1], path, IN_MODIFY); }
static void touches(int *p) { if (pwrite(p[0], "x", 1, 0) != 1) BAD("touch: %d\n", errno); }
static void watched(int *p) { watching(p); wake_with(touches, p); }
static long c_inotify(int *p) { char b[4096]; return read(p[1], b, sizeof b) > 0; }
static void full(int *p) { char b[4096] = { 0 }; pipes(p); fcntl(p[1], F_SETFL, O_NONBLOCK); while (write(p[1], b, sizeof b) > 0) ; fcntl(p[1], F_SETFL, 0); }
static void drains(int *p) { char b[65536]; nonblock(p[0]); if (read(p[0], b, sizeof b) < 0) ; }
static void filled(int *p) { full(p); wake_with(drains, p); }
static long c_write(int *p) { static char b[65536]; return write(p[1], b, sizeof b); }

/* Signals. */
static pid_t gettid_(void) { return (pid_t)syscall(SYS_gettid); }
static __thread volatile int took;
static void takes(int s) { took++; }
static void signals(int *p) { syscall(SYS_tgkill, getpid(), p[0], SIGUSR1); }
static void signalled(int *p)
{
	sigset_t s;
	p[0] = gettid_();
	sigemptyset(&s);
	sigaddset(&s, SIGUSR1);
	pthread_sigmask(SIG_BLOCK, &s, 0);
	wake_with(signals, p);
}
static int blocks(int signal) { sigset_t s; pthread_sigmask(SIG_BLOCK, 0, &s); return sigismember(&s, signal); }
static long c_sigsuspend(int *p)
{
	sigset_t s;
	int before = took;
	pthread_sigmask(SIG_BLOCK, 0, &s);
	sigdelset(&s, SIGUSR1);
	long r = sigsuspend(&s);
	if (!blocks(SIGUSR1)) BAD("sigsuspend: the mask has changed\n");
	if (took != before + 1 && !stop) BAD("sigsuspend: %d handlers\n", took - before);
	return r;
}
static void paused(int *p) { p[0] = gettid_(); wake_with(signals, p); }
static long c_pause(int *p) { return pause(); }
static long c_interrupted(int *p) { struct timespec t = in(10); return nanosleep(&t, &t); } /* EINTR, as a handler runs */
static void paused_epoll(int *p) { p[0] = gettid_(); p[2] = epoll_create1(0); wake_with(signals, p); }
static long c_interrupted_epoll(int *p) { struct epoll_event e; return epoll_wait(p[2], &e, 1, 10000); }
static long c_sigwaitinfo(int *p) { sigset_t s; sigemptyset(&s); sigaddset(&s, SIGUSR1); return sigwaitinfo(&s, 0); }

/* A handler that lasts, on a small stack of their own. */
static __thread volatile sig_atomic_t depth;
static void lasts(int s)
{
	char here;
	stack_t a;
	sigaltstack(0, &a);
	if (!(a.ss_flags & SS_ONSTACK) || &here < (char *)a.ss_sp || &here >= (char *)a.ss_sp + a.ss_size)
		BAD("not on the alternate stack\n");
	for (volatile long i = 0; i < 3000000; i++)
		;
	usleep(2000);
	depth++;
}
static void small(int *p)
{
	size_t size = sysconf(_SC_MINSIGSTKSZ) + (16 << 10); /* that of handlers that are traced, with the tracer's */
	stack_t a = { malloc(size), 0, size };
	if (sigaltstack(&a, 0)) exit(9);
	p[0] = gettid_();
}
static long c_handler(int *p) { int n = depth; syscall(SYS_tgkill, getpid(), p[0], SIGUSR2); return depth - n; }

/* Restartable sequences: counters of processors that threads add to without a lock. */
#ifndef NO_RSEQ
enum { CPUS = 256, BATCH = 1000 };
static struct { intptr_t n; char pad[120]; } per_cpu[CPUS];
static long added, adding;
NOINLINE static int add_one(struct rseq *r)
{
	uint32_t cpu = *(volatile uint32_t *)&r->cpu_id;
	intptr_t *at = &per_cpu[cpu % CPUS].n;
	/* The value is kept in a register for a while: whoever is preempted there, or stopped, and goes on, loses what
	   others have added. */
	__asm__ goto(
		".pushsection __rseq_cs, \"aw\"\n\t.balign 32\n3:\t.long 0, 0\n\t.quad 1f, 2f - 1f, 4f\n\t.popsection\n\t"
		"lea 3b(%%rip), %%rax\n\tmov %%rax, 8(%[r])\n"
		"1:\tcmp %[cpu], 4(%[r])\n\tjnz 4f\n\t"
		"mov (%[at]), %%rax\n\tmov $300, %%rcx\n5:\tdec %%rcx\n\tjnz 5b\n\tinc %%rax\n\tmov %%rax, (%[at])\n2:\n\t"
		".pushsection .text.unlikely, \"ax\"\n\t.byte 0x0f, 0xb9, 0x3d\n\t.long 0x53053053\n4:\tjmp %l[abort]\n\t.popsection"
		: : [r] "r"(r), [cpu] "r"(cpu), [at] "r"(at) : "rax", "rcx", "memory", "cc" : abort);
	return 1;
abort:
	return 0;
}
static struct rseq *own_rseq(void) { return (struct rseq *)((char *)__builtin_thread_pointer() + __rseq_offset); }
static long c_rseq(int *p)
{
	__atomic_fetch_add(&adding, 1, __ATOMIC_SEQ_CST);
	for (int i = 0; i < BATCH; i++)
		while (!add_one(own_rseq()))
			;
	__atomic_fetch_add(&added, BATCH, __ATOMIC_SEQ_CST);
	__atomic_fetch_add(&adding, -1, __ATOMIC_SEQ_CST);
	return 0;
}
static int check_rseq(void)
{
	intptr_t n = 0;
	for (int i = 0; i < CPUS; i++)
		n += per_cpu[i].n;
	if (n != added)
		BAD("rseq: %ld of %ld additions\n", (long)n, added);
	return n == added;
}
#else
static long c_rseq(int *p) { usleep(1000); return 0; }
static int check_rseq(void) { return 1; }
#endif

static struct state states[] = {
	{ "nanosleep", c_nanosleep, 0, 0, 0, SHORT },
	{ "clock_nanosleep", c_clock, 0, 0, 0, 0 },
	{ "poll", c_poll, pipes, 0, 0, SHORT },
	{ "ppoll", c_ppoll, pipes, 0, 0, SHORT },
	{ "select", c_select, pipes, 0, 0, SHORT },
	{ "pselect", c_pselect, pipes, 0, 0, SHORT },
	{ "epoll_wait", c_epoll, epolls, 0, 0, SHORT },
	{ "epoll_pwait", c_epoll_pwait, epolls, 0, 0, SHORT },
	{ "epoll_pwait2", c_epoll_pwait2, epolls, 0, 0, SHORT },
	{ "futex", c_futex, 0, -1, ETIMEDOUT, SHORT },
	{ "futex, absolute", c_futex_until, 0, -1, ETIMEDOUT, 0 },
	{ "pthread_cond_timedwait", c_cond, 0, ETIMEDOUT, 0, 0 },
	{ "sigtimedwait", c_sigtimedwait, 0, -1, EAGAIN, SHORT },
	{ "semtimedop", c_semtimedop, semaphores, -1, EAGAIN, SHORT },
	{ "recv", c_recv, sockets, -1, EAGAIN, SHORT },
	{ "read of a socket", c_socket_read, sockets, -1, EAGAIN, SHORT },
	{ "accept", c_accept, listening, -1, EAGAIN, SHORT },
	{ "io_getevents", c_getevents, aio, 0, 0, SHORT },
	{ "read of a pipe", c_read, piped, 8 },
	{ "write to a pipe", c_write, filled, 65536 },
	{ "read of an eventfd", c_read, events, 8 },
	{ "read of a terminal", c_read, typed, 8 },
	{ "read of a timer", c_timer, timers, 1 },
	{ "read of inotify", c_inotify, watched, 1 },
	{ "pthread_join", c_join, 0, 1 },
	{ "waitpid", c_waitpid, 0, 42 },
	{ "waitid", c_waitid, 0, 43 },
	{ "flock", c_flock, locking, 0 },
	{ "fcntl", c_setlkw, locking, 0 },
	{ "msgrcv", c_msgrcv, messaged, 8 },
	{ "semop", c_semop, posted, 0 },
	{ "sigsuspend", c_sigsuspend, signalled, -1, EINTR },
	{ "pause", c_pause, paused, -1, EINTR },
	{ "nanosleep, interrupted", c_interrupted, paused, -1, EINTR },
	{ "epoll_wait, interrupted", c_interrupted_epoll, paused_epoll, -1, EINTR },
	{ "sigwaitinfo", c_sigwaitinfo, signalled, SIGUSR1 },
	{ "handler", c_handler, small, 1 },
	{ "rseq", c_rseq, 0, 0 },
	{ "rseq again", c_rseq, 0, 0 },
	{ "rseq once more", c_rseq, 0, 0 },
};
enum { STATES = sizeof states / sizeof *states };
static struct state vforking = { "vfork", c_vfork, 0, 44 };

/* never_restarted says whether a call may say EINTR after its process was stopped (signal(7)). */
static int never_restarted(const char *name)
{
	return !strncmp(name, "epoll", 5) || !strncmp(name, "sem", 3) || !strncmp(name, "sigtimedwait", 12) || !strncmp(name, "sigwaitinfo", 11);
}
/* early is by how much a call may end too early, in s: the kernel counts a socket's time in ticks, and where a machine was held up it
   makes up for those that it has missed. */
static double early(const char *name)
{
	return !strcmp(name, "recv") || !strcmp(name, "read of a socket") ? 0.02 : 0.002;
}
static int rare;

static void *goes_round(void *arg)
{
	struct state *s = arg;
	int *p = calloc(4, sizeof *p); /* what wakes others goes on longer */
	if (s->prepare)
		s->prepare(p);
	while (!stop) {
		errno = 0;
		double began = now();
		long r = s->call(p);
		int error = errno;
		double took = now() - began;
		if (stopped && r == -1 && error == EINTR)
			; /* signal(7): these calls say so when their process is continued */
		else if (r == -1 && error == EINTR && s->error != EINTR && never_restarted(s->name) && __sync_fetch_and_add(&rare, 1) < 3)
			; /* docs/support.md */
		else if (r != s->result || (r == -1 && error != s->error))
			BAD("%s: %ld, errno %d\n", s->name, r, error);
		else if (took < s->seconds - early(s->name))
			BAD("%s: it lasted for %.6f s of %.6f\n", s->name, took, s->seconds);
		s->rounds++;
	}
	return 0;
}

/* Filters of system calls. */
static void filter(uint32_t action, const int *calls)
{
	struct sock_filter f[64] = { BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)) };
	int n = 1;
	for (; *calls; calls++) {
		f[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, *calls, 0, 1);
		f[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, action);
	}
	f[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	struct sock_fprog p = { n, f };
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &p)) exit(9);
}
/* What only a tracer from outside needs, and what the tracer inside needs. */
static const int of_attach[] = { SYS_socketpair, SYS_recvmsg, SYS_close, SYS_memfd_create, SYS_openat, SYS_mprotect, 0 };
static const int of_runtime[] = { SYS_mmap, 0 };

/* strict is for a thread that may but read, write and end. */
static void strict(void)
{
	if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT)) exit(9);
	char c;
	while (syscall(SYS_read, 0, &c, 1) > 0)
		;
	stop = 1;
	syscall(SYS_write, 1, "right\n", 6);
	syscall(SYS_exit, 0); /* and the others then */
}

static void *spins(void *arg)
{
	while (!stop)
		if (sum(100) != 5050)
			BAD("sum\n");
	return 0;
}
static void *sleeps(void *arg)
{
	while (!stop)
		if (usleep(20000))
			BAD("usleep\n");
	return 0;
}

static void until_end(void)
{
	char c;
	long n;
	while ((n = read(0, &c, 1)) != 0)
		if (n < 0)
			BAD("read: %d\n", errno);
	stop = 1;
}

static void *ends(void *arg)
{
	until_end();
	for (pthread_t *t = arg; *t; t++)
		pthread_join(*t, 0);
	for (int i = 0; i < STATES; i++)
		if (states[i].rounds == 0 && vforking.rounds == -1)
			BAD("%s: never\n", states[i].name);
	check_rseq();
	for (int i = 0; i < 8 && sets[i]; i++)
		semctl(sets[i] - 1, 0, IPC_RMID);
	if (queue >= 0)
		msgctl(queue, IPC_RMID, 0);
	dprintf(1, "%s\n", wrong ? "wrong" : "right");
	_exit(7);
}

int main(int argc, char **argv)
{
	static pthread_t ts[1200];
	int n = 0;
	const char *what = argc > 1 ? argv[1] : "";
	stopped = argc > 2;
	struct sigaction usr1 = { .sa_handler = takes }, usr2 = { .sa_handler = lasts, .sa_flags = SA_ONSTACK };
	sigaction(SIGUSR1, &usr1, 0);
	sigaction(SIGUSR2, &usr2, 0);
	pthread_create(&ts[n++], 0, spins, 0);
	if (strcmp(what, "calls") == 0) {
		vforking.rounds = -1;
		for (int i = 0; i < STATES; i++)
			pthread_create(&ts[n++], 0, goes_round, &states[i]);
	} else if (strcmp(what, "vfork") == 0) {
		pthread_create(&ts[n++], 0, goes_round, &vforking);
	} else if (strcmp(what, "threads") == 0) {
		pthread_attr_t a;
		pthread_attr_init(&a);
		pthread_attr_setstacksize(&a, 64 << 10);
		while (n < 1000)
			if (pthread_create(&ts[n++], &a, sleeps, 0))
				return 9;
	} else if (strcmp(what, "leader") == 0) {
		pthread_t t;
		pthread_create(&t, 0, ends, ts);
		prctl(PR_SET_NAME, "ready");
		pthread_exit(0);
	}
	for (int i = 0; i < STATES && vforking.rounds == -1; i++)
		while (!__atomic_load_n(&states[i].rounds, __ATOMIC_SEQ_CST))
			usleep(1000);
	if (strcmp(what, "filtered") == 0)
		filter(SECCOMP_RET_KILL_PROCESS, of_attach);
	else if (strcmp(what, "filtered, killed") == 0)
		filter(SECCOMP_RET_KILL_PROCESS, of_runtime);
	else if (strcmp(what, "filtered, failing") == 0)
		filter(SECCOMP_RET_ERRNO | EPERM, of_attach);
	else if (strcmp(what, "rootless") == 0 && chroot("."))
		return 9;
	prctl(PR_SET_NAME, "ready");
	if (strcmp(what, "strict") == 0)
		strict();
	ends(ts);
}
