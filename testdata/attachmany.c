// Many functions, which two threads call one after the other until standard input ends. Says whether all results were
// right, and ends with status 7.
#include <pthread.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <unistd.h>

#define MANY 20000
#define TEXT(n) #n
#define NUMBER(n) TEXT(n)
__asm__(".altmacro\n"
	".macro FUNCTION n\n"
	"	.p2align 5\n"
	"	.type f\\n, @function\n"
	"f\\n:	.cfi_startproc\n"
	"	lea 1(%rdi), %rax\n"
	"	nop\n"
	"	ret\n"
	"	.cfi_endproc\n"
	"	.size f\\n, . - f\\n\n"
	".endm\n"
	".section .text.many, \"ax\", @progbits\n"
	"	.p2align 5\n"
	"	.globl many\n"
	"many:\n"
	"i = 0\n"
	".rept " NUMBER(MANY) "\n"
	"	FUNCTION %i\n"
	"	i = i + 1\n"
	".endr\n"
	".noaltmacro\n"
	".text\n");
extern const char many[];

static volatile int stop, wrong;

static void *work(void *arg)
{
	while (!stop)
		for (long i = 0; i < MANY; i++)
			if (((long (*)(long))(many + 32 * i))(i) != i + 1)
				wrong = 1;
	return arg;
}

int main(void)
{
	pthread_t t[2];
	char c;
	for (int i = 0; i < 2; i++)
		pthread_create(&t[i], 0, work, 0);
	prctl(PR_SET_NAME, "ready");
	while (read(0, &c, 1) > 0)
		;
	stop = 1;
	for (int i = 0; i < 2; i++)
		pthread_join(t[i], 0);
	printf("%s\n", wrong ? "wrong" : "right");
	return 7;
}
