/* Exceptions and backtraces through functions that return to the handler. Prints
   what it finds, the same traced and untraced, and then how often functions were called. */
#include <cstdio>
#include <cstdlib>
#include <execinfo.h>
#include <stdexcept>
#include <thread>
#include <unwind.h>
#include <vector>

#define TRACED __attribute__((noinline))
#define NOTRACE __attribute__((noinline, no_instrument_function))
static int n_thrower, n_frame, n_again, n_catcher, n_library, n_show;
struct guard { int *n; NOTRACE ~guard() { ++*n; } };
static int destroyed;

extern "C" {
TRACED void thrower(int x) { __atomic_fetch_add(&n_thrower, 1, __ATOMIC_RELAXED); if (x >= 0) throw x; }
TRACED void frame(int n, int x);
static void (*volatile frame_)(int, int) = frame;
TRACED void frame(int n, int x) { guard g{&destroyed}; __atomic_fetch_add(&n_frame, 1, __ATOMIC_RELAXED); if (n == 0) thrower(x); else frame_(n - 1, x); }
TRACED void again(int x) { n_again++; try { frame(5, x); } catch (int &) { throw; } }
TRACED int catcher(int x) { __atomic_fetch_add(&n_catcher, 1, __ATOMIC_RELAXED); try { frame(20, x); } catch (int v) { return v; } return -1; }
TRACED int library(int i) { n_library++; std::vector<int> v(3); try { return v.at(i); } catch (const std::out_of_range &) { return 99; } }
TRACED int show(int n);
static int (*volatile show_)(int) = show;
}
NOTRACE static _Unwind_Reason_Code step(_Unwind_Context *c, void *p) { std::printf(" %p", (void *)_Unwind_GetIP(c)); return ++*(int *)p == 40 ? _URC_END_OF_STACK : _URC_NO_REASON; }
extern "C" TRACED int show(int n)
{
	n_show++;
	if (n > 0)
		return show_(n - 1) + 1;
	void *b[40];
	int k = backtrace(b, 40), m = 0;
	for (int i = 0; i < k; i++)
		std::printf(" %p", b[i]);
	std::printf("\n");
	_Unwind_Backtrace(step, &m);
	std::printf("\n");
	return 0;
}

int main()
{
	int s = 0;
	for (int i = 0; i < 30; i++)
		s += catcher(i);
	std::printf("caught %d\n", s);
	try { frame(1000, 7); } catch (int x) { std::printf("deep %d\n", x); }
	try { again(3); } catch (int x) { std::printf("again %d\n", x); }
	std::printf("library %d %d\n", library(1), library(5));
	std::thread t([] { for (int i = 0; i < 10; i++) catcher(i); });
	t.join();
	std::printf("destroyed %d\n", destroyed);
	show(5);
	std::printf("COUNTS\nthrower %d\nframe %d\nagain %d\ncatcher %d\nlibrary %d\nshow %d\nmain 1\n", n_thrower, n_frame, n_again, n_catcher, n_library, n_show);
}
