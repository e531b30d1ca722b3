// An exception nobody catches: std::terminate, the message on stderr, SIGABRT.
//e2e:run plain
//e2e:run noexcept
#include "count.h"
#include <stdexcept>

extern "C" FN int thrower(int n)
{
	COUNT();
	if (n == 0)
		throw std::runtime_error("nobody catches me");
	int r = thrower(n - 1);
	__asm__ volatile("");
	return r;
}
extern "C" FN int wall(int n) noexcept { COUNT(); return thrower(n) + 1; }
int main(int argc, char **argv)
{
	COUNT();
	bool hit = argc > 1 && argv[1][0] == 'n';
	ABANDON(hit ? 6 : 5);
	return KEEP(hit ? wall(3) : thrower(3));
}
