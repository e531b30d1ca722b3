//go:build linux

package fentry_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry"
	"github.com/fentry-dev/fentry/internal/testtool"
	"github.com/fentry-dev/fentry/session"
	"github.com/fentry-dev/fentry/trace"
)

// movingSource is a program that loads and unloads a library as often as a line says, at another place each time, and says when
// that is done.
const movingSource = `
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	char line[100], *last = 0;
	int moved = 0;
	setvbuf(stdout, 0, _IOLBF, 0);
	printf("%d\n", getpid());
	while (fgets(line, sizeof line, stdin)) {
		for (int i = atoi(line); i > 0; i--) {
			void *lib = dlopen(argv[1], RTLD_NOW);
			char *(*get)(void) = lib ? (char *(*)(void))dlsym(lib, "get") : 0;
			char *at = (char *)((long)get & -4096);
			if (!get || *get() != 'x')
				return 1;
			moved += at != last;
			last = at;
			dlclose(lib);
			/* Nothing comes there again. */
			mmap(at, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
		}
		printf("%d\n", moved);
	}
	return 7;
}
`

// withGiven builds a program in a directory, and the library libgiven.so beside it, of which it can call get.
func withGiven(t *testing.T, dir, text string) (program, lib string) {
	t.Helper()
	testtool.Need(t, "gcc")
	source, lib := filepath.Join(dir, "main.c"), filepath.Join(dir, "libgiven.so")
	get := "__attribute__((noinline)) char *get(void) { static char s[] = \"x\"; __asm__ volatile(\"\"); return s; }\n"
	for path, text := range map[string]string{source: text, filepath.Join(dir, "lib.c"): get} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	testtool.Output(t, "gcc", "-O2", "-shared", "-fPIC", "-o", lib, filepath.Join(dir, "lib.c"))
	return buildFile(t, source), lib
}

// A library that comes to ever other places is recorded as long as there is room for the tracer close to them, as what was added
// stays until the end. That there is no more is said once, and neither the recorder nor what it has added grows from then on.
func TestAttachPlaces(t *testing.T) {
	if !session.CanFollow() {
		t.Skip("processes are attached to on x86-64")
	}
	dir := t.TempDir()
	program, lib := withGiven(t, dir, movingSource)
	cmd := exec.Command(program, lib)
	c := startTold(t, cmd)
	pid := cmd.Process.Pid
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	load := func(times int) string {
		t.Helper()
		fmt.Fprintln(c.in, times)
		return c.line()
	}
	c.line() // it has begun
	var said messages
	o := fentry.Options{Dir: filepath.Join(dir, "fentry.data"), Libraries: []string{"libgiven"}, Policy: trace.PolicyDrop, Overhead: -1}
	o.Logf = said.logf
	ready := make(chan struct{})
	o.Live = func(*fentry.Live) { close(ready) }
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		_, err := fentry.Attach(ctx, []int{pid}, o)
		ended <- err
	}()
	select {
	case <-ready:
	case err := <-ended:
		t.Fatal(err)
	}
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	const first, all = 200, 2000
	load(first)
	before := heap()
	maps, _, _ := state(t, pid)
	var moved int
	if fmt.Sscan(load(all-first), &moved); moved < all/2 {
		t.Errorf("the library has moved %d times", moved)
	}
	const most = 16 << 20
	if after := heap(); after > before+most {
		t.Errorf("the recorder's heap has grown from %d to %d bytes", before, after)
	}
	now, _, _ := state(t, pid)
	if n, was := strings.Count(now, " r-xp "), strings.Count(maps, " r-xp "); n > was+1 {
		t.Errorf("%d mappings of code, %d before", n, was)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	crowded := 0
	for _, s := range said.list {
		if strings.HasPrefix(s, lib+": not traced where it is loaded now: there is no room") {
			crowded++
		} else if strings.HasPrefix(s, "process ") {
			t.Error(s)
		}
	}
	if crowded != 1 {
		t.Errorf("said %d times: %q", crowded, said.list)
	}
	tr, err := trace.Open(o.Dir)
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	rows, err := tr.Report(trace.ReportOptions{})
	if err != nil {
		t.Fatal(err)
	}
	calls := uint64(0)
	for _, r := range rows {
		if r.Name == "get" {
			calls += r.Calls
		}
	}
	if calls == 0 || calls >= first {
		t.Errorf("%d calls of get, of %d", calls, all)
	}
}
