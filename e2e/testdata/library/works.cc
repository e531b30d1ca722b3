/* Loads the library that it is told, calls it and unloads it, again and again, in threads and in a child. */
#include <dlfcn.h>
#include <atomic>
#include <cstdio>
#include <exception>
#include <thread>
#include <unistd.h>
#include <vector>
#include <sys/wait.h>
static std::atomic<int> sum, refused;
static void use(const char *path, int n)
{
	for (int i = 0; i < n; i++) {
		void *h = dlopen(path, RTLD_NOW);
		auto work = (int (*)(int))dlsym(h, "work");
		try { sum += work(i); } catch (std::exception &e) { refused++; }
		dlclose(h);
	}
}
int main(int, char **argv)
{
	use(argv[1], 40);
	std::vector<std::thread> ts;
	for (int t = 0; t < 4; t++)
		ts.emplace_back(use, argv[1], 20);
	for (auto &t : ts)
		t.join();
	fflush(stdout);
	pid_t pid = fork();
	if (!pid) {
		use(argv[1], 8);
		_exit(refused);
	}
	int status;
	waitpid(pid, &status, 0);
	printf("%d %d %d\n", sum.load(), refused.load(), WEXITSTATUS(status));
	return 0;
}
