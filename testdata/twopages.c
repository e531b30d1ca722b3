/* Functions of which N bytes are in a page and the rest in the next one, g1 to g9: they are called until standard input
   ends. The status is 7 if all results were right. */
#include <poll.h>
#include <sys/prctl.h>

#define FUNCTION(n) __asm__( \
	".pushsection .text\n" \
	"	.p2align 12, 0xcc\n" \
	"	.skip 4096 - " #n ", 0xcc\n" \
	"	.globl g" #n "\n" \
	"	.type g" #n ", @function\n" \
	"g" #n ":	.cfi_startproc\n" \
	"	lea 1(%rdi), %rax\n" \
	"	lea 1(%rax), %rax\n" \
	"	ret\n" \
	"	.cfi_endproc\n" \
	"	.size g" #n ", . - g" #n "\n" \
	"	.popsection\n"); \
	long g##n(long)

FUNCTION(1); FUNCTION(2); FUNCTION(3); FUNCTION(4); FUNCTION(5); FUNCTION(6); FUNCTION(7); FUNCTION(8); FUNCTION(9);

int main(void)
{
	static long (*const all[])(long) = { g1, g2, g3, g4, g5, g6, g7, g8, g9 };
	struct pollfd in = { 0, POLLIN, 0 };
	int right = 1;
	prctl(PR_SET_NAME, "ready");
	while (!poll(&in, 1, 0))
		for (long i = 0; i < 9; i++)
			right &= all[i](i) == i + 2;
	return right ? 7 : 1;
}
