// Forbids itself the system calls that the tracer needs for new threads only, and goes on for several chunks of events.
// musl-gcc does not find the kernel's headers
//e2e:compilers gcc clang
//e2e:machines amd64
#include "count.h"
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

FN static long leaf(long n)
{
	COUNT();
	return n * 3 + 1;
}

FN static long nested(int depth)
{
	COUNT();
	return depth == 0 ? leaf(1) : KEEP(nested(depth - 1)) + 1;
}

FN static int forbid(void)
{
	COUNT();
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_arch_prctl, 2, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_gettid, 1, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getpid, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog filter = {sizeof code / sizeof *code, code};
	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0 ? 0 : errno;
}

FN int main(void)
{
	COUNT();
	long sum = leaf(1);
	say("forbidden: %s\n", strerror(forbid()));
	for (int i = 0; i < 3000; i++)
		sum += nested(i % 10);
	say("%ld\n", nested(2000) + sum);
	return 0;
}
