// Closes every descriptor, reopens and dup2s over low and high numbers, and goes on calling.
//e2e:args out.txt
//e2e:show out.txt
#include "count.h"
#include <sys/syscall.h>

FN static unsigned work(unsigned n) { COUNT(); return n ? KEEP(work(n - 1)) * 3 + 1 : 1; }
FN static unsigned loop(int n) { COUNT(); unsigned s = 0; for (int i = 0; i < n; i++) s += work((unsigned)i % 10); return s; }
int main(int argc, char **argv)
{
	COUNT();
	if (argc < 2)
		return 2;
	unsigned a = loop(2000);
	for (int fd = 0; fd < 2048; fd++)
		close(fd);
	unsigned b = loop(20000);
	syscall(SYS_close_range, 0u, ~0u, 0u);
	unsigned c = loop(2000);
	int fd = open(argv[1], O_CREAT | O_TRUNC | O_WRONLY, 0644);
	for (int i = 3; i < 1020; i++)
		dup2(fd, i);
	unsigned d = loop(20000);
	dprintf(fd, "first descriptor %d, %x %x %x %x\n", fd, a, b, c, d);
	return 0;
}
