// A program that knows how many calls it has made, and when.
//
//	losses calls N FILE     N calls of leaf
//	losses until PATH FILE  calls of leaf until there is a file PATH
//	losses exec NR PROGRAM  runs a program to which system call NR is refused
//
// With two more arguments, NR and refuse or kill, system call NR is refused, or ends the process, as soon as a few
// calls have been made; and another thread makes some, if it can be had.
//
// It prints their number, and writes to FILE the counter at every 1024th call, 8 bytes each.
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#define notrace __attribute__((patchable_function_entry(0)))

enum { EACH = 1024, MOST = 1 << 20 };
static uint64_t when[MOST];
static long made;

__attribute__((noinline, noipa)) int leaf(int n) { return n + 1; }

notrace static uint64_t counter(void)
{
#ifdef __x86_64__
	return __builtin_ia32_rdtsc();
#else
	uint64_t t;
	__asm__ volatile("mrs %0, cntvct_el0" : "=r"(t));
	return t;
#endif
}

notrace static void some(void)
{
	if (made / EACH < MOST)
		when[made / EACH] = counter();
	for (int i = 0; i < EACH; i++)
		leaf(i);
	made += EACH;
}

notrace static int refuse(int nr, int kill)
{
	struct sock_filter f[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, nr, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, kill ? SECCOMP_RET_KILL_PROCESS : SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog p = { sizeof f / sizeof *f, f };
	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &p);
}

static volatile int over;
notrace static void *thread(void *arg)
{
	some();
	over = 1;
	return arg;
}

notrace int main(int argc, char **argv)
{
	pthread_t t;
	if (argc > 3 && !strcmp(argv[1], "exec")) {
		if (refuse(atoi(argv[2]), 0))
			return 77;
		execv(argv[3], argv + 3);
		return 78;
	}
	if (argc != 4 && argc != 6)
		return 2;
	printf("ready\n");
	FILE *f = fopen(argv[3], "w");
	fflush(stdout);
	if (argc == 6) {
		some();
		if (refuse(atoi(argv[4]), !strcmp(argv[5], "kill")))
			return 77;
		if (!pthread_create(&t, 0, thread, 0))
			while (!over) // joining it takes a system call
				;
	}
	if (!strcmp(argv[1], "calls"))
		while (made < atol(argv[2]))
			some();
	while (!strcmp(argv[1], "until") && access(argv[2], F_OK))
		some();
	if (!f || fwrite(when, 8, made / EACH, f) != (size_t)(made / EACH) || fclose(f))
		return 3;
	printf("%ld\n", made);
	return 0;
}
