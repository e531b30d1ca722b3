// What the injection test changes. answer() is found by its bytes; the new
// entry point prints "injected" before anything else here runs.
#define _GNU_SOURCE
#include <asm/prctl.h>
#include <elf.h>
#include <link.h>
#include <stdio.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <unistd.h>

__attribute__((noinline, noclone, aligned(16))) int answer(void)
{
	int v;
	__asm__ volatile("movl $0x11223344, %0" : "=a"(v));
	return v;
}

static int loads(struct dl_phdr_info *i, size_t n, void *p)
{
	if (*(int *)p == 0)
		for (int k = 0; k < i->dlpi_phnum; k++)
			*(int *)p += i->dlpi_phdr[k].p_type == PT_LOAD;
	return 1;
}

int main(int argc, char **argv)
{
	unsigned long gs = 0;
	int n = 0;
	syscall(SYS_arch_prctl, ARCH_GET_GS, &gs);
	dl_iterate_phdr(loads, &n);
	setvbuf(stdout, 0, _IONBF, 0);
	if (argc < 3)
		printf("answer %x, gs %lx, entry %lx, phdr %lx, phnum %lu, loads %d, bias %lx\n", answer(), gs, getauxval(AT_ENTRY), getauxval(AT_PHDR),
		getauxval(AT_PHNUM), n, (unsigned long)answer);
	if (argc > 2)
		return answer() == 0x55667788 ? 8 : 9;
	return argc > 1 ? 7 : 0;
}
