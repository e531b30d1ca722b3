/* Values for classic-regs.S, what is different, and callbacks that change what they may. */
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include "fentry.h"

struct regs {
	unsigned long x[32];
	unsigned char q[32][16], z[9600 - 768];
};
struct regs regs_in, regs_out;
int regs_sve, regs_wrong;

#define PLAIN __attribute__((noipa))

PLAIN static void fill(struct regs *r, int seed)
{
	unsigned char *p = (unsigned char *)r;
	for (unsigned i = 0; i < sizeof *r; i++)
		p[i] = (unsigned char)(i * 7 + i / 256 + seed);
}

PLAIN static unsigned vl(void)
{
	unsigned long n;
	__asm__(".arch armv8.2-a+sve\n\trdvl %0, #1" : "=r"(n));
	return (unsigned)n;
}

PLAIN static void differ(const char *what, int n, int behind) { regs_wrong++; fprintf(stderr, "%s%d %s\n", what, n, behind ? "at the return" : "at the entry"); }

/* compare says what is other than it was: behind the call, or at its start */
PLAIN void compare(struct regs *got, int behind)
{
	struct regs *want = behind ? &regs_out : &regs_in;
	for (int i = 0; i <= 28; i++) {
#ifdef BEHIND_PROLOGUE
		int any = !behind && i >= 9 && i <= 17; /* a function may change them */
#else
		int any = !behind && i == 9;
#endif
		/* the runtime may change these, like linkers' stubs */
		any |= behind && (i == 16 || i == 17);
		if (!any && got->x[i] != want->x[i])
			differ("x", i, behind);
	}
	unsigned n = regs_sve ? vl() : 0;
	for (unsigned i = 0; i < 32; i++)
		if (memcmp(got->q[i], n ? want->z + i * n : want->q[i], 16))
			differ("q", (int)i, behind);
	for (unsigned i = 0; i < 32 && n; i++)
		if (memcmp(got->z + i * n, want->z + i * n, n))
			differ("z", (int)i, behind);
	for (unsigned i = 0; i < 16 && n; i++)
		if (memcmp(got->z + 32 * n + i * n / 8, want->z + 32 * n + i * n / 8, n / 8))
			differ("p", (int)i, behind);
}

PLAIN static void clobber(void)
{
	if (regs_sve)
		__asm__ volatile(".arch armv8.2-a+sve\n\tptrue p0.b\n\tpfalse p1.b\n\tpfalse p2.b\n\tpfalse p3.b\n\tpfalse p4.b\n\tpfalse p8.b\n\tpfalse p15.b\n\t"
			"dup z16.b, #-1\n\tdup z31.b, #-1\n\tdup z0.b, #-1" ::: "memory", "v0", "v16", "v31");
	__asm__ volatile(
#define ONES(n) "movi v" #n ".16b, #255\n\t"
		ONES(0) ONES(1) ONES(2) ONES(3) ONES(4) ONES(5) ONES(6) ONES(7) ONES(16) ONES(17) ONES(18) ONES(19) ONES(20) ONES(21) ONES(22) ONES(23)
		ONES(24) ONES(25) ONES(26) ONES(27) ONES(28) ONES(29) ONES(30) ONES(31)
		/* of these the low halves are kept, and nothing above the high ones */
#define UPPER(n) "ins v" #n ".d[1], %0\n\tmov v" #n ".16b, v" #n ".16b\n\t"
		UPPER(8) UPPER(9) UPPER(10) UPPER(11) UPPER(12) UPPER(13) UPPER(14) UPPER(15)
		"mov x1, %0\n\tmov x2, %0\n\tmov x3, %0\n\tmov x4, %0\n\tmov x5, %0\n\tmov x6, %0\n\tmov x7, %0\n\tmov x8, %0\n\tmov x9, %0\n\t"
		"mov x10, %0\n\tmov x11, %0\n\tmov x12, %0\n\tmov x13, %0\n\tmov x14, %0\n\tmov x15, %0\n\tmov x16, %0\n\tmov x17, %0\n\tmov x18, %0"
		:: "r"(0x9fUL) : "memory", "x1", "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11", "x12", "x13", "x14", "x15", "x16", "x17", "x18",
		"v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v16", "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v24", "v25", "v26", "v27", "v28",
		"v29", "v30", "v31");
}
PLAIN void on_call(unsigned long a, unsigned long b, void *op, struct ftrace_regs *r)
{
	(void)a, (void)b, (void)op;
	for (int i = 0; i < 19; i++) /* those of the block are the site's */
		if (!(i >= 9 && i <= 17) && r->regs[i] != regs_in.x[i])
			differ("block: x", i, 0);
	for (int i = 19; i < 29 && r->all; i++)
		if (r->regs[i] != regs_in.x[i])
			differ("block: x", i, 0);
	clobber();
}
PLAIN static int on_entry(struct ftrace_graph_ent *e) { (void)e; clobber(); return 1; }
PLAIN static void on_return(struct ftrace_graph_ret *r) { (void)r; clobber(); }

__attribute__((constructor)) static void begin(void)
{
	regs_sve = getauxval(AT_HWCAP) >> 22 & 1;
	fill(&regs_in, 1);
	fill(&regs_out, 77);
	if (GRAPH)
		ftrace_graph_entry = on_entry, ftrace_graph_return = on_return;
#ifdef BEHIND_PROLOGUE
	if (FUNCTION)
		ftrace_trace_function = (void (*)(unsigned long, unsigned long))(void (*)(void))on_call;
#endif
}
