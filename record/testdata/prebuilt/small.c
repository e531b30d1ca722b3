// Small functions for images without start files. build.sh says how each image is made.
#define NOINLINE __attribute__((noinline, noclone))

__attribute__((no_instrument_function, noinline, patchable_function_entry(0)))
#ifdef __clang__
__attribute__((xray_never_instrument))
#endif
int untraced(int x) { return x * 3; }

NOINLINE int leaf(int x) { return x + untraced(x); }

static NOINLINE int local(int x) { return x ^ 5; }

NOINLINE int varargs(int n, ...) {
	__builtin_va_list ap;
	__builtin_va_start(ap, n);
	int s = 0;
	while (n--)
		s += __builtin_va_arg(ap, int);
	__builtin_va_end(ap);
	return s;
}

// gcc -pg finds the arguments of this one through %r10 and pushes a copy of the return address.
NOINLINE int realigned(int n, ...) {
	_Alignas(64) char a[64];
	char *p = __builtin_alloca(n + 1);
	__builtin_va_list ap;
	__builtin_va_start(ap, n);
	a[n & 63] = __builtin_va_arg(ap, int);
	__builtin_va_end(ap);
	__asm__ volatile("" : : "r"(a), "r"(p) : "memory");
	return a[n & 31];
}

#ifndef __clang__
NOINLINE int outer(int x) {
	int inner(int y) { return x + y; }
	int (*volatile p)(int) = inner;
	return p(3);
}
#endif

int start(int n) {
#ifndef __clang__
	n += outer(n);
#endif
	return leaf(n) + local(n) + varargs(1, n) + realigned(1, n);
}
