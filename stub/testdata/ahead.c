/* A signal at each instruction with which a thread goes on in its next chunk without a system call. Arguments: where the
   routine is that does so and its size, how many calls of a traced function the handler makes, how else it behaves (stack: it
   has one of its own; jump: it does not return; fork: it forks, and both return), and where it stands how much later
   numbers may be.
   Chunks are filled up to their last slots, and then the routine is stepped through until the handler does something: at the
   first instruction, and in the next chunk at the second. Prints how often functions were called, how often the handler did
   something, and at how many instructions. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>
#include "../src/amd64/thunk.h"
#define NI __attribute__((noipa))
#define PLAIN __attribute__((noipa, patchable_function_entry(0)))

static struct { long leaf, inner; } *n;
static int *how_much_later;
static long at, size, from, calls, left, came, child; /* left: instructions until the handler does something */
static const char *how;
static char *met;
static sigjmp_buf away;
enum { TF = 0x100, INT3 = 0xcc, RET = 0xc3, LEAST = 45 };

NI void leaf(void) { n->leaf++; __asm__ volatile(""); }
NI void inner(void) { n->inner++; __asm__ volatile(""); }

/* The thread's block is at its gs base. */
#define WORD(offset) ({ unsigned long w; __asm__ volatile("mov %%gs:%c1, %0" : "=r"(w) : "i"(offset)); w; })

/* stop_at has the thread come to the handler at an instruction, from, once. */
static unsigned char old;
PLAIN static void write_code(long to, unsigned char b)
{
	long page = sysconf(_SC_PAGESIZE);
	if (mprotect((void *)(to & -page), page, PROT_READ | PROT_WRITE | PROT_EXEC)) abort();
	*(unsigned char *)to = b;
}
PLAIN static void stop_at(long to)
{
	from = to;
	old = *(unsigned char *)to;
	write_code(to, INT3);
}

static int returns; /* the routine, with its next instruction; else it has called another */

/* The trap flag is clear in here. */
PLAIN static void on_trap(int sig, siginfo_t *info, void *uc)
{
	greg_t *regs = ((ucontext_t *)uc)->uc_mcontext.gregs;
	(void)sig, (void)info;
	regs[REG_EFL] &= ~TF;
	if (regs[REG_RIP] == from + 1 && *(unsigned char *)from == INT3) {
		write_code(from, old);
		regs[REG_RIP] = from;
	}
	long pc = regs[REG_RIP] - at;
	int in = pc >= 0 && pc < size;
	if (!in && returns)
		return;
	if (in)
		returns = *(unsigned char *)(at + pc) == RET;
	if (!in || left-- > 0) {
		regs[REG_EFL] |= TF;
		return;
	}
	met[pc] = came = 1;
	for (long i = 0; i < calls; i++)
		inner();
	if (!strcmp(how, "jump"))
		siglongjmp(away, 1);
	int status = 0;
	if (!strcmp(how, "fork") && (child = fork() == 0) == 0 && (wait(&status) < 0 || status != 0))
		abort();
}

/* fill goes on to the last slots of a chunk behind which another one is prepared. Where all is so slow that numbers are late
   at each chunk, they may be. It returns 0 if that takes for ever. */
PLAIN static int fill(void)
{
	for (long i = 0; i < 1 << 21; i++) {
		unsigned long next = WORD(CB_NEXT), end = WORD(CB_END);
		if (end & 7 && (end & -8UL) - next <= 16)
			return 1;
		if (i == 1 << 20)
			*how_much_later = 1 << 30;
		leaf();
	}
	return 0;
}
PLAIN static void fresh_name(void)
{
	static int name;
	prctl(PR_SET_NAME, name++ & 1 ? "odd" : "even"); /* a record of three words, in the next chunk that a slow path begins */
}
/* after_clock is behind the instruction that reads the clock: stepping to there takes so long that nothing goes ahead. */
PLAIN static long after_clock(void)
{
	long p = at;
	while (((unsigned char *)p)[0] != 0x0f || ((unsigned char *)p)[1] != 0x31)
		p++;
	return p + 2;
}
PLAIN static long most(void)
{
	long k = 0;
	for (long i = 0; i < size; i++)
		k += met[i] != 0;
	return k;
}
PLAIN int main(int argc, char **argv)
{
	static char stack[1 << 16];
	long n_met = 0;
	if (argc != 6) return 2;
	at = strtol(argv[1], 0, 16);
	size = strtol(argv[2], 0, 10);
	calls = strtol(argv[3], 0, 10);
	how = argv[4];
	how_much_later = (int *)strtol(argv[5], 0, 16);
	met = calloc(1, size);
	n = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	sigaltstack(&(stack_t){ .ss_sp = stack, .ss_size = sizeof stack }, 0);
	struct sigaction sa = { .sa_sigaction = on_trap, .sa_flags = SA_SIGINFO | (strcmp(how, "stack") ? 0 : SA_ONSTACK) };
	sigaction(SIGTRAP, &sa, 0);
	alarm(600); /* rather than for ever */
	/* A busy machine makes numbers late, and nothing goes ahead: again, then. The routine has fewer instructions than bytes. */
	for (long k = 0, rounds = 0; rounds < 1000 && (rounds < 2 || most() < LEAST); k = k < size / 3 ? k + 1 : 0, rounds += !k) {
		if (k % 7 == 0)
			fresh_name();
		if (!fill()) return 3;
		left = k;
		came = returns = 0;
		stop_at(rounds & 1 ? at : after_clock());
		if (sigsetjmp(away, 1) == 0) {
			leaf();
			leaf();
		}
		if (*(unsigned char *)from == INT3)
			write_code(from, old);
		if (child) {
			for (int i = 0; i < 10; i++)
				leaf();
			_exit(0);
		}
		n_met += came;
	}
	printf("leaf %ld\ninner %ld\nhandlers: %ld, behind %ld instructions\n", n->leaf, n->inner, n_met, most());
	return 0;
}
