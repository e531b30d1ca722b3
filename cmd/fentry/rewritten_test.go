//go:build linux && amd64

package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/internal/testtool"
)

const boltSource = `#include <stdio.h>
#include <stdlib.h>
#define NOINLINE __attribute__((noinline))
volatile int sink;
NOINLINE void rare(int a) { fprintf(stderr, "rare %d\n", a); abort(); }
NOINLINE int work(int a) { int i, s = 0; if (a > 1000000) { rare(a); sink = a; } for (i = 0; i < a % 7; i++) s += i * a; return s; }
NOINLINE int pick(int a) { switch (a & 7) { case 0: return work(a); case 3: return work(a + 1); case 5: return a ^ 5; default: return 7; } }
int main(void) { long t = 0; int i; for (i = 0; i < 1000; i++) t += pick(i); printf("%ld\n", t); return 0; }
`

// remapSource copies its own code to anonymous memory and puts that in its place, as programs do that want their code
// on huge pages: the code has no file any more.
const remapSource = `#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#define NOINLINE __attribute__((noinline))
NOINLINE int work(int a) { int i, s = 0; for (i = 0; i < a % 7; i++) s += i * a; return s; }
NOINLINE int pick(int a) { switch (a & 3) { case 0: return work(a); case 3: return work(a + 1); default: return 7; } }
static int move(void) {
	char line[4096], perms[8], path[4096], self[4096];
	unsigned long from, to;
	int moved = 0;
	FILE *f = fopen("/proc/self/maps", "r");
	self[readlink("/proc/self/exe", self, sizeof self - 1)] = 0;
	while (f && fgets(line, sizeof line, f)) {
		path[0] = 0;
		if (sscanf(line, "%lx-%lx %7s %*s %*s %*s %4095[^\n]", &from, &to, perms, path) < 3) continue;
		if (strncmp(perms, "r-x", 3) || strcmp(path, self)) continue;
		void *p = mmap(0, to - from, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		memcpy(p, (void *)from, to - from);
		if (madvise(p, to - from, MADV_HUGEPAGE)) { /* not every kernel has them */ }
		if (mprotect(p, to - from, PROT_READ | PROT_EXEC)) return 0;
		if (mremap(p, to - from, to - from, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)from) == MAP_FAILED) return 0;
		moved++;
	}
	if (f) fclose(f);
	return moved;
}
int main(void) { long t = pick(8); int i, n = move(); for (i = 0; i < 1000; i++) t += pick(i); printf("%ld %d\n", t, n > 0); return 0; }
`

// counted checks the calls of a trace.
func counted(t *testing.T, dir, trace string, want map[string]int) {
	t.Helper()
	text, _ := fentryRun(t, dir, 0, "report", "--json", "-i", trace)
	got := map[string]int{}
	for line := range strings.Lines(text) {
		var row struct {
			Name  string
			Calls int
		}
		if err := json.Unmarshal([]byte(line), &row); err != nil {
			t.Fatalf("%v in %q", err, line)
		}
		got[row.Name] = row.Calls
	}
	for name, n := range want {
		if got[name] != n {
			t.Errorf("%s: %d calls of %s, want %d\n%s", trace, got[name], name, n, text)
		}
	}
}

// tracedEveryWay runs a program recorded in place, as a copy, and patched, and checks its output and its calls.
func tracedEveryWay(t *testing.T, dir, prog, out string, want map[string]int) {
	t.Helper()
	for _, way := range [][]string{nil, {"--no-ptrace"}} {
		args := append(append([]string{"record", "-o", "data"}, way...), "./"+prog)
		if text, _ := fentryRun(t, dir, 0, args...); text != out {
			t.Errorf("%q: output %q, want %q", args, text, out)
		}
		counted(t, dir, "data", want)
	}
	fentryRun(t, dir, 0, "patch", "-o", prog+".traced", prog)
	cmd := exec.Command("./" + prog + ".traced")
	cmd.Dir = dir
	if text, err := cmd.CombinedOutput(); err != nil || string(text) != out {
		t.Errorf("patched: %v, output %q, want %q", err, text, out)
	}
	counted(t, dir, "fentry.data", want)
}

func compile(t *testing.T, dir, name, source string, options ...string) {
	t.Helper()
	src := filepath.Join(dir, name+".c")
	if err := os.WriteFile(src, []byte(source), 0o666); err != nil {
		t.Fatal(err)
	}
	args := append([]string{"-O2", "-o", filepath.Join(dir, name), src}, options...)
	if out, err := exec.Command("gcc", args...).CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
}

// kinds are those of sites that a program can be compiled with.
var kinds = map[string][]string{"plain": nil, "fentry": {"-pg", "-mfentry"}, "patchable": {"-fpatchable-function-entry=5"}}

// Programs that BOLT has rewritten are traced where their functions are now. What they were is told apart.
func TestBOLT(t *testing.T) {
	testtool.Need(t, "gcc", "llvm-bolt-19")
	for kind, options := range kinds {
		t.Run(kind, func(t *testing.T) {
			dir := t.TempDir()
			link(t, dir)
			compile(t, dir, "prog", boltSource, append(options, "-Wl,-q")...)
			cmd := exec.Command("llvm-bolt-19", "prog", "-o", "bolted", "-reorder-blocks=ext-tsp", "-split-functions", "-split-all-cold", "-lite=0")
			cmd.Dir = dir
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("llvm-bolt: %v\n%s", err, out)
			}
			text, _ := fentryRun(t, dir, 0, "list", "-l", "bolted")
			if !strings.Contains(text, "moved-by-bolt") {
				t.Errorf("list: %s", text)
			}
			if text, _ = fentryRun(t, dir, 0, "list", "bolted"); strings.Contains(text, "func_") || !strings.Contains(text, "pick\n") {
				t.Errorf("list: %s", text)
			}
			tracedEveryWay(t, dir, "bolted", untracedOutput(t, dir), map[string]int{"main": 1, "pick": 1000, "work": 250})
		})
	}
}

// untracedOutput is what the program prints untraced.
func untracedOutput(t *testing.T, dir string) string {
	t.Helper()
	out, err := exec.Command(filepath.Join(dir, "prog")).Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// A program whose code has been moved to anonymous memory goes on being traced: nothing depends on the file that is mapped.
func TestRemappedText(t *testing.T) {
	testtool.Need(t, "gcc")
	for kind, options := range kinds {
		t.Run(kind, func(t *testing.T) {
			dir := t.TempDir()
			link(t, dir)
			compile(t, dir, "prog", remapSource, options...)
			out := untracedOutput(t, dir)
			if !strings.HasSuffix(out, " 1\n") {
				t.Fatalf("the program cannot move its code: %q", out)
			}
			tracedEveryWay(t, dir, "prog", out, map[string]int{"main": 1, "pick": 1001, "work": 501})
		})
	}
}
