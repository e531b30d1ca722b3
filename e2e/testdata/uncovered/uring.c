/* io_uring: a file is opened and read by the kernel, with no system call for either. With an argument a thread of the kernel
   looks what there is to do, and the program, which is called "ready" then, goes on until its input ends. */
#include <fcntl.h>
#include <linux/io_uring.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static struct io_uring_params params;
static char *sq, *cq;
static struct io_uring_sqe *entries;
static int ring;

#define FIELD(queue, offset) ((unsigned *)((queue) + (offset)))

__attribute__((noinline)) static int submit(struct io_uring_sqe e)
{
	unsigned tail = *FIELD(sq, params.sq_off.tail), at = tail & *FIELD(sq, params.sq_off.ring_mask);
	entries[at] = e;
	FIELD(sq, params.sq_off.array)[at] = at;
	__atomic_store_n(FIELD(sq, params.sq_off.tail), tail + 1, __ATOMIC_SEQ_CST);
	unsigned flags = IORING_ENTER_GETEVENTS;
	if (__atomic_load_n(FIELD(sq, params.sq_off.flags), __ATOMIC_SEQ_CST) & IORING_SQ_NEED_WAKEUP)
		flags |= IORING_ENTER_SQ_WAKEUP;
	if (syscall(SYS_io_uring_enter, ring, 1, 1, flags, 0, 0) != 1)
		return -1;
	unsigned head = *FIELD(cq, params.cq_off.head);
	while (head == __atomic_load_n(FIELD(cq, params.cq_off.tail), __ATOMIC_ACQUIRE))
		;
	struct io_uring_cqe *c = (struct io_uring_cqe *)(cq + params.cq_off.cqes) + (head & *FIELD(cq, params.cq_off.ring_mask));
	int result = c->res;
	__atomic_store_n(FIELD(cq, params.cq_off.head), head + 1, __ATOMIC_RELEASE);
	return result;
}

int main(int argc, char **argv)
{
	char text[64] = "";
	(void)argv;
	if (argc > 1) {
		params.flags = IORING_SETUP_SQPOLL;
		params.sq_thread_idle = 1000000;
	}
	ring = (int)syscall(SYS_io_uring_setup, 4, &params);
	if (ring < 0) {
		puts("none");
		return 0;
	}
	sq = mmap(0, params.sq_off.array + params.sq_entries * 4, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQ_RING);
	cq = mmap(0, params.cq_off.cqes + params.cq_entries * 16, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_CQ_RING);
	entries = mmap(0, params.sq_entries * sizeof *entries, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQES);
	struct io_uring_sqe e = { .opcode = IORING_OP_OPENAT, .fd = AT_FDCWD, .addr = (unsigned long)"/proc/sys/kernel/ostype" };
	int file = submit(e);
	struct io_uring_sqe r = { .opcode = IORING_OP_READ, .fd = file, .addr = (unsigned long)text, .len = 63 };
	int n = submit(r);
	printf("opened %d, read %d: %s", file >= 0, n, text);
	fflush(stdout);
	if (argc > 1)
		prctl(PR_SET_NAME, "ready");
	struct pollfd input = { .fd = 0, .events = POLLIN };
	while (argc > 1 && poll(&input, 1, 1) == 0)
		if (submit(r) != n)
			return 1;
	return 0;
}
