/* A library that has a constructor, and throws now and then. */
#include <stdexcept>
#include <string>
static int begun;
__attribute__((noinline)) int one(int i) { asm volatile(""); return i + 1; }
__attribute__((constructor, noinline)) void begin() { begun = one(0); }
extern "C" __attribute__((noinline)) int work(int i)
{
	if (i % 4 == 3)
		throw std::runtime_error(std::to_string(i) + " is refused");
	return one(i) + begun + std::stoi("1");
}
