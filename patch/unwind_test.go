package patch_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fentry-dev/fentry/patch"
)

const nested = `
#include <stdio.h>
#define NI __attribute__((noinline))
NI int leaf(int x) { __asm__ volatile(""); return x + 1; }
NI int mid(int x) { int r = leaf(x); __asm__ volatile(""); return r * 2; }
NI int outer(int x) { int r = mid(x); __asm__ volatile(""); return r + 3; }
int main(int argc, char **argv) { printf("%d\n", outer(argc)); return 0; }
`

// At every instruction of the way into a traced function and out of it, the
// unwinder finds the functions that called it, in their order, and nothing else.
func TestUnwindAtEveryInstruction(t *testing.T) {
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("needs gcc (Debian package gcc)")
	}
	gdb, err := exec.LookPath("gdb")
	if err != nil {
		t.Skip("needs gdb (Debian package gdb)")
	}
	for _, c := range []struct {
		name  string
		flags []string
		o     patch.Options
	}{
		{"graph", []string{"-pg", "-mfentry"}, patch.Options{}},
		{"options", []string{"-pg", "-mfentry"}, patch.Options{Depth: 100, Threshold: time.Nanosecond}},
		{"profile", []string{"-fpatchable-function-entry=5"}, patch.Options{Tracer: patch.Profile}},
		{"function", []string{"-fpatchable-function-entry=5"}, patch.Options{Tracer: patch.Function}},
		{"static", []string{"-static", "-pg", "-mfentry"}, patch.Options{}},
		{"mcount", []string{"-pg"}, patch.Options{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			src, bin := filepath.Join(dir, "n.c"), filepath.Join(dir, "n")
			if err := os.WriteFile(src, []byte(nested), 0o644); err != nil {
				t.Fatal(err)
			}
			if b, err := exec.Command(gcc, append(c.flags, "-g", "-O2", "-o", bin, src)...).CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, b)
			}
			out, err := plan(t, read(t, bin), c.o).Image()
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(bin, out, 0o755); err != nil {
				t.Fatal(err)
			}
			const steps = 130
			script := filepath.Join(dir, "script")
			text := fmt.Sprintf("set pagination off\nset confirm off\nset debuginfod enabled off\nbreak *leaf\nrun\nset $n = 0\n"+
				"while $n < %d\nstepi\nbt\nset $n = $n + 1\nend\nkill\n", steps)
			if err := os.WriteFile(script, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(gdb, "-nx", "-batch", "-x", script, bin)
			cmd.Dir = dir
			b, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, b)
			}
			got := backtraces(string(b))
			if len(got) < steps {
				t.Fatalf("%d backtraces, want %d:\n%s", len(got), steps, b)
			}
			inside := 0
			for i, bt := range got {
				// What the runtime has of its own is above the program's frames.
				own := slices.IndexFunc(bt, func(f string) bool { return slices.Contains([]string{"leaf", "mid", "outer", "main"}, f) })
				if own > 0 {
					inside++
				}
				bt = bt[max(own, 0):]
				whole := []string{"leaf", "mid", "outer", "main"}
				if len(bt) == 0 || len(bt) > len(whole) || !slices.Equal(bt, whole[len(whole)-len(bt):]) {
					t.Errorf("step %d: %v", i, got[i])
				}
			}
			if inside == 0 {
				t.Error("no step was inside a thunk or the runtime")
			}
		})
	}
}

// backtraces splits gdb's output into lists of function names, innermost first.
func backtraces(out string) (list [][]string) {
	for line := range strings.Lines(out) {
		if !strings.HasPrefix(line, "#") {
			continue
		}
		w := strings.Fields(line)
		if w[0] == "#0" {
			list = append(list, nil)
		}
		if len(list) == 0 || len(w) < 2 {
			continue
		}
		name := w[1]
		if strings.HasPrefix(name, "0x") && len(w) > 3 {
			name = w[3]
		}
		list[len(list)-1] = append(list[len(list)-1], name)
	}
	return list
}
