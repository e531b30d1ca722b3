// What an emulator of user programs may not do. Each line says how it went.
#define _GNU_SOURCE 1
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile int shared;

int main(void)
{
	printf("ptrace: %s\n", ptrace(PTRACE_TRACEME, 0, NULL, NULL) ? strerror(errno) : "works");
	// A size of 0 means: the same memory at a second place (mremap(2)).
	int fd = memfd_create("limits", 0);
	void *p = NULL;
	if (fd < 0 || ftruncate(fd, 1 << 20) || (p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)) == MAP_FAILED)
		return 1;
	printf("memory is mapped again: %s\n", mremap(p, 0, 1 << 20, MREMAP_MAYMOVE) == MAP_FAILED ? strerror(errno) : "works");
	fflush(stdout);
	pid_t child = vfork();
	if (child == 0) {
		shared = 1;
		_exit(0);
	}
	waitpid(child, NULL, 0);
	printf("vfork shares memory: %s\n", shared ? "yes" : "no");
	return 0;
}
