/* arm64: how a program rewrites itself that was compiled with -fpatchable-function-entry=2. */
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#define PLAIN __attribute__((no_instrument_function, patchable_function_entry(0), noinline))
#define CHECK(c) do { if (!(c)) { fprintf(stderr, "line %d: %s\n", __LINE__, #c); _exit(100); } } while (0)

enum { NOP = 0xd503201f, MOV_X9_LR = 0xaa1e03e9 };

extern uint32_t *__start___patchable_function_entries[], *__stop___patchable_function_entries[];
static uint32_t *sites[64]; /* their second instructions */
static int nsites;

/* poke writes one instruction; the program's text has been made writable. */
PLAIN __attribute__((unused)) static void poke(void *at, uint32_t w)
{
	__atomic_store_n((uint32_t *)at, w, __ATOMIC_RELEASE);
	__builtin___clear_cache((char *)at, (char *)at + 4);
}
PLAIN __attribute__((unused)) static uint32_t branch(uint32_t op, void *from, void *to) { return op | ((uint32_t)(((intptr_t)to - (intptr_t)from) / 4) & 0x3ffffff); }
PLAIN __attribute__((unused)) static uint32_t bl(void *from, void *to) { return branch(0x94000000, from, to); }
PLAIN __attribute__((unused)) static uint32_t b(void *from, void *to) { return branch(0x14000000, from, to); }

PLAIN __attribute__((unused)) static int find_sites(void)
{
	extern char __ehdr_start[], etext[];
	uintptr_t page = (uintptr_t)__ehdr_start & -65536UL;
	CHECK(mprotect((void *)page, ((uintptr_t)etext | 65535) + 1 - page, PROT_READ | PROT_WRITE | PROT_EXEC) == 0);
	for (uint32_t **p = __start___patchable_function_entries; p < __stop___patchable_function_entries; p++) {
		uint32_t *s = *p;
		if ((*s & ~0xc0U) == 0xd503241f) /* bti */
			s++;
		CHECK(s[0] == NOP && s[1] == NOP);
		poke(s, MOV_X9_LR);
		sites[nsites++] = s + 1;
	}
	return nsites;
}
PLAIN __attribute__((unused)) static void all(void *trampoline)
{
	for (int i = 0; i < nsites; i++)
		poke(sites[i], trampoline ? bl(sites[i], trampoline) : NOP);
}
