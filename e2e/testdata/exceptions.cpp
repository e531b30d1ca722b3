// C++ exceptions through traced frames: own, from libstdc++, rethrown, through 1,000 frames, nested, kept, from threads.
//e2e:ignore *
#include "count.h"
#include <exception>
#include <new>
#include <pthread.h>
#include <stdexcept>
#include <string>
#include <vector>

static int destroyed;
extern "C" FN void note(int n) { COUNT(); destroyed += n; }
struct Guard {
	int n;
	explicit Guard(int n) : n(n) {}
	FN ~Guard();
};
FN Guard::~Guard() // not in the class: inline functions have sections of their own, which a counter cannot share
{
	COUNT_AS("Guard::~Guard()");
	note(n);
}
struct Noisy {
	FN ~Noisy();
};
extern "C" {
FN int thrower(int n)
{
	COUNT();
	Guard g(1);
	if (n == 0)
		throw std::runtime_error("boom");
	int r = thrower(n - 1);
	__asm__ volatile("");
	return r + 1;
}
FN int catcher(int n)
{
	COUNT();
	try {
		ABANDON(n + 1);
		return thrower(n);
	} catch (std::exception &e) {
		return (int)strlen(e.what());
	}
}
FN int library(int n)
{
	COUNT();
	Guard g(1);
	std::vector<int> v(2);
	if (n == 0)
		return v.at(10);
	int r = library(n - 1);
	__asm__ volatile("");
	return r + 1;
}
FN int bad_alloc_from_new(size_t n)
{
	COUNT();
	Guard g(1);
	char *volatile p = new char[n];
	delete[] p;
	return 1;
}
FN int rethrow(int n)
{
	COUNT();
	try {
		try {
			ABANDON(n + 1);
			thrower(n);
		} catch (...) {
			Guard g(5);
			throw;
		}
	} catch (std::runtime_error &) {
		return 5;
	}
	return 0;
}
FN int each_level(int n)
{
	COUNT();
	if (n == 0) {
		ABANDON(1);
		throw 1;
	}
	try {
		Guard g(1);
		return KEEP(each_level(n - 1)) + 100;
	} catch (int k) {
		if (n > 3)
			return k;
		ABANDON(1);
		throw k + 1;
	}
}
FN void cleanup_throws_and_catches(int n)
{
	COUNT();
	Noisy noisy;
	ABANDON(1);
	if (n)
		throw n;
}
FN std::exception_ptr keep(int n)
{
	COUNT();
	try {
		ABANDON(n + 1);
		thrower(n);
	} catch (...) {
		return std::current_exception();
	}
	return nullptr;
}
FN int throw_kept(std::exception_ptr p)
{
	COUNT();
	try {
		std::rethrow_exception(p);
	} catch (std::runtime_error &e) {
		return e.what()[0];
	}
}
FN void *in_thread(void *p)
{
	COUNT();
	long s = 0;
	for (int i = 0; i < 200; i++)
		s += catcher(i % 13) + rethrow(i % 3);
	*(long *)p = s;
	return nullptr;
}
FN int never(int n) noexcept { COUNT(); return n + 1; }
}
FN Noisy::~Noisy()
{
	COUNT_AS("Noisy::~Noisy()");
	catcher(2);
}
int main()
{
	COUNT();
	int s = 0;
	for (int i = 0; i < 300; i++)
		s += catcher(i % 9);
	say("catcher %d destroyed %d\n", s, destroyed);
	try {
		ABANDON(6);
		library(5);
	} catch (std::out_of_range &) {
		say("out of range\n");
	}
	try {
		ABANDON(1);
		bad_alloc_from_new((size_t)-1 / 4);
	} catch (std::bad_alloc &) {
		say("bad alloc\n");
	}
	say("rethrow %d\n", rethrow(4));
	say("each level %d\n", each_level(12));
	try {
		cleanup_throws_and_catches(3);
	} catch (int k) {
		say("from cleanup %d\n", k);
	}
	say("thousand %d\n", catcher(1000));
	say("kept %d\n", throw_kept(keep(7)));
	pthread_t t[8];
	long sum[8], all = 0;
	for (int i = 0; i < 8; i++)
		pthread_create(&t[i], nullptr, in_thread, &sum[i]);
	for (int i = 0; i < 8; i++) {
		pthread_join(t[i], nullptr);
		all += sum[i];
	}
	say("threads %ld never %d\n", all, never(1));
	return 0;
}
