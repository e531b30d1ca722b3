//go:build linux

package fentry_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fentry-dev/fentry"
	"github.com/fentry-dev/fentry/patch"
	"github.com/fentry-dev/fentry/record"
	"github.com/fentry-dev/fentry/session"
	"github.com/fentry-dev/fentry/stub"
	"github.com/fentry-dev/fentry/trace"
)

// Libraries that a process has loaded are recorded, too: of one that throws, waits, forks and begins threads in them.
func TestAttachLibraries(t *testing.T) {
	program := buildAttached(t)
	o := fentry.Options{Libraries: []string{"libc", "libstdc++", "libgcc_s", "libnothing"}}
	r := start(t, program)
	for range 3 {
		o.Dir = filepath.Join(t.TempDir(), "fentry.data")
		attachUntil(t, r.cmd.Process.Pid, o, 100*time.Millisecond, "_Z3suml", "malloc", "__cxa_throw")
	}
	r.end(t, 7, "right\n")
}

// librarySource is a program that calls a function of a library, and closes it at the first byte of its input, which it
// says by removing a file, and goes on until that ends.
const librarySource = `
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	void *lib = dlopen(argv[1], RTLD_NOW);
	char *(*get)(void) = (char *(*)(void))dlsym(lib, "get");
	int right = get != 0;
	char c;
	fcntl(0, F_SETFL, O_NONBLOCK);
	prctl(PR_SET_NAME, "ready");
	while (read(0, &c, 1) != 0) {
		if (get && *get() != 'x')
			right = 0;
		if (get && c == 'c') {
			get = 0;
			dlclose(lib);
			unlink(argv[2]);
		}
		usleep(100);
	}
	write(1, right ? "right\n" : "wrong\n", 6);
	return 7;
}
`

// What is attached to has the same memory afterwards, with only functions of libraries chosen, also if stacks were taken, and if
// a library is unloaded meanwhile.
func TestAttachLibrariesAgain(t *testing.T) {
	dir := t.TempDir()
	source := filepath.Join(dir, "main.c")
	text := "__attribute__((noinline)) char *get(void) { static char s[] = \"x\"; __asm__ volatile(\"\"); return s; }\n"
	lib, mark := filepath.Join(dir, "libgiven.so"), filepath.Join(dir, "mark")
	for path, text := range map[string]string{source: librarySource, filepath.Join(dir, "lib.c"): text, mark: ""} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	program := buildFile(t, source)
	if out, err := exec.Command("gcc", "-O2", "-shared", "-fPIC", "-o", lib, filepath.Join(dir, "lib.c")).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	r := start(t, program, lib, mark)
	pid := r.cmd.Process.Pid
	only, err := record.NewFilter([]string{"get", "usleep"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	o := fentry.Options{Dir: filepath.Join(dir, "fentry.data"), Libraries: []string{"libgiven", "libc"}}
	o.Plan.Select = only
	before, files, _ := state(t, pid)
	for i := range 5 {
		if o.Plan.Actions = nil; i%2 == 1 {
			o.Plan.Actions = &patch.Actions{Rules: []patch.ActRule{{Functions: only, Acts: []patch.Act{{Kind: stub.ActStack}}}}}
		}
		attachUntil(t, pid, o, 20*time.Millisecond, "get", "usleep")
		if maps, fds, _ := state(t, pid); maps != before || fds != files {
			t.Fatalf("it has changed: %d descriptors, %d before\n%s\n%s", fds, files, before, maps)
		}
	}

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		o.Logf, o.Policy = t.Logf, trace.PolicyDrop
		res, err := fentry.Attach(ctx, []int{pid}, o)
		if err == nil && (len(res.Libraries) != 2 || len(res.UnmatchedLibraries) != 0) {
			t.Errorf("%+v", res)
		}
		ended <- err
	}()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if _, err := session.Control(pid, "set_ftrace_filter = get"); err == nil {
			break
		} else if !errors.Is(err, session.ErrNotRecorded) || time.Now().After(deadline) || len(ended) > 0 {
			t.Fatal(err)
		}
	}
	if _, err := r.in.Write([]byte("c")); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if _, err := os.Stat(mark); err != nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("it does not go on")
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if maps, _, _ := state(t, pid); strings.Contains(maps, "libgiven") || strings.Count(maps, "\n") > strings.Count(before, "\n") {
		t.Errorf("it has changed\n%s\n%s", before, maps)
	}
	r.end(t, 7, "right\n")
}

