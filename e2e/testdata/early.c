// A library's constructor starts a thread, which calls back into the program before main; the program has constructors and destructors of its own.
//e2e:library earlylib
//e2e:link -rdynamic -pthread
// its library is made for glibc
//e2e:compilers gcc clang
#include "count.h"

extern int early_wait(void);
static int constructed;
FN static int leaf(int n) { COUNT(); return n + 1; }
FN int early_callback(int n);
int early_callback(int n) { COUNT(); return leaf(n) * 2; }
__attribute__((constructor)) FN static void ctor(void) { COUNT(); constructed = leaf(1); }
__attribute__((destructor)) FN static void dtor(void) { COUNT(); say("destructor %d\n", leaf(2)); }
int main(void)
{
	COUNT();
	say("constructed %d early %d\n", constructed, early_wait());
	return leaf(4);
}
