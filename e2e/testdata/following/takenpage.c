// A library that maps something where a program of which executions are followed maps a page.
#include <stdlib.h>
#include <sys/auxv.h>
#include <sys/mman.h>

__attribute__((constructor)) static void take(void)
{
	void *page = (void *)(getauxval(AT_BASE) - (1UL << 29));
	if (mmap(page, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) != page)
		abort();
}
