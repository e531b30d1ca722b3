package e2e

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/fentry-dev/fentry/internal/testtool"
)

// libraryOf has a constructor that stops the process if it is told to, or makes a child and a thread.
const libraryOf = `
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
__attribute__((noinline)) int lib_work(int n) { int r = 0; while (r < n) { r++; __asm__ volatile(""); } return r; }
static void *thread(void *arg) { lib_work(2); return arg; }
__attribute__((constructor)) static void begin(void)
{
	const char *how = getenv("HOW");
	if (how && *how == 's')
		raise(SIGSTOP);
	if (how && *how == 'c') {
		pthread_t t;
		int status;
		pid_t p = fork();
		if (!p)
			_exit(lib_work(3));
		waitpid(p, &status, 0);
		if (WEXITSTATUS(status) != 3 || pthread_create(&t, 0, thread, 0) || pthread_join(t, 0))
			abort();
	}
}
`

// executing executes itself with its library in several ways.
const executing = `
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
int lib_work(int n);
static int child(const char *prog, const char *how)
{
	int status, stops = 0;
	fflush(stdout);
	pid_t p = fork();
	if (!p) {
		setenv("HOW", how, 1);
		execl(prog, prog, "child", (char *)0);
		_exit(99);
	}
	while (waitpid(p, &status, WUNTRACED) == p && WIFSTOPPED(status)) {
		stops++;
		kill(p, SIGCONT);
	}
	printf("%s: %d, %d stops\n", how, WIFEXITED(status) ? WEXITSTATUS(status) : -1, stops);
	return status;
}
int main(int argc, char **argv)
{
	if (argc > 1)
		return lib_work(7);
	child(argv[0], "plain");
	child(argv[0], "children");
	child(argv[0], "stops");
	return 0;
}
`

// TestExecutesLibraries: libraries that are named are traced in the programs that a program executes, and system calls are
// recorded there. What constructors do is what they do untraced.
func TestExecutesLibraries(t *testing.T) {
	dir, _ := executes(t, "gcc")
	testtool.Need(t, "gcc")
	for name, text := range map[string]string{"lib.c": libraryOf, "main.c": executing} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	run(t, command{dir: dir, argv: []string{"gcc", "-O1", "-shared", "-fPIC", "-o", "libwork.so", "lib.c", "-lpthread"}}).mustSucceed(t)
	run(t, command{dir: dir, argv: []string{"gcc", "-O1", "-o", "main", "main.c", "./libwork.so", "-Wl,-rpath," + dir}}).mustSucceed(t)
	want := run(t, command{dir: dir, argv: []string{"./main"}})
	if want.stdout != "plain: 7, 0 stops\nchildren: 7, 0 stops\nstops: 7, 1 stops\n" {
		t.Fatalf("untraced: %q", want.stdout)
	}
	for _, options := range [][]string{
		{"-L", "libwork.so", "-F", "libwork.so:*"}, {"--syscalls", "-F", "none"}, {"--syscalls", "-L", "libwork.so", "-F", "lib_*"},
	} {
		data := filepath.Join(t.TempDir(), "data")
		got := run(t, command{dir: dir, argv: append(append([]string{fentry, "record", "-o", data}, options...), "./main")})
		got.stderr = want.stderr
		sameBehaviour(t, want, got)
		calls := map[string]int{}
		for _, row := range report(t, data) {
			calls[row.Name] += int(row.Calls)
		}
		if options[0] != "--syscalls" || options[1] == "-L" {
			if calls["lib_work"] != 3+2 {
				t.Errorf("%v: %v", options, calls)
			}
		}
		if options[0] == "--syscalls" && (calls["sys_execve"] != 3 || calls["sys_wait4"] != 5 || calls["sys_exit_group"] != 5) {
			t.Errorf("%v: %v", options, calls)
		}
	}
}
