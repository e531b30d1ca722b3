/* Calls functions that have actions (act_test.go says which), from one thread or several. It prints how often each was
   called, and what of that is to be in the trace is the test's to know. */
#include <pthread.h>
#include <setjmp.h>
#include <stdio.h>
#include <string.h>
#define NI __attribute__((noipa))
#define PLAIN __attribute__((noipa, patchable_function_entry(0)))
NI void work(void) { __asm__ volatile(""); }
NI void on(void) { work(); __asm__ volatile(""); }
NI void off(void) { work(); __asm__ volatile(""); }
NI void deep(int n) { work(); if (n) deep(n - 1); __asm__ volatile(""); }
NI void top(void) { deep(5); __asm__ volatile(""); }
NI void around(void) { work(); off(); work(); __asm__ volatile(""); }
NI void tail_off(void) { work(); off(); }
static jmp_buf env;
NI void jumps(int n) { if (!n) longjmp(env, 1); jumps(n - 1); __asm__ volatile(""); }
PLAIN static void *thread(void *p)
{
	for (int i = 0; i < 2000; i++) { off(); on(); work(); }
	return p;
}
int main(int argc, char **argv) __attribute__((patchable_function_entry(0)));
int main(int argc, char **argv)
{
	if (argc > 1 && !strcmp(argv[1], "threads")) {
		pthread_t t[4];
		for (int i = 0; i < 4; i++) pthread_create(t + i, 0, thread, 0);
		for (int i = 0; i < 4; i++) pthread_join(t[i], 0);
	} else if (argc > 1 && !strcmp(argv[1], "deep")) {
		top();
		for (int i = 0; i < 10; i++) if (!setjmp(env)) jumps(3);
		top();
		deep(2);
	} else {
		for (int i = 0; i < 10; i++) { work(); off(); work(); on(); work(); }
		around();
		work();
		on();
		tail_off();
		work();
		on();
		work();
	}
	puts("done");
	return 0;
}
