// Called from code that is not traced: qsort, bsearch, pthread_once, atexit, thread_local destructors, std::thread, std::async, virtual
// functions, function objects, static initialisers.
//e2e:link -pthread
//e2e:ignore *
#include "count.h"
#include <algorithm>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <pthread.h>
#include <thread>
#include <vector>

static int gone;
extern "C" {
FN int compare(const void *a, const void *b) { COUNT(); return *(const int *)a - *(const int *)b; }
FN void once(void) { COUNT(); say("once\n"); }
FN void farewell(void) { COUNT(); say("farewell %d\n", gone); }
FN int leaf(int n) { COUNT(); return n * n; }
FN void note_gone(void) { COUNT(); __atomic_add_fetch(&gone, 1, __ATOMIC_SEQ_CST); }
FN int initial(void) { COUNT(); return leaf(12); }
FN long job(int n)
{
	COUNT();
	long s = 0;
	for (int i = 0; i < n; i++)
		s += leaf(i);
	return s;
}
FN bool less_than(int a, int b) { COUNT(); return a < b; }
}
static int initialised = initial();
struct PerThread {
	int v = 0;
	FN ~PerThread();
};
FN PerThread::~PerThread()
{
	COUNT_AS("PerThread::~PerThread()");
	note_gone();
}
static thread_local PerThread per_thread;
struct Shape {
	virtual int area() const = 0;
	virtual ~Shape() {}
};
struct Square : Shape {
	int n;
	explicit Square(int n) : n(n) {}
	FN int area() const override;
};
FN int Square::area() const
{
	COUNT_AS("Square::area() const");
	return leaf(n);
}
extern "C" FN long in_thread(int n)
{
	COUNT();
	per_thread.v = n;
	return job(n);
}
extern "C" FN long shapes()
{
	COUNT();
	std::vector<std::unique_ptr<Shape>> v;
	for (int i = 0; i < 10; i++)
		v.push_back(std::make_unique<Square>(i));
	long s = 0;
	for (auto &p : v)
		s += p->area();
	return s;
}
int main()
{
	COUNT();
	atexit(farewell);
	int v[64];
	for (int i = 0; i < 64; i++)
		v[i] = (i * 37) % 64;
	qsort(v, 64, sizeof *v, compare);
	int k = 17;
	say("found %d\n", *(int *)bsearch(&k, v, 64, sizeof *v, compare));
	pthread_once_t o = PTHREAD_ONCE_INIT;
	pthread_once(&o, once);
	pthread_once(&o, once);
	long s = 0;
	{
		std::vector<std::thread> ts;
		std::vector<long> r(8);
		for (int i = 0; i < 8; i++)
			ts.emplace_back([i, &r] { r[i] = in_thread(i * 10); });
		for (auto &t : ts)
			t.join();
		for (long x : r)
			s += x;
	}
	std::future<long> f = std::async(std::launch::async, in_thread, 5);
	s += f.get();
	std::vector<int> w(v, v + 64);
	std::reverse(w.begin(), w.end());
	std::sort(w.begin(), w.end(), less_than);
	std::function<int(int)> fn = leaf;
	say("sum %ld first %d function %d initial %d shapes %ld\n", s, w[0], fn(9), initialised, shapes());
	return 0;
}
