/* Loads traced shared objects, whose paths are its arguments, calls each, and prints how many have joined. */
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv)
{
	long joined = 0;
	for (int i = 1; i < argc; i++) {
		void *h = dlopen(argv[i], RTLD_NOW);
		long (*sum)(long, long (*)(long)) = h ? (long (*)(long, long (*)(long)))dlsym(h, "g_sum") : 0;
		if (!sum || sum(3, 0) != 6)
			return 1;
		joined += *(long *)dlsym(h, "joined");
	}
	printf("%ld\n", joined);
	return 0;
}
