/* A function that begins with a call, and one that calls it: what is called first waits for a line, and returns to where the call
   has been moved while that function is traced. It says how long each line is, 40 more, and ends with status 7. */
#include <stdio.h>
#include <sys/prctl.h>
#include <unistd.h>

__attribute__((noinline)) long waits(void)
{
	char b;
	long n = 0;
	while (read(0, &b, 1) == 1 && b != '\n')
		n++;
	return n;
}

__asm__(
	"	.text\n"
	"	.type begins, @function\n"
	"begins: .cfi_startproc\n"
	"	call waits\n"
	"	add $40, %rax\n"
	"	ret\n"
	"	.cfi_endproc\n"
	"	.size begins, . - begins\n"
	"	.type outer, @function\n"
	"outer: .cfi_startproc\n"
	"	push %rbx\n"
	"	.cfi_adjust_cfa_offset 8\n"
	"	call begins\n"
	"	pop %rbx\n"
	"	.cfi_adjust_cfa_offset -8\n"
	"	ret\n"
	"	.cfi_endproc\n"
	"	.size outer, . - outer\n");
long outer(void);

int main(void)
{
	prctl(PR_SET_NAME, "ready");
	for (int i = 0; i < 3; i++) {
		printf("%ld\n", outer());
		fflush(stdout);
	}
	return 7;
}
