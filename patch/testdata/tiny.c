/* The seed of the fuzz target, freestanding so that it is small:
   gcc -O2 -pg -mfentry -fno-pie -no-pie -static -nostdlib -s -o tiny tiny.c */
void __fentry__(void) __attribute__((no_instrument_function));
void __fentry__(void) {}
__attribute__((noinline)) int twice(int x) { __asm__ volatile(""); return 2 * x; }
__attribute__((no_instrument_function)) void _start(void)
{
	__asm__ volatile("syscall" : : "a"(60), "D"(twice(4)));
	for (;;)
		;
}
