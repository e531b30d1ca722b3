/* Calls sum until standard input ends, and has memory where something could be added behind the program: a heap of so many
   MiB as the argument says; or, with none, a mapping a gigabyte behind it that comes and goes. It ends with status 7. */
#define _GNU_SOURCE
#include <poll.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

extern char _end[];

__attribute__((noinline)) long sum(long n)
{
	long r = n ? n + sum(n - 1) : 0;
	__asm__ volatile("" : "+r"(r));
	return r;
}

int main(int argc, char **argv)
{
	struct pollfd in = { 0, POLLIN, 0 };
	const size_t size = 1 << 20;
	void *at = (void *)(((uintptr_t)_end & -4096) + (1 << 30));
	if (argc > 1 && sbrk(atol(argv[1]) << 20) == (void *)-1)
		return 1;
	prctl(PR_SET_NAME, "ready");
	while (!poll(&in, 1, 0)) {
		sum(10);
		if (argc > 1 || mmap(at, size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) != at)
			continue;
		usleep(100);
		munmap(at, size);
		usleep(100);
	}
	return 7;
}
