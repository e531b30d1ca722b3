/* A filter of system calls forbids getppid(2), which two threads make all the time. It is called "ready" then, and runs until its
   standard input ends. */
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static volatile long made, passed;
static volatile int over;

__attribute__((noipa)) long leaf(long n)
{
	__asm__ volatile("" ::: "memory");
	return n + made % 2;
}

static void *calls(void *unused)
{
	while (!over) {
		if (syscall(SYS_getppid) >= 0 || errno != EPERM)
			__atomic_fetch_add(&passed, 1, __ATOMIC_RELAXED);
		__atomic_fetch_add(&made, leaf(1), __ATOMIC_RELAXED);
	}
	return unused;
}

int main(void)
{
	struct sock_filter f[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getppid, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog p = {sizeof f / sizeof *f, f};
	pthread_t t[2];
	char c;
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &p))
		return 1;
	for (int i = 0; i < 2; i++)
		pthread_create(&t[i], NULL, calls, NULL);
	while (made < 100)
		usleep(1000);
	prctl(PR_SET_NAME, "ready");
	while (read(0, &c, 1) > 0)
		;
	over = 1;
	for (int i = 0; i < 2; i++)
		pthread_join(t[i], NULL);
	if (passed)
		printf("%ld of %ld forbidden calls were made\n", passed, made);
	else
		puts("right");
	return 7;
}
