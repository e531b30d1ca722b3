/* Runs sequences of instructions twice, at two places, from the same state, and compares what becomes of it. */
#include <stdio.h>
#include <string.h>

/* What a copy may change is left out: x16, and x30 behind a call. */
struct state { unsigned long reg[31], sp, flags, exit; unsigned char vec[4][16], data[64], stack[128]; };
extern unsigned long table[][2], copies[], count;
unsigned char data[64];
unsigned long saved_sp, entry, flags, left;
unsigned long regs[32]; /* x0 .. x30, sp */
unsigned char vecs[4][16];
static unsigned char stack[4096] __attribute__((aligned(16)));

/* x29 is not used by sequences; it holds regs while they run. */
asm(".text\n"
	".globl run, helper, exit_0, exit_1, exit_2, exit_3\n"
	"run: stp x29, x30, [sp, #-160]!; stp x19, x20, [sp, #16]; stp x21, x22, [sp, #32]; stp x23, x24, [sp, #48]\n"
	"stp x25, x26, [sp, #64]; stp x27, x28, [sp, #80]; stp d8, d9, [sp, #96]\n"
	"adrp x0, saved_sp; mov x1, sp; str x1, [x0, #:lo12:saved_sp]\n"
	"adrp x0, flags; ldr x0, [x0, #:lo12:flags]; msr nzcv, x0\n"
	"adrp x0, vecs; add x0, x0, #:lo12:vecs; ldp q0, q1, [x0]; ldp q2, q3, [x0, #32]\n"
	"adrp x0, entry; ldr x16, [x0, #:lo12:entry]\n"
	"adrp x29, regs; add x29, x29, #:lo12:regs; ldr x0, [x29, #248]; mov sp, x0\n"
	"ldp x0, x1, [x29]; ldp x2, x3, [x29, #16]; ldp x4, x5, [x29, #32]; ldp x6, x7, [x29, #48]\n"
	"ldp x8, x9, [x29, #64]; ldp x10, x11, [x29, #80]; ldp x12, x13, [x29, #96]; ldp x14, x15, [x29, #112]\n"
	"ldr x17, [x29, #136]; ldp x18, x19, [x29, #144]; ldp x20, x21, [x29, #160]; ldp x22, x23, [x29, #176]\n"
	"ldp x24, x25, [x29, #192]; ldp x26, x27, [x29, #208]; ldr x28, [x29, #224]\n"
	"br x16\n"
	"exit_0: mov x16, #0; b 1f\n"
	"exit_1: mov x16, #1; b 1f\n"
	"exit_2: mov x16, #2; b 1f\n"
	"exit_3: mov x16, #3\n"
	"1: stp x0, x1, [x29]; stp x2, x3, [x29, #16]; stp x4, x5, [x29, #32]; stp x6, x7, [x29, #48]\n"
	"stp x8, x9, [x29, #64]; stp x10, x11, [x29, #80]; stp x12, x13, [x29, #96]; stp x14, x15, [x29, #112]\n"
	"stp xzr, x17, [x29, #128]; stp x18, x19, [x29, #144]; stp x20, x21, [x29, #160]; stp x22, x23, [x29, #176]\n"
	"stp x24, x25, [x29, #192]; stp x26, x27, [x29, #208]; stp x28, xzr, [x29, #224]; str xzr, [x29, #240]\n"
	"mov x0, sp; str x0, [x29, #248]\n"
	"adrp x0, left; str x16, [x0, #:lo12:left]\n"
	"mrs x1, nzcv; adrp x0, flags; str x1, [x0, #:lo12:flags]\n"
	"adrp x0, vecs; add x0, x0, #:lo12:vecs; stp q0, q1, [x0]; stp q2, q3, [x0, #32]\n"
	"adrp x0, saved_sp; ldr x0, [x0, #:lo12:saved_sp]; mov sp, x0\n"
	"ldp d8, d9, [sp, #96]; ldp x27, x28, [sp, #80]; ldp x25, x26, [sp, #64]; ldp x23, x24, [sp, #48]\n"
	"ldp x21, x22, [sp, #32]; ldp x19, x20, [sp, #16]; ldp x29, x30, [sp], #160; ret\n"
	"helper: add x8, x0, x1; eor x9, x9, x8; ret\n");
void run(void);

static unsigned long next(unsigned long *x)
{
	*x ^= *x << 13, *x ^= *x >> 7, *x ^= *x << 17;
	return *x;
}

static void once(unsigned long at, unsigned long seed, struct state *s)
{
	memset(s, 0, sizeof *s);
	memset(stack, 0, sizeof stack);
	for (int i = 0; i < 31; i++)
		if (next(&seed) & 1 || i & 3)
			regs[i] = next(&seed);
		else
			regs[i] = 0; /* for cbz */
	regs[31] = (unsigned long)stack + 2048;
	for (int i = 0; i < 64; i++)
		data[i] = next(&seed), vecs[i / 16][i % 16] = next(&seed);
	flags = next(&seed) & 0xf0000000;
	entry = at;
	run();
	memcpy(s->reg, regs, sizeof s->reg);
	s->sp = regs[31], s->flags = flags, s->exit = left;
	memcpy(s->vec, vecs, sizeof vecs);
	memcpy(s->data, data, sizeof data);
	memcpy(s->stack, stack + 2048 - 64, sizeof s->stack);
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
