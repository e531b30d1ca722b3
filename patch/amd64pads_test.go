package patch_test

import (
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"github.com/fentry-dev/fentry/patch"
	"github.com/fentry-dev/fentry/record"
	"github.com/fentry-dev/fentry/symbol"
)

// leaf has room for a short jump only, and there is padding behind it, as functions are aligned.
const brief = `
#include <stdio.h>
#define NI __attribute__((noinline))
__attribute__((naked, noinline)) int leaf(int x) { __asm__("mov %edi,%eax\n1: inc %eax\njz 1b\nret"); }
NI int mid(int x) { int r = leaf(x); __asm__ volatile(""); return r * 2; }
NI int outer(int x) { int r = mid(x); __asm__ volatile(""); return r + 3; }
int main(int argc, char **argv) { printf("%d\n", outer(argc)); return 0; }
`

// TestBriefSites traces a function whose site is a short jump to padding: its calls are counted, and at every instruction,
// that in the padding included, unwinders find the callers.
func TestBriefSites(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("on other machines no site is too short for a jump")
	}
	for _, tracer := range []patch.Tracer{patch.FunctionGraph, patch.Function, patch.Profile} {
		for _, flags := range [][]string{nil, {"-no-pie"}, {"-static"}} {
			t.Run(tracer.String()+" "+filepath.Join(flags...), func(t *testing.T) {
				t.Parallel()
				bin := onAMD64.compile(t, "b.c", brief, append([]string{"-g", "-O2"}, flags...)...)
				orig := read(t, bin)
				p := patchPlain(t, orig, patch.Options{Tracer: tracer}, record.Options{}, bin)
				i := slices.IndexFunc(p.Functions, func(fn patch.Func) bool { return fn.Name == "leaf" })
				fn := &p.Functions[i]
				if fn.Via == 0 || fn.Moved != 2 {
					t.Fatalf("leaf: %d bytes moved, by way of %#x: %s", fn.Moved, fn.Via, fn.Reason)
				}
				if w := p.Windows(fn); len(w) != 2 || w[1].Purpose != patch.ToLanding {
					t.Errorf("windows of leaf: %v", w)
				}
				d, ok := framesIn(t, read(t, bin), ".fentry.thunk_frames").Find(fn.Via)
				if !ok {
					t.Fatal("no unwind entry covers the padding")
				}
				if row := rowAt(t, &d, fn.Via); row.Reg != 7 || row.Off != 8 {
					t.Errorf("unwind row of the padding: %+v", row)
				}
				want, status, _ := run(t, onAMD64, orig)
				got, st, dir := run(t, onAMD64, read(t, bin))
				if got != want || st != status {
					t.Fatalf("patched: %q, status %d; original: %q, status %d", got, st, want, status)
				}
				if calls := callsOf(t, dir, p); calls["leaf"] != 1 || calls["mid"] != 1 {
					t.Errorf("calls: %v", calls)
				}
				checkSteps(t, onAMD64, bin)
				again, err := record.Find(parse(t, read(t, bin)), record.Options{})
				if err != nil {
					t.Fatal(err)
				}
				for _, s := range again {
					if s.Name == "leaf" && s.Reason != record.ReasonPatched && s.Func == fn.Func {
						t.Errorf("found in what is patched: %v %s", s.Kind, s.Reason)
					}
				}
			})
		}
	}
}

// Between a function without padding and one that has room for a short jump only there is one whose system call would move
// with the padding behind it.
const briefBesideSyscall = `
#include <stdio.h>
#include <unistd.h>
#define FUNC(name, code) int name(int); __asm__(".text\n.p2align 4\n.type " #name ",@function\n" #name ":\n.cfi_startproc\n" \
	code "\n.cfi_endproc\n.size " #name ",.-" #name);
FUNC(full, "mov %edi,%eax\n.rept 64\nadd $3,%eax\n.endr\nret\n.p2align 4,0xc3")
FUNC(calls, "mov $39,%eax\nmov $1,%edi\nmov $2,%esi\nmov $3,%edx\nsyscall\nret")
FUNC(leaf, "mov %edi,%eax\n1: inc %eax\njz 1b\nret")
int main(int argc, char **argv) { printf("%d %d %d\n", full(argc), calls(0) == getpid(), leaf(argc)); return 0; }
`

// TestBriefSiteBesideSyscall: a jump in padding and the window of a system call share no byte.
func TestBriefSiteBesideSyscall(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("on other machines no site is too short for a jump")
	}
	bin := onAMD64.compile(t, "b.c", briefBesideSyscall, "-O2")
	orig := read(t, bin)
	f := parse(t, orig)
	symbols, err := symbol.New(f)
	if err != nil {
		t.Fatal(err)
	}
	found, err := record.Syscalls(f, symbols)
	if err != nil {
		t.Fatal(err)
	}
	p := patchPlain(t, orig, patch.Options{Tracer: patch.FunctionGraph, Syscalls: &found}, record.Options{}, bin)
	leaf := &p.Functions[slices.IndexFunc(p.Functions, func(fn patch.Func) bool { return fn.Name == "leaf" })]
	call := &p.Syscalls[slices.IndexFunc(p.Syscalls, func(s patch.Syscall) bool { return s.Name == "calls" })]
	if first := call.Moves[0]; leaf.Via < first.Addr || leaf.Via >= first.End() {
		t.Fatalf("leaf goes by way of %#x, which is not in the padding that could move with the system call: %+v", leaf.Via, first)
	}
	if !call.Moved() || call.Move == call.Moves[0] {
		t.Errorf("the system call: moved by %+v, of %+v", call.Move, call.Moves)
	}
	want, status, _ := run(t, onAMD64, orig)
	got, st, dir := run(t, onAMD64, read(t, bin))
	if got != want || st != status {
		t.Fatalf("patched: %q, status %d; original: %q, status %d", got, st, want, status)
	}
	if n := callsOf(t, dir, p); n["leaf"] != 1 || n["calls"] != 1 {
		t.Errorf("calls: %v", n)
	}
}
