// An IFUNC resolver is called while the program is still being relocated. Only site kinds that are inert until patched can be there.
//e2e:kinds patchable xray arm64-patchable arm64-bti arm64-clang
//e2e:may-lack resolve
#include "count.h"

FN static int one(int n) { COUNT(); return n + 1; }
static int (*resolve(void))(int);
FN static int (*resolve(void))(int) { return one; }
int chosen(int n) __attribute__((ifunc("resolve")));
int main(void)
{
	COUNT();
	int s = 0;
	for (int i = 0; i < 1000; i++)
		s = chosen(s);
	say("%d\n", s);
	return 0;
}
