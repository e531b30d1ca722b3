// What a static program needs its program headers for: exceptions, backtrace() and thread-local memory, in the first thread
// and in others.
#include <execinfo.h>
#include <pthread.h>
#include <stdexcept>
#include <stdio.h>

static thread_local int filled[4] = {1, 2, 3, 4}, zeroed[100];

extern "C" {
__attribute__((noinline)) int thrower(int n)
{
	zeroed[n % 100] += filled[n % 4];
	if (n == 0)
		throw std::runtime_error("boom");
	int r = thrower(n - 1);
	__asm__ volatile("");
	return r + 1;
}
__attribute__((noinline)) int catcher(int n)
{
	try {
		return thrower(n);
	} catch (std::exception &) {
		return 1000 + n;
	}
}
__attribute__((noinline)) int depth(int n)
{
	if (n > 0) {
		int r = depth(n - 1);
		__asm__ volatile("");
		return r;
	}
	void *frames[64];
	return backtrace(frames, 64) >= 10;
}
}

static void *thread(void *result)
{
	long sum = 0;
	for (int i = 0; i < 20; i++)
		sum += catcher(i);
	for (int n : zeroed)
		sum += n;
	*(long *)result = sum;
	return nullptr;
}

int main()
{
	pthread_t threads[4];
	long sums[5];
	for (int i = 0; i < 4; i++)
		pthread_create(&threads[i], nullptr, thread, &sums[i]);
	thread(&sums[4]);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], nullptr);
	for (long s : sums)
		printf("%ld\n", s);
	printf("deep %d\n", depth(9));
}
