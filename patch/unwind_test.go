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

	"github.com/fentry-dev/fentry/arguments"
	"github.com/fentry-dev/fentry/internal/runfile"
	"github.com/fentry-dev/fentry/internal/testtool"
	"github.com/fentry-dev/fentry/patch"
	"github.com/fentry-dev/fentry/record"
	"github.com/fentry-dev/fentry/stub"
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
	fentry, patchable, arm := []string{"-pg", "-mfentry"}, []string{"-fpatchable-function-entry=5"}, []string{"-fpatchable-function-entry=2"}
	leaf, err := record.NewFilter([]string{"leaf"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	word := []arguments.Op{{Code: arguments.OpGeneral}}
	data, words := arguments.Encode(word)
	capturing := &patch.Actions{Rules: []patch.ActRule{{Functions: leaf, Acts: []patch.Act{
		{Kind: stub.ActArgs, Words: words, Data: data, Plain: arguments.PlainEntry(word)},
		{Kind: stub.ActResult, Words: words, Data: data, Plain: arguments.PlainResult(word)},
	}}}}
	for _, c := range []struct {
		name  string
		on    *target
		flags []string
		o     patch.Options
	}{
		{"graph", onAMD64, fentry, patch.Options{}},
		{"capturing", onAMD64, patchable, patch.Options{Actions: capturing}},
		{"capturing mcount", onAMD64, []string{"-pg"}, patch.Options{Actions: capturing}},
		{"options", onAMD64, fentry, patch.Options{Depth: 100, Threshold: time.Nanosecond}},
		{"hidden", onAMD64, fentry, patch.Options{Hide: leaf}},
		{"hidden mcount", onAMD64, []string{"-pg"}, patch.Options{Hide: leaf}},
		{"profile", onAMD64, patchable, patch.Options{Tracer: patch.Profile}},
		{"no clock", onAMD64, patchable, patch.Options{NoClock: true}},
		{"count", onAMD64, patchable, patch.Options{Tracer: patch.Count}},
		{"function", onAMD64, patchable, patch.Options{Tracer: patch.Function}},
		{"static", onAMD64, []string{"-static", "-pg", "-mfentry"}, patch.Options{}},
		{"mcount", onAMD64, []string{"-pg"}, patch.Options{}},
		{"graph", onARM64, arm, patch.Options{}},
		{"options", onARM64, arm, patch.Options{Depth: 100, Threshold: time.Nanosecond}},
		{"hidden", onARM64, arm, patch.Options{Hide: leaf}},
		{"hidden mcount", onARM64, []string{"-pg"}, patch.Options{Hide: leaf}},
		{"profile", onARM64, arm, patch.Options{Tracer: patch.Profile}},
		{"no clock", onARM64, arm, patch.Options{NoClock: true}},
		{"count", onARM64, arm, patch.Options{Tracer: patch.Count}},
		{"function", onARM64, arm, patch.Options{Tracer: patch.Function}},
		{"static", onARM64, []string{"-static", "-fpatchable-function-entry=2"}, patch.Options{}},
		{"mcount", onARM64, []string{"-pg"}, patch.Options{}},
	} {
		t.Run(c.on.name+"/"+c.name, func(t *testing.T) {
			t.Parallel()
			bin := c.on.compile(t, "n.c", nested, append([]string{"-g"}, c.flags...)...)
			out, err := plan(t, read(t, bin), c.o).Image()
			if err != nil {
				t.Fatal(err)
			}
			if err := runfile.WriteFile(bin, out); err != nil {
				t.Fatal(err)
			}
			checkSteps(t, c.on, bin)
		})
	}
}

// checkSteps steps through a patched program, from the entry of leaf.
func checkSteps(t *testing.T, on *target, bin string) {
	t.Helper()
	got := step(t, on, bin)
	inside := 0
	for i, bt := range got {
		// What the runtime has of its own is above the program's frames.
		own := slices.IndexFunc(bt, func(f string) bool { return slices.Contains([]string{"leaf", "mid", "outer", "main"}, f) })
		if own > 0 {
			inside++
		}
		bt = bt[max(own, 0):]
		if k := slices.Index(bt, "main"); k >= 0 {
			bt = bt[:k+1] // the C library's frames can have names
		}
		whole := []string{"leaf", "mid", "outer", "main"}
		if len(bt) == 0 || len(bt) > len(whole) || !slices.Equal(bt, whole[len(whole)-len(bt):]) {
			t.Errorf("step %d: %v", i, got[i])
		}
	}
	if inside == 0 {
		t.Error("no step was inside a thunk or the runtime")
	}
}

// step gives the backtraces at the instructions that follow the entry of leaf.
func step(t *testing.T, on *target, bin string) [][]string {
	t.Helper()
	const steps = 130
	dir := filepath.Dir(bin)
	gdb, start := "gdb", "run"
	if len(on.emulator) > 0 {
		// The emulator's gdb stub, on a socket.
		gdb = "gdb-multiarch"
		sock, err := os.MkdirTemp("", "gdb") // names of sockets are short
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(sock) })
		sock = filepath.Join(sock, "s")
		emulator := exec.Command(testtool.Path(t, on.emulator[0]), append(append(slices.Clone(on.emulator[1:]), "-g", sock), bin)...)
		emulator.Dir = dir
		testtool.Listening(t, emulator, sock)
		start = "set sysroot " + on.emulator[len(on.emulator)-1] + "\ntarget remote " + sock + "\ncontinue"
	}
	gdb = testtool.Path(t, gdb)
	script := filepath.Join(dir, "script")
	text := fmt.Sprintf("set pagination off\nset confirm off\nset debuginfod enabled off\nbreak *leaf\n%s\nset $n = 0\n"+
		"while $n < %d\nstepi\nbt\nset $n = $n + 1\nend\nkill\n", start, steps)
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
	return got
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
