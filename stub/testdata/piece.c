/* Two threads whose stacks share a piece of shadow memory: the second makes its first
   call while the first is in the middle of mapping the piece, which takes a second. It
   is stopped there by a filter of its system calls, which asks a third thread. */
#define _GNU_SOURCE
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PLAIN __attribute__((patchable_function_entry(0)))
enum { PIECE = 128 << 10, CALLS = 3000 };

static char *stacks;
static int listener = -1;
static pthread_t first, second;
static pthread_barrier_t filtered;

__attribute__((noinline, noipa)) void leaf(void) { }

PLAIN static void calls(void) { for (int i = 0; i < CALLS; i++) leaf(); }

PLAIN static void on_stack(pthread_t *t, char *stack, void *(*body)(void *))
{
	pthread_attr_t a;
	pthread_attr_init(&a);
	if (pthread_attr_setstack(&a, stack, PIECE / 2) || pthread_create(t, &a, body, 0)) abort();
}

/* The first one: madvise(p, n, MADV_NOHUGEPAGE) is what the runtime does with a new mapping. */
PLAIN static void *maps(void *arg)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_madvise, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, MADV_NOHUGEPAGE, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = { sizeof code / sizeof *code, code };
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	listener = (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &prog);
	pthread_barrier_wait(&filtered);
	calls();
	return arg;
}

PLAIN static void *waits(void *arg) { calls(); return arg; }

PLAIN static void *lets(void *arg)
{
	for (int n = 0;; n++) {
		struct seccomp_notif ask;
		memset(&ask, 0, sizeof ask);
		if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &ask)) continue;
		if (n == 0) {
			on_stack(&second, stacks + PIECE / 2, waits);
			sleep(1);
		}
		struct seccomp_notif_resp answer = { .id = ask.id, .flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE };
		ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &answer);
	}
	return arg;
}

PLAIN int main(void)
{
	pthread_t t;
	char *m = mmap(0, 2 * PIECE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (m == MAP_FAILED) return 2;
	stacks = m + (-(size_t)m & (PIECE - 1));
	pthread_barrier_init(&filtered, 0, 2);
	on_stack(&first, stacks, maps);
	pthread_barrier_wait(&filtered);
	if (listener < 0) {
		printf("no filter\n");
		return 0;
	}
	if (pthread_create(&t, 0, lets, 0)) abort();
	pthread_join(first, 0);
	pthread_join(second, 0);
	printf("leaf %d\n", 2 * CALLS);
	return 0;
}