// unloadingSource is a program that loads and unloads libraries all the time, one after the other, until its input ends.
const unloadingSource = `
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	int right = 1, k = 0;
	char c;
	fcntl(0, F_SETFL, O_NONBLOCK);
	prctl(PR_SET_NAME, "ready");
	while (read(0, &c, 1) != 0) {
		void *lib = dlopen(argv[1 + k++ % (argc - 1)], RTLD_NOW);
		char *(*get)(void) = lib ? (char *(*)(void))dlsym(lib, "get") : 0;
		for (int i = 0; i < 1000; i++)
			if (!get || *get() != 'x')
				right = 0;
		dlclose(lib);
	}
	write(1, right ? "right\n" : "wrong\n", 6);
	return 7;
}
`

// A library that is unloaded at any moment, also while the process is being attached to or detached from, neither keeps
// the rest from being put back nor the code of the tracer in the process. So it is if another one takes its place, whose
// functions are elsewhere, or begin in the middle of what was changed.
func TestAttachLibrariesUnloaded(t *testing.T) {
	for name, skips := range map[string][]int{"one": {0}, "same": {0, 0}, "elsewhere": {0, 4096}, "overlapping": {0, 2}, "many": {0, 3, 4096, 4099}} {
		t.Run(name, func(t *testing.T) { attachUnloaded(t, skips) })
	}
}

// attachUnloaded attaches to a program that loads libraries in turn, which have so many bytes in front of their function.
func attachUnloaded(t *testing.T, skips []int) {
	dir := t.TempDir()
	source := filepath.Join(dir, "main.c")
	if err := os.WriteFile(source, []byte(unloadingSource), 0o600); err != nil {
		t.Fatal(err)
	}
	program := buildFile(t, source)
	o := fentry.Options{Dir: filepath.Join(dir, "fentry.data"), Libraries: []string{"libgiven*", "libc"}, Policy: trace.PolicyDrop,
		Overhead: -1, For: 2 * time.Millisecond}
	var libs []string
	for i, skip := range skips {
		lib, text := filepath.Join(dir, fmt.Sprintf("libgiven%d.so", i)), filepath.Join(dir, "lib.c")
		fill := fmt.Sprintf("__asm__(\".text\\n.globl fill\\nfill: .skip %d, 0x90\");\n", skip)
		get := "__attribute__((noinline)) char *get(void) { static char s[] = \"x\"; __asm__ volatile(\"\"); return s; }\n"
		if err := os.WriteFile(text, []byte(fill+get), 0o600); err != nil {
			t.Fatal(err)
		}
		// So much in front that none of the libraries is larger than the others.
		size := fmt.Sprintf("-Wl,-Ttext-segment=0,-z,separate-code,--section-start=.text=%#x", 0x2000)
		if out, err := exec.Command("gcc", "-O2", "-falign-functions=1", "-shared", "-fPIC", "-nostdlib", size, "-o", lib, text).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		libs = append(libs, lib)
	}
	if len(libs) > 1 {
		o.For = 100 * time.Millisecond // time for each of them to come some times
	}
	r := start(t, program, libs...)
	o.Logf = func(format string, args ...any) {
		text := fmt.Sprintf(format, args...)
		if busy := strings.Contains(text, "left as"); strings.HasPrefix(text, "process ") && !busy {
			t.Error(text)
		}
	}
	traced := make(map[string]bool)
	for i, deadline := 0, time.Now().Add(2*time.Minute); i < 12/len(libs) || len(traced) < len(libs) && time.Now().Before(deadline); i++ {
		// It can also be that the library goes before anything was changed.
		res, err := fentry.Attach(context.Background(), []int{r.cmd.Process.Pid}, o)
		if err != nil {
			t.Log(err)
		} else {
			for _, l := range res.Libraries {
				if l.Traced > 0 && strings.HasPrefix(filepath.Base(l.Path), "libgiven") {
					traced[l.Path] = true
				}
			}
		}
		if maps, _, _ := state(t, r.cmd.Process.Pid); hasTracer(maps) {
			t.Fatalf("the tracer is still there\n%s", maps)
		}
	}
	if len(traced) < len(libs) {
		t.Errorf("of %d libraries were recorded %v", len(libs), traced)
	}
	r.end(t, 7, "right\n")
}
