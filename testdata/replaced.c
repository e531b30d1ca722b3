/* Writes one library after the other to the same place, and loads it: over the one before, or in its place. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char text[3][1 << 16];
static ssize_t size[3];

int main(int argc, char **argv)
{
	if (argc != 5)
		return 1;
	for (int i = 0; i < 3; i++) {
		int fd = open(argv[2 + i], O_RDONLY);
		size[i] = read(fd, text[i], sizeof(text[i]));
		close(fd);
	}
	for (int round = 0; round < 30; round++) {
		int fd = open(argv[1], O_WRONLY | O_CREAT | O_TRUNC, 0700);
		if (write(fd, text[round % 3], size[round % 3]) != size[round % 3] || close(fd))
			return 2;
		void *lib = dlopen(argv[1], RTLD_NOW);
		if (!lib)
			return 3;
		printf("%d\n", ((int (*)(void))dlsym(lib, "which"))());
		dlclose(lib);
		if (round % 2)
			unlink(argv[1]);
		if (round == 20)
			sleep(2); /* from now on its times tell it apart */
	}
	return 0;
}
