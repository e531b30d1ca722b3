/* As many calls of an empty function as the argument says. */
#include <stdlib.h>
#define PLAIN __attribute__((noipa, patchable_function_entry(0)))
__attribute__((noipa)) void empty(void) { __asm__ volatile(""); }
PLAIN int main(int argc, char **argv)
{
	for (long n = argc > 1 ? atol(argv[1]) : 0; n > 0; n--)
		empty();
	return 0;
}
