#include <cstdlib>
#include <mutex>
#include <stdexcept>
#include <thread>

extern "C" int through(int i, int depth);
extern "C" void say(int caught);

extern "C" __attribute__((noinline)) int check(int i)
{
	if (i % 3 == 0)
		throw std::runtime_error("refused");
	return i;
}

static void work()
{
	static std::mutex one;
	int sum = 0, caught = 0;
	for (int i = 1; i <= 60; i++) {
		try {
			sum += through(i, i % 4);
		} catch (std::runtime_error &) {
			caught++;
		}
	}
	if (sum != 1260)
		abort();
	std::lock_guard<std::mutex> l(one);
	say(caught);
}

int main()
{
	std::thread a(work), b(work);
	work();
	a.join();
	b.join();
	throw std::runtime_error("at the end");
}
