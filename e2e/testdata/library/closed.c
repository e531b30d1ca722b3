// A library that is loaded and closed again and again: NAME is what its functions' names begin with. With FAILS it cannot
// be loaded.
#define CAT_(a, b) a##b
#define CAT(a, b) CAT_(a, b)
#define FN(name) __attribute__((noinline)) CAT(NAME, name)

static volatile int sum;

int FN(_leaf)(int i)
{
	sum += i;
	__asm__ volatile("");
	return sum;
}

__attribute__((constructor)) void FN(_begin)(void) { CAT(NAME, _leaf)(1); }
__attribute__((destructor)) void FN(_end)(void)
{
	extern int closed_libraries;
	__atomic_fetch_add(&closed_libraries, CAT(NAME, _leaf)(2) != 0, __ATOMIC_RELAXED);
}

#ifdef FAILS
extern int is_nowhere(void);
int FN(_fails)(void) { return is_nowhere(); }
#endif
