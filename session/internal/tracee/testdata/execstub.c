// Makes a system call at site, which a test changes to a branch to a stub at page, and compares all registers: with those
// before the call, in the routine that the stub calls and behind the call.
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

// x0 to x30, as they were and as they are in routine and behind.
unsigned long before[31], inside[31], behind[31], sp[3], times;

__asm__(
	".text\n"
	"	.p2align 12\n	.globl page\npage:	.space 4096\n"
	".macro	pair op, a, b, at\n	\\op	x\\a, x\\b, [x16, #8 * \\a]\n	.endm\n"
	".macro	all op\n"
	"	pair \\op, 0, 1\n	pair \\op, 2, 3\n	pair \\op, 4, 5\n	pair \\op, 6, 7\n	pair \\op, 8, 9\n"
	"	pair \\op, 10, 11\n	pair \\op, 12, 13\n	pair \\op, 14, 15\n	pair \\op, 18, 19\n	pair \\op, 20, 21\n"
	"	pair \\op, 22, 23\n	pair \\op, 24, 25\n	pair \\op, 26, 27\n	pair \\op, 28, 29\n	.endm\n"
	"	.globl routine\n"
	"routine:	adrp x16, inside\n	add x16, x16, :lo12:inside\n	all stp\n	str x17, [x16, #8 * 17]\n"
	"	ldr x17, [sp, #8]\n	str x17, [x16, #8 * 30]\n	ldr x17, [sp]\n	str x17, [x16, #8 * 16]\n"
	"	adrp x16, times\n	ldr x17, [x16, :lo12:times]\n	add x17, x17, 1\n	str x17, [x16, :lo12:times]\n"
	"	adrp x16, inside\n	add x16, x16, :lo12:inside\n	ldr x17, [x16, #8 * 17]\n	ret\n"
	"	.globl call\n"
	"call:	stp x29, x30, [sp, #-96]!\n	stp x19, x20, [sp, #16]\n	stp x21, x22, [sp, #32]\n"
	"	stp x23, x24, [sp, #48]\n	stp x25, x26, [sp, #64]\n	stp x27, x28, [sp, #80]\n"
	"	adrp x16, before\n	add x16, x16, :lo12:before\n	all ldp\n	ldr x17, [x16, #8 * 17]\n"
	"	ldr x30, [x16, #8 * 30]\n	ldr x16, [x16, #8 * 16]\n"
	"	.globl site\n"
	"site:	svc #0\n"
	"	str x16, [sp, #-16]!\n	adrp x16, behind\n	add x16, x16, :lo12:behind\n	all stp\n"
	"	str x17, [x16, #8 * 17]\n	str x30, [x16, #8 * 30]\n	ldr x0, [sp], #16\n	str x0, [x16, #8 * 16]\n"
	"	ldp x19, x20, [sp, #16]\n	ldp x21, x22, [sp, #32]\n"
	"	ldp x23, x24, [sp, #48]\n	ldp x25, x26, [sp, #64]\n	ldp x27, x28, [sp, #80]\n	ldp x29, x30, [sp], #96\n	ret\n");
void call(void);

int main(void)
{
	for (int i = 0; i < 31; i++)
		before[i] = 0x1010101010101010UL * (i % 7 + 1) + i;
	before[8] = SYS_getppid;
	call();
	for (int i = 0; i < 31; i++) {
		if (inside[i] != before[i])
			printf("x%d is %lx in the routine, %lx before\n", i, inside[i], before[i]);
		if (behind[i] != (i ? before[i] : (unsigned long)getppid()))
			printf("x%d is %lx behind, %lx before\n", i, behind[i], before[i]);
	}
	printf(times == 1 ? "asked once\n" : "asked %lu times\n", times);
	return 0;
}
