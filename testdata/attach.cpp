// A busy program: threads that throw, are created and end, wait in system calls with time limits, take signals and fork,
// until standard input ends. It says whether all was right, and ends with status 7. With an argument, one thread sums up.
// It is called "ready" when each of its threads has done something.
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <stdexcept>
#include <thread>
#include <vector>
#include <linux/futex.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline))

static std::atomic<bool> stop;
static std::atomic<long> errors, throwers, thrown, made, waits, forks, signals;
static std::atomic<pid_t> worker;

static void bad(const char *what, long a, long b)
{
	errors++;
	fprintf(stderr, "wrong: %s: %ld %ld\n", what, a, b);
}

static double now()
{
	timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

NOINLINE long sum(long n)
{
	long r = n ? n + sum(n - 1) : 0;
	asm volatile("" : "+r"(r));
	return r;
}

NOINLINE int leaf(int x)
{
	if (x % 3 == 0)
		throw std::runtime_error("third");
	asm volatile("");
	return x + 1;
}
NOINLINE int middle(int x)
{
	std::vector<int> v(4, x);
	int r = leaf(x) + v[0];
	asm volatile("");
	return r;
}
NOINLINE int outer(int x)
{
	try {
		return middle(x) - x;
	} catch (const std::exception &) {
		thrown++;
		return -1;
	}
}
static void throws()
{
	for (int i = 0; !stop; i++) {
		int r = outer(i), want = i % 3 == 0 ? -1 : i + 1;
		if (r != want)
			bad("throw", r, want);
		throwers += i == 0;
	}
}

static void brief()
{
	if (sum(50) != 1275)
		bad("sum", sum(50), 1275);
	made++;
}
static void churn()
{
	while (!stop)
		std::thread(brief).join();
}

// wait checks a call that waits for so many seconds and then returns 0, or fails with an error that says so.
template <class F> NOINLINE void wait(const char *what, double seconds, int timeout, F call)
{
	while (!stop) {
		double began = now();
		long r = call();
		double took = now() - began;
		waits++;
		static std::atomic<int> rare; // docs/support.md
		if (r == -1 && errno == EINTR && (!strcmp(what, "epoll_wait") || !strcmp(what, "sigtimedwait")) && rare++ < 3)
			continue;
		if (r != 0 && !(r == -1 && timeout && errno == timeout))
			bad(what, r, errno);
		else if (took < seconds - 0.002)
			bad(what, (long)(took * 1e6), (long)(seconds * 1e6));
	}
}
static void sleeps() { timespec t = { 0, 70000000 }; wait("nanosleep", .07, 0, [&] { return nanosleep(&t, 0); }); }
static void polls()
{
	int p[2];
	if (pipe(p))
		exit(9);
	pollfd f = { p[0], POLLIN, 0 };
	wait("poll", .06, 0, [&] { return poll(&f, 1, 60); });
}
static void epolls()
{
	int e = epoll_create1(0);
	epoll_event event;
	wait("epoll_wait", .05, 0, [&] { return epoll_wait(e, &event, 1, 50); });
}
static void futexes()
{
	int word = 0;
	timespec t = { 0, 40000000 };
	wait("futex", .04, ETIMEDOUT, [&] { return syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, &t, 0, 0); });
}
static void selects() { wait("select", .055, 0, [] { timeval t = { 0, 55000 }; return select(0, 0, 0, 0, &t); }); }
static void signals_wait()
{
	sigset_t s;
	sigemptyset(&s);
	sigaddset(&s, SIGRTMIN);
	timespec t = { 0, 45000000 };
	wait("sigtimedwait", .045, EAGAIN, [&] { return sigtimedwait(&s, 0, &t); });
}

NOINLINE int handled(int x)
{
	asm volatile("");
	return x + 1;
}
static void handler(int)
{
	int e = errno;
	if (handled(1) != 2)
		bad("handler", 0, 0);
	signals++;
	errno = e;
}
static void signalling()
{
	while (!stop) {
		syscall(SYS_tgkill, getpid(), worker.load(), SIGUSR1);
		usleep(500);
	}
}
static void spin()
{
	worker = (pid_t)syscall(SYS_gettid);
	while (!stop)
		if (sum(200) != 20100)
			bad("spin", 0, 0);
}

static void forking()
{
	while (!stop) {
		pid_t p = fork();
		if (p == 0)
			_exit(sum(30) == 465 ? 42 : 1);
		int status = 0;
		if (waitpid(p, &status, 0) != p || !WIFEXITED(status) || WEXITSTATUS(status) != 42)
			bad("fork", status, p);
		forks++;
		usleep(3000);
	}
}

static void until_end()
{
	char c;
	while (read(0, &c, 1) > 0)
		;
	stop = true;
}

int main(int argc, char **)
{
	std::vector<std::thread> ts;
	if (argc > 1) {
		ts.emplace_back(until_end);
		prctl(PR_SET_NAME, "ready");
		spin();
		ts[0].join();
		printf("%s\n", errors ? "wrong" : "right");
		return 7;
	}
	signal(SIGUSR1, handler);
	sigset_t s;
	sigemptyset(&s);
	sigaddset(&s, SIGRTMIN);
	pthread_sigmask(SIG_BLOCK, &s, 0);
	ts.emplace_back(spin);
	while (!worker)
		usleep(100);
	for (auto f : { throws, throws, churn, sleeps, polls, epolls, futexes, selects, signals_wait, forking, signalling })
		ts.emplace_back(f);
	while (throwers < 2 || !made || waits < 6 || !signals || !forks)
		usleep(100);
	prctl(PR_SET_NAME, "ready");
	until_end();
	for (auto &t : ts)
		t.join();
	bool all = thrown && made && waits && signals && forks;
	printf("%s\n", errors || !all ? "wrong" : "right");
	return 7;
}
