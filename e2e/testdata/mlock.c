// Locks all its memory, now and in future, under the limit that users commonly have. (XRay's runtime alone needs most of that.)
//e2e:kinds fentry mcount patchable nop clang clangpatch musl
#include "count.h"
#include <errno.h>
#include <pthread.h>
#include <sys/resource.h>

FN static long leaf(long n)
{
	COUNT();
	return n * 3 + 1;
}

FN static long nested(int depth)
{
	COUNT();
	return depth == 0 ? leaf(1) : KEEP(nested(depth - 1)) + 1;
}

FN static void *thread(void *arg)
{
	COUNT();
	for (int i = 0; i < 100; i++)
		*(long *)arg += nested(i % 10);
	return arg;
}

FN int main(void)
{
	COUNT();
	struct rlimit limit = {8 << 20, 8 << 20};
	long sum = leaf(1);
	if (setrlimit(RLIMIT_MEMLOCK, &limit) != 0)
		say("setrlimit: %s\n", strerror(errno));
	if (getuid() == 0 && setuid(65534) != 0) // who may lock more has no limit
		say("setuid: %s\n", strerror(errno));
	say("lock: %s\n", mlockall(MCL_CURRENT | MCL_FUTURE) == 0 ? "done" : strerror(errno));
	pthread_attr_t attr;
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, 256 << 10);
	pthread_t t;
	if (pthread_create(&t, &attr, thread, &sum) != 0 || pthread_join(t, NULL) != 0)
		say("no thread\n");
	say("%ld\n", nested(1000) + sum);
	return 0;
}
