/* What a program and its libraries count themselves, in memory that forked children share. Names begin with the letter of
   the image that has the function: m the program, l its library, p a plugin. */
#define FUNCTIONS(X) \
	X(m_leaf) X(m_tail) X(m_jump) X(m_handler_calls) X(m_early) X(l_leaf) X(l_sum) X(l_tail) X(l_through) X(l_handler) \
	X(l_fork) X(l_early) X(p_sum) X(p_leaf)

#define X(f) C_##f,
enum { FUNCTIONS(X) COUNTS };
#undef X

extern long *counts;
#define COUNT(f) __atomic_add_fetch(&counts[C_##f], 1, __ATOMIC_RELAXED)
#define FN __attribute__((noinline, noipa))

typedef long callback(long);
typedef long tail(long n, void *other);

long l_sum(long n, callback *f);
long l_tail(long n, void *other);
long l_through(long n, callback *f);
void l_handler(int sig);
long l_fork(long n);
long l_early(long n);
long l_waited(void);
