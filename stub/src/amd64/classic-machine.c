/* The classic tracer on x86-64: the slot of a frame is where its return address is.

   Callbacks of the program's are C that may use vector registers, in which the traced
   function has its arguments or results. How large those are, the processor knows: it is
   asked once, at the start, and classic.S saves that much with xsave around a callback.
   The runtime itself is compiled for general registers only and saves none. */
#include "classic.h"

hidden u64 fentry_xsave_mask;       /* 0: this processor has fxsave only */
hidden u32 fentry_xsave_size = 512; /* bytes */

/* fentry_classic_machine asks the processor what xsave has to save: x87, SSE, AVX, AVX-512. */
hidden void fentry_classic_machine(void)
{
	u32 a = 1, b, c, d;
	__asm__ volatile("cpuid" : "+a"(a), "=b"(b), "=c"(c), "=d"(d));
	if (!(c >> 27 & 1)) /* OSXSAVE */
		return;
	u32 lo, hi, size = 512 + 64;
	__asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
	u64 mask = lo & 0xe7;
	for (u32 i = 2; i < 8; i++) {
		if (!(mask >> i & 1))
			continue;
		a = 13;
		c = i;
		__asm__ volatile("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
		if (a + b > size)
			size = a + b;
	}
	fentry_xsave_size = size;
	store(&fentry_xsave_mask, mask);
}

/* fentry_classic_slot returns where the return address of a function is that has a
   frame pointer and calls mcount behind its prologue. gcc's functions that align
   their stack and have arguments on it copy the return address next to the frame
   pointer; r10 is then behind the real one:
       41 ff 72 f8  push -8(%r10);  55  push %rbp;  48 89 e5  mov %rsp,%rbp */
hidden u64 fentry_classic_slot(u64 pc, u64 r10, u64 fp)
{
	static const u8 copy[8] = { 0x41, 0xff, 0x72, 0xf8, 0x55, 0x48, 0x89, 0xe5 };
	u64 s = r10 - 8;
	if (s <= fp + 8 || s - fp > 520 || s % 8 || *(u64 *)s != *(u64 *)(fp + 8))
		return fp + 8;
	for (u32 back = 13; back < 64; back++)
		if (pc - back >= (u64)image_start && memcmp((const void *)(pc - back), copy, sizeof copy) == 0)
			return s;
	return fp + 8;
}

/* fentry_classic_enter does what the fast path cannot. */
hidden void fentry_classic_enter(u64 slot, u32 id, u64 fp) { fentry_classic_record((u64 *)slot, slot, id, fp); }

public void prepare_ftrace_return(u64 *parent, u64 selfpc, u64 fp)
{
	fentry_classic_prepare(parent, (u64)parent, selfpc, fp);
}

/* ftrace_graph_ret_addr undoes the replacement of a return address. */
public u64 ftrace_graph_ret_addr(u64 ret, u64 *retp) { return ret == HANDLER ? *shadow_ret((u64)retp) : ret; }
