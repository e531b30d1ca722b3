/* Runs sequences of instructions twice, at two places, from the same state, and compares what becomes of it. */
#include <stdio.h>
#include <string.h>

struct state { unsigned long reg[16], flags, exit; unsigned char data[64], stack[64]; };
extern unsigned long table[][2], copies[], count;
unsigned char data[64];
unsigned long saved_sp, entry;
unsigned long regs[16]; /* rax rcx rdx rbx rsp rbp rsi rdi r8 .. r15 */
unsigned long flags, left;
static unsigned char stack[4096] __attribute__((aligned(16)));

asm(".text\n"
	".globl run, helper, exit_0, exit_1, exit_2, exit_3\n"
	"run: push %rbx; push %rbp; push %r12; push %r13; push %r14; push %r15\n"
	"mov %rsp, saved_sp(%rip)\n"
	"push flags(%rip); popf\n"
	"mov regs(%rip), %rax; mov regs+8(%rip), %rcx; mov regs+16(%rip), %rdx; mov regs+24(%rip), %rbx\n"
	"mov regs+32(%rip), %rsp; mov regs+40(%rip), %rbp; mov regs+48(%rip), %rsi; mov regs+56(%rip), %rdi\n"
	"mov regs+64(%rip), %r8; mov regs+72(%rip), %r9; mov regs+80(%rip), %r10; mov regs+88(%rip), %r11\n"
	"mov regs+96(%rip), %r12; mov regs+104(%rip), %r13; mov regs+112(%rip), %r14; mov regs+120(%rip), %r15\n"
	"jmp *entry(%rip)\n"
	"exit_0: movq $0, left(%rip); jmp 1f\n"
	"exit_1: movq $1, left(%rip); jmp 1f\n"
	"exit_2: movq $2, left(%rip); jmp 1f\n"
	"exit_3: movq $3, left(%rip)\n"
	"1: mov %rax, regs(%rip); mov %rcx, regs+8(%rip); mov %rdx, regs+16(%rip); mov %rbx, regs+24(%rip)\n"
	"mov %rsp, regs+32(%rip); mov %rbp, regs+40(%rip); mov %rsi, regs+48(%rip); mov %rdi, regs+56(%rip)\n"
	"mov %r8, regs+64(%rip); mov %r9, regs+72(%rip); mov %r10, regs+80(%rip); mov %r11, regs+88(%rip)\n"
	"mov %r12, regs+96(%rip); mov %r13, regs+104(%rip); mov %r14, regs+112(%rip); mov %r15, regs+120(%rip)\n"
	"mov saved_sp(%rip), %rsp\n"
	"pushf; pop flags(%rip)\n"
	"pop %r15; pop %r14; pop %r13; pop %r12; pop %rbp; pop %rbx; cld; ret\n"
	/* its return address is not that of the original, so it must not stay on the stack */
	"helper: lea 3(%rdi,%rsi), %r8; pop %r10; movq $0, -8(%rsp); push %r10; xor %r10d, %r10d\n"
	"ret\n");
void run(void);
extern char helper[];
void *slot = helper;

static unsigned long next(unsigned long *x)
{
	*x ^= *x << 13, *x ^= *x >> 7, *x ^= *x << 17;
	return *x;
}

static void once(unsigned long at, unsigned long seed, struct state *s)
{
	memset(s, 0, sizeof *s);
	memset(stack, 0, sizeof stack);
	for (int i = 0; i < 16; i++)
		regs[i] = next(&seed);
	if (seed & 1)
		regs[1] &= 1; /* loop and jrcxz look at rcx */
	regs[4] = (unsigned long)stack + 2048;
	for (int i = 0; i < 64; i++)
		data[i] = next(&seed);
	flags = 0x202 | (next(&seed) & 0x8d5);
	entry = at;
	run();
	memcpy(s->reg, regs, sizeof regs);
	s->flags = flags, s->exit = left;
	memcpy(s->data, data, sizeof data);
	/* What calls leave below the stack pointer are return addresses. */
	unsigned long used = (unsigned long)stack + 2048 - regs[4];
	if (used <= sizeof s->stack)
		memcpy(s->stack, stack + 2048 - used, used);
}

int main(void)
{
	unsigned long seed = 0x9e3779b97f4a7c15;
	for (unsigned long i = 0; i < count; i++)
		for (int k = 0; k < 4; k++) {
			struct state a, b;
			next(&seed);
			once(table[i][0], seed, &a);
			once(copies[i], seed, &b);
			if (memcmp(&a, &b, sizeof a)) {
				printf("sequence %lu at %lx: left to %lu, its copy to %lu\n", i, table[i][0], a.exit, b.exit);
				return 1;
			}
		}
	printf("%lu sequences\n", count);
	return 0;
}
