/* The seed of the fuzz target, freestanding so that it is small:
   aarch64-linux-gnu-gcc -O2 -fpatchable-function-entry=2 -fno-pie -no-pie -static -nostdlib -Wl,-z,max-page-size=4096 -s -o tiny-arm64 tiny-arm64.c */
__attribute__((noinline)) int twice(int x) { __asm__ volatile(""); return 2 * x; }
__attribute__((patchable_function_entry(0))) void _start(void)
{
	register long x8 __asm__("x8") = 93, x0 __asm__("x0") = twice(4);
	__asm__ volatile("svc 0" : : "r"(x8), "r"(x0));
	for (;;)
		;
}
