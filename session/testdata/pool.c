// A stand-in for the runtime: it finds the recorder's pool as programs patched
// offline do, and writes chunks to it by the same rules.
//
//	pool threads N chunks   N threads, each writes that many chunks of full-size events; then exits
//	pool partial            one chunk of 10 events, not sealed; exits without handing it over
//	pool kill               as partial, then SIGKILL
//	pool fork               a child writes, its parent does not wait
//	pool daemon MS          the program ends, a daemon goes on for MS ms and writes
//	pool churn N            N threads one after another, one chunk each, never handed over
//	pool bad                full chunks that make no sense
//	pool forever [MS]       writes until the session is closed, MS ms between chunks
//	pool idle               maps the pool, writes nothing, waits for a signal
//	pool ns PID MS          a process that is PID in a PID namespace of its own writes, waits for MS ms, and writes more
//	pool profile FILE       an image and a profile of two slots in a file that grows
//	pool image PATH         an image of that path, twice, and an event of it
//	pool lost N             a chunk whose task lost N events
//	pool attack HOW         3 full chunks, what HOW says to the memory that is shared, one more chunk: truncate, grow,
//	                        punch (holes), seal, future (a seal against mappings to come), headers (of chunks that
//	                        the recorder reads, with random fields)
#define _GNU_SOURCE
#include "../../stub/src/format.h"
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static unsigned char *pool;
static uint32_t nchunks, chunk_size, header_size;

#define W32(off) (*(_Atomic uint32_t *)(pool + (off)))
#define W64(off) (*(_Atomic uint64_t *)(pool + (off)))

static int open_pool(void)
{
	for (int pid = getppid(); pid > 1;) {
		char path[64], link[128];
		snprintf(path, sizeof path, "/proc/%d/fd/63", pid);
		ssize_t n = readlink(path, link, sizeof link - 1);
		link[n < 0 ? 0 : n] = 0;
		if (!strncmp(link, "/memfd:fentry-pool", 18))
			return open(path, O_RDWR | O_CLOEXEC);
		snprintf(path, sizeof path, "/proc/%d/stat", pid);
		FILE *f = fopen(path, "re");
		if (!f || fscanf(f, "%*d (%*[^)]) %*c %d", &pid) != 1)
			return -1;
		fclose(f);
	}
	return -1;
}

