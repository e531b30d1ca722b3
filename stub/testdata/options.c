/* A call tree with known times and depths, for the options that leave calls out. */
#include <setjmp.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#define NI __attribute__((noipa))
#define PLAIN __attribute__((noipa, patchable_function_entry(0)))
PLAIN static void spend(long us)
{
	struct timespec a, b;
	clock_gettime(CLOCK_MONOTONIC, &a);
	do
		clock_gettime(CLOCK_MONOTONIC, &b);
	while ((b.tv_sec - a.tv_sec) * 1000000 + (b.tv_nsec - a.tv_nsec) / 1000 < us);
}
NI void quick(void) { __asm__ volatile(""); }
NI void slow_leaf(void) { spend(3000); __asm__ volatile(""); }
NI void slow_child(void) { quick(); slow_leaf(); quick(); __asm__ volatile(""); }
NI void all_quick(int n) { quick(); if (n) all_quick(n - 1); __asm__ volatile(""); }
NI void sum_slow(void) { spend(1500); quick(); spend(1500); quick(); __asm__ volatile(""); }
NI void tail_target(void) { spend(3000); }
NI void tail(void) { quick(); tail_target(); }
NI long odd(long n);
NI long even(long n) { return n == 0 ? 1 : odd(n - 1); }
NI long odd(long n) { return n == 0 ? 0 : even(n - 1); }
NI void chain(long n) { even(n); quick(); __asm__ volatile(""); }
static jmp_buf env;
NI void jumper(int n) { if (n == 0) { spend(3000); longjmp(env, 1); } jumper(n - 1); __asm__ volatile(""); }
NI void quick_jumper(int n) { if (n == 0) longjmp(env, 1); quick_jumper(n - 1); __asm__ volatile(""); }
NI void root(int n) { quick(); all_quick(n); __asm__ volatile(""); }
NI void outside(void) { quick(); root(2); quick(); __asm__ volatile(""); }
int main(int argc, char **argv) __attribute__((patchable_function_entry(0)));
int main(int argc, char **argv)
{
	if (argc > 1 && !strcmp(argv[1], "times")) {
		for (int i = 0; i < 10000; i++) all_quick(3);
		slow_child();
		sum_slow();
		tail();
		if (setjmp(env) == 0) jumper(3);
		for (int i = 0; i < 100; i++) if (setjmp(env) == 0) quick_jumper(3);
		quick();
		puts("done");
	} else if (argc > 1 && !strcmp(argv[1], "tails")) {
		for (int i = 0; i < 1000; i++) chain(100);
		puts("done");
	} else {
		for (int i = 0; i < 10; i++) { all_quick(20); outside(); quick(); }
		for (int i = 0; i < 10; i++) { if (setjmp(env) == 0) quick_jumper(5); all_quick(1); }
		puts("done");
	}
	return 0;
}
