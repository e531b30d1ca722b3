//go:build linux

package fentry_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/fentry-dev/fentry"
)

// mappingSource is a program that has its threads map and unmap memory all the time, until its standard input ends.
const mappingSource = `
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

static atomic_int done;

__attribute__((noinline)) void *pages(long n) { return mmap(0, n << 20, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); }

static void *thread(void *unused)
{
	for (long n = 1; !done; n = n % 5 + 1) {
		void *at = pages(n);
		if (at == MAP_FAILED || munmap(at, n << 20) != 0)
			_exit(1);
	}
	return unused;
}

int main(int argc, char **argv)
{
	pthread_t t[3];
	char c;
	if (argc > 1) /* for what the tracer puts where programs are executed */
		return execv(argv[1], argv + 1);
	for (int i = 0; i < 3; i++)
		pthread_create(&t[i], 0, thread, 0);
	prctl(PR_SET_NAME, "ready");
	while (read(0, &c, 1) > 0)
		;
	done = 1;
	for (int i = 0; i < 3; i++)
		pthread_join(t[i], 0);
	puts("right");
	return 7;
}
`

// A process that maps memory all the time, so also where the tracer was about to be, is attached to nevertheless.
func TestAttachMapping(t *testing.T) {
	dir := t.TempDir()
	source := filepath.Join(dir, "main.c")
	if err := os.WriteFile(source, []byte(mappingSource), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, flags := range map[string][]string{"static": {"-static-pie", "-fPIE"}, "dynamic": nil} {
		t.Run(name, func(t *testing.T) {
			r := start(t, buildFile(t, source, flags...))
			for range 12 {
				attach(t, r.cmd.Process.Pid, fentry.Options{Libraries: []string{"libc.so.6"}}, time.Millisecond)
			}
			r.end(t, 7, "right\n")
		})
	}
}
