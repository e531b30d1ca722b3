// Every shape of function entry that compilers make differently for tracers.
//
// Lines of the form "expect KINDS: FUNCTION REASON" say what a site of one of the kinds (names of the test's builds)
// looks like; FUNCTION without a REASON is traceable, and so are all functions that no line names. "gcc" and "clang"
// in front of the kinds restrict the line to that compiler, "amd64" and "arm64" to that machine.
//
// expect all: untraced no-site
// expect amd64 gcc mcount: drap realigned-frame
// expect amd64 gcc mcount: drap_varargs realigned-frame
// expect all: resolve_pick ifunc-resolver
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define NOINLINE __attribute__((noinline, noclone))
#define NOTRACE __attribute__((no_instrument_function, noinline))
#ifdef __clang__
#define NOPATCH __attribute__((patchable_function_entry(0), xray_never_instrument))
#else
#define NOPATCH __attribute__((patchable_function_entry(0)))
#endif

NOTRACE NOPATCH int untraced(int x) { return x * 3; }

NOINLINE void empty(void) { __asm__ volatile(""); }

NOINLINE int leaf(int x) { return x + 1; }

static NOINLINE int basic_local(int x) { return x ^ 5; }

NOINLINE int varargs(int n, ...) {
	va_list ap;
	va_start(ap, n);
	double s = 0;
	while (n--)
		s += n & 1 ? va_arg(ap, double) : va_arg(ap, int);
	va_end(ap);
	return (int)s;
}

struct big { long a[12]; };

NOINLINE struct big structs(struct big b, int k) {
	b.a[k & 7] = k;
	return b;
}

// A stack realigned behind the saving of the frame pointer.
NOINLINE int aligned(int x) {
	_Alignas(64) char v[64];
	memset(v, x, sizeof v);
	__asm__ volatile("" : : "r"(v) : "memory");
	return v[x & 31];
}

// A realigned stack and arguments, or a size that is known at run time only: gcc finds the arguments through another
// register and pushes a copy of the return address.
NOINLINE int drap(int x, int y, int z, int u, int v, int w, int s1, int s2) {
	_Alignas(64) char a[64];
	char *p = alloca(x + 1);
	memset(a, x, sizeof a);
	memset(p, y, x + 1);
	__asm__ volatile("" : : "r"(a), "r"(p) : "memory");
	return a[s1 & 31] + p[0] + s2;
}

NOINLINE int drap_varargs(int n, ...) {
	_Alignas(32) int a[8];
	va_list ap;
	va_start(ap, n);
	for (int i = 0; i < 8; i++)
		a[i] = va_arg(ap, int);
	va_end(ap);
	char *p = alloca(n + 1);
	__asm__ volatile("" : : "r"(a), "r"(p) : "memory");
	return a[n & 7];
}

// The frame is needed on one path only.
NOINLINE int shrinkable(int *p) {
	if (!p)
		return 0;
	volatile int a[10];
	for (int i = 0; i < 10; i++)
		a[i] = leaf(p[0]);
	return a[3];
}

// Probed page by page with -fstack-clash-protection.
NOINLINE int bigframe(int x) {
	volatile char a[70000];
	for (int i = 0; i < 70000; i += 100)
		a[i] = x;
	return a[x & 255];
}

NOINLINE int tailcall(int x) { return leaf(x + 1); }

NOINLINE int recursive(int n) { return n < 2 ? n : recursive(n - 1) + recursive(n - 2); }

// A loop whose head is as near to the entry as it gets.
NOINLINE int looping(int n) {
	do
		__asm__ volatile("" : "+r"(n));
	while (--n > 0);
	return n;
}

NOINLINE __attribute__((cold)) void unlikely(void) { __asm__ volatile(""); }

NOINLINE int coldpath(int x) {
	if (__builtin_expect(x == 1234567, 0)) {
		unlikely();
		abort();
	}
	return x;
}

NOINLINE long double x87(long double a) { return a * 2; }

__attribute__((constructor)) void before_main(void) { empty(); }

#ifndef __clang__
// The static chain is live at the entry.
NOINLINE int outer(int x) {
	int basic_inner(int y) { return x + y; }
	int (*volatile p)(int) = basic_inner;
	return p(3);
}
#endif

#ifdef IFUNC
static int pick1(int x) { return x + 1; }
int (*resolve_pick(void))(int) { return pick1; }
int pick(int x) __attribute__((ifunc("resolve_pick")));
#endif

__attribute__((weak)) int weak_fn(int x) { return x - 1; }
extern int alias_fn(int x) __attribute__((alias("weak_fn")));

#ifndef SHARED
int main(int argc, char **argv)
#else
int entry(int argc, char **argv)
#endif
{
	struct big b = {{0}};
	int r = leaf(argc) + basic_local(argc) + varargs(2, 1, 2.0) + structs(b, argc).a[1] + aligned(argc);
	r += drap(argc, 1, 2, 3, 4, 5, 6, 7) + drap_varargs(1, 1, 2, 3, 4, 5, 6, 7, 8) + shrinkable(&r) + bigframe(r);
	r += tailcall(r) + recursive(5) + looping(3) + coldpath(r) + (int)x87(2) + untraced(1) + weak_fn(3) + alias_fn(2);
#ifndef __clang__
	r += outer(2);
#endif
#ifdef IFUNC
	r += pick(3);
#endif
	empty();
	return r == 42;
}