static void map_pool(void)
{
	int fd = open_pool();
	struct stat st;
	if (fd < 0 || fstat(fd, &st)) {
		fprintf(stderr, "no pool\n");
		exit(99);
	}
	pool = mmap(0, st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	nchunks = W32(FT_H_CHUNKS);
	chunk_size = W32(FT_H_CHUNK_SIZE);
	header_size = W32(FT_H_HEADER_SIZE);
	if (memcmp(pool, "FENTRYT1", 8) || chunk_size != FT_CHUNK_SIZE || header_size + (size_t)nchunks * chunk_size + (size_t)W32(FT_H_SMALL_CHUNKS) * W32(FT_H_SMALL_SIZE) != (size_t)st.st_size) {
		fprintf(stderr, "bad pool\n");
		exit(98);
	}
}

static unsigned char *chunk(int i) { return pool + header_size + (size_t)i * chunk_size; }
static _Atomic uint32_t *state(int i) { return (_Atomic uint32_t *)(pool + FT_STATES_OFF + 4 * i); }
static uint64_t counter(void) { uint32_t lo, hi; __asm__ volatile("rdtsc" : "=a"(lo), "=d"(hi)); return lo | (uint64_t)hi << 32; }

static void header(int i, int kind, uint32_t number, uint64_t key, uint64_t lost)
{
	unsigned char *c = chunk(i);
	*(uint16_t *)(c + FT_C_KIND) = kind;
	*(uint32_t *)(c + FT_C_PID) = getpid();
	*(uint32_t *)(c + FT_C_TID) = gettid();
	*(uint32_t *)(c + FT_C_NUMBER) = number;
	*(uint64_t *)(c + FT_C_COUNTER) = counter();
	*(uint64_t *)(c + FT_C_IMAGE) = 0x1234;
	*(uint64_t *)(c + FT_C_KEY) = key;
	*(uint64_t *)(c + FT_C_LOST) = lost;
	memcpy(c + FT_C_COMM, "pool", 5);
	*(_Atomic uint32_t *)(c + FT_C_MAGIC) = FT_CHUNK_MAGIC;
}

static void image(int i, const char *path)
{
	char *p = (char *)chunk(i) + FT_CHUNK_HEADER;
	header(i, FT_KIND_IMAGE, 0, 1, 0);
	p += sprintf(p, "path=%s", path) + 1;
	p += sprintf(p, "nsites=%d", 7) + 1;
	*(uint32_t *)(chunk(i) + FT_C_SIZE) = (FT_CHUNK_HEADER + 7 + (p - (char *)chunk(i) - FT_CHUNK_HEADER)) & -8;
}

// take waits for a free chunk; -1: the session is closed
static int take(uint32_t number, uint64_t key, uint64_t lost)
{
	for (;;) {
		uint32_t freed = W32(FT_H_FREED);
		if (W32(FT_H_CLOSED))
			return -1;
		for (uint32_t i = 0; i < nchunks; i++) {
			uint32_t old = FT_STATE_FREE;
			if (!atomic_compare_exchange_strong(state(i), &old, FT_STATE_OWNED))
				continue;
			unsigned char *c = chunk(i);
			for (uint32_t k = 0; k < chunk_size; k += 8)
				if (*(uint64_t *)(c + k)) {
					fprintf(stderr, "chunk %u is not zero at %u\n", i, k);
					exit(97);
				}
			header(i, FT_KIND_EVENTS, number, key, lost);
			return i;
		}
		W32(FT_H_WAITERS)++;
		struct timespec ts = { 0, 100000000 };
		syscall(SYS_futex, &W32(FT_H_FREED), FUTEX_WAIT, freed, &ts, 0, 0);
		W32(FT_H_WAITERS)--;
	}
}

static void fill(int i, int events)
{
	uint64_t *p = (uint64_t *)(chunk(i) + FT_CHUNK_HEADER);
	uint32_t t = (uint32_t)counter();
	for (int k = 0; k < events; k++)
		p[k] = (uint64_t)(k % 2 ? 0x80000001u : 1) << 32 | (t + k);
}

static void full(int i, uint32_t size)
{
	*(uint32_t *)(chunk(i) + FT_C_SIZE) = size;
	atomic_store(state(i), FT_STATE_FULL);
	W32(FT_H_FILLED)++;
	syscall(SYS_futex, &W32(FT_H_FILLED), FUTEX_WAKE, 1, 0, 0, 0);
}

static int chunks;
static void sleep_ms(int ms) { usleep(ms * 1000); }

static int pause_ms;

static void *writer(void *arg)
{
	uint64_t key = counter();
	for (int n = 0; n < chunks; n++) {
		int i = take(n, key, 0);
		if (i < 0)
			break;
		fill(i, (chunk_size - FT_CHUNK_HEADER) / 8);
		full(i, chunk_size);
		if (pause_ms)
			sleep_ms(pause_ms);
	}
	return arg;
}

static void *partial(void *arg)
{
	int i = take(0, counter(), 0);
	if (i >= 0)
		fill(i, 10);
	return arg;
}

static int threads(int n, void *(*body)(void *))
{
	pthread_t t[n];
	for (int i = 0; i < n; i++)
		pthread_create(&t[i], 0, body, 0);
	for (int i = 0; i < n; i++)
		pthread_join(t[i], 0);
	return 0;
}

static uint64_t seed = 88172645463325252u;
static uint64_t any(void)
{
	seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
	return seed;
}

// scribble makes some of the last chunks full ones that change while they are read.
static void scribble(void)
{
	uint32_t sizes[] = { 0, FT_CHUNK_HEADER, chunk_size, chunk_size - 8, 2 * chunk_size, 0xfffffff8u, 12345 };
	for (int n = 0; n < 300000; n++) {
		int i = nchunks - 1 - any() % 4;
		unsigned char *c = chunk(i);
		*(uint16_t *)(c + FT_C_KIND) = any() % 5;
		for (int o = FT_C_PID; o < FT_CHUNK_HEADER + 64; o += 4)
			*(uint32_t *)(c + o) = any();
		*(volatile uint32_t *)(c + FT_C_SIZE) = sizes[any() % 7];
		*(volatile uint32_t *)(c + FT_C_MAGIC) = FT_CHUNK_MAGIC;
		*state(i) = any() % 5;
	}
	for (int i = nchunks - 4; i < (int)nchunks; i++)
		*state(i) = FT_STATE_WRITING; // nobody's
}

static int attack(const char *how)
{
	int fd = open_pool(), r = 0;
	struct stat st;
	chunks = 3;
	writer(0);
	fstat(fd, &st);
	if (!strcmp(how, "truncate"))
		r = ftruncate(fd, 0);
	if (!strcmp(how, "grow"))
		r = ftruncate(fd, 1L << 44);
	if (!strcmp(how, "punch")) {
		sleep_ms(300); // what was written before is in the file
		r = fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, header_size, st.st_size - header_size);
	}
	if (!strcmp(how, "seal"))
		r = fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL);
	if (!strcmp(how, "future"))
		r = fcntl(fd, F_ADD_SEALS, 16 /* F_SEAL_FUTURE_WRITE */);
	if (!strcmp(how, "headers"))
		scribble();
	chunks = 1;
	writer(0);
	printf("%d\n", r);
	return 8;
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	int n = argc > 2 ? atoi(argv[2]) : 0;
	alarm(30); // nothing may be left of a test that fails
	if (!strcmp(what, "profile")) {
		int fd = open(argv[2], O_RDWR);
		struct stat st;
		if (fd < 0 || fstat(fd, &st) || st.st_size < FT_HEADER_SIZE || ftruncate(fd, 1 << 30))
			return 90;
		pool = mmap(0, 1 << 30, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		header_size = W32(FT_H_HEADER_SIZE);
		if (st.st_size != header_size || W32(FT_H_RANGES) + FT_RANGE_ENTRY * W32(FT_H_RANGES_ROOM) != header_size)
			return 92;
		chunk_size = W32(FT_H_CHUNK_SIZE);
		if (W32(FT_H_CHUNKS) || W32(FT_H_RECORDER) || W32(FT_H_LAYOUT) != FT_LAYOUT_SLOTS)
			return 91;
		uint64_t n = atomic_fetch_add(&W64(FT_H_NEXT), 5);
		W64(FT_H_LOST) = 3;
		image(n, "/bin/profiled");
		header(n + 1, FT_KIND_PROFILE, 0, 1, 4);
		*(uint32_t *)(chunk(n + 1) + FT_C_SIZE) = 2 * chunk_size;
		// what looks like a chunk, in the middle of one
		*(uint32_t *)chunk(n + 2) = FT_CHUNK_MAGIC;
		return 0;
	}
	map_pool();
	if (!strcmp(what, "image")) {
		for (int k = 0; k < 2; k++) {
			int i = take(k, 1, 0);
			image(i, argv[2]);
			full(i, *(uint32_t *)(chunk(i) + FT_C_SIZE));
		}
		return partial(0) != 0;
	}
	if (!strcmp(what, "threads")) {
		chunks = atoi(argv[3]);
		return threads(n, writer);
	}
	if (!strcmp(what, "attack"))
		return attack(argv[2]);
	if (!strcmp(what, "partial"))
		return partial(0) != 0;
	if (!strcmp(what, "kill")) {
		partial(0);
		kill(getpid(), SIGKILL);
	}
	if (!strcmp(what, "fork")) {
		partial(0);
		if (fork() == 0)
			partial(0);
		return 3;
	}
	if (!strcmp(what, "daemon")) {
		if (fork() > 0)
			return 4;
		setsid();
		sleep_ms(n);
		chunks = 2;
		writer(0);
		return 0;
	}
	if (!strcmp(what, "churn")) {
		for (int i = 0; i < n; i++)
			threads(1, partial);
		return 0;
	}
	if (!strcmp(what, "ns")) {
		if (unshare(CLONE_NEWPID)) {
			perror("unshare");
			return 77;
		}
		if (fork() > 0)
			return wait(0) < 0; // the namespace ends with its first process
		for (;;) {
			pid_t p = fork();
			if (p == 0 && getpid() == n) {
				int i = take(0, 1, 0);
				fill(i, 5);
				sleep_ms(atoi(argv[3]));
				if (*state(i) != FT_STATE_OWNED)
					fprintf(stderr, "chunk %d was taken away\n", i);
				fill(i, 9);
				_exit(0);
			}
			if (p == 0)
				_exit(0);
			wait(0);
			if (p >= n)
				_exit(0);
		}
	}
	if (!strcmp(what, "bad")) {
		int i = take(0, 1, 0);
		*(uint32_t *)chunk(i) = 0x12345678; // no magic
		full(i, chunk_size);
		i = take(0, 1, 0);
		full(i, 12345); // no size
		i = take(0, 1, 0);
		*(uint16_t *)(chunk(i) + FT_C_KIND) = FT_MAX_KIND + 1; // no kind
		full(i, chunk_size);
		i = take(0, 1, 0);
		fill(i, 4);
		full(i, 0);
		return 0;
	}
	if (!strcmp(what, "forever")) {
		chunks = 1 << 30;
		pause_ms = n;
		signal(SIGINT, SIG_IGN);
		signal(SIGTERM, SIG_IGN);
		printf("ready\n");
		fflush(stdout);
		writer(0);
		printf("closed\n");
		return 5;
	}
	if (!strcmp(what, "idle")) {
		printf("ready\n");
		fflush(stdout);
		pause();
		return 6;
	}
	if (!strcmp(what, "lost")) {
		int i = take(0, 1, n);
		fill(i, 4);
		return 0;
	}
	return 96;
}
