package patch_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/arch"
	"github.com/fentry-dev/fentry/arch/arm64"
	"github.com/fentry-dev/fentry/patch"
	"github.com/fentry-dev/fentry/record"
	"github.com/fentry-dev/fentry/trace"
)

// large has so much zeroed memory that what is added is far from the code. Padding
// of 0, 4, 8 and 12 bytes follows the functions.
const large = `
#include <stdio.h>
#define NI __attribute__((noinline))
static volatile char big[BSS];
__asm__(".text\n.skip SKIP\n");
NI int f1(int x) { __asm__ volatile(""); return x + 1; }
NI int f2(int x) { __asm__ volatile("nop"); return f1(x) * 2; }
NI int f3(int x) { __asm__ volatile("nop; nop"); return f2(x) + f1(x); }
NI int f4(int x) { __asm__ volatile("nop; nop; nop"); return f3(x) + f1(x); }
NI int f5(int x) { __asm__ volatile("nop; nop; nop; nop"); return f4(x) + f1(x); }
__asm__(".text\n.skip TOTAL-SKIP\n");
int main(int argc, char **argv)
{
	int r = 0;
	for (int i = 0; i < 10; i++)
		r += f5(i);
	big[argc] = 1;
	printf("%d %d\n", r, big[argc]);
	return 0;
}
`

// largeSource has bss bytes of zeroed memory, and of total bytes without a meaning
// so many before the functions.
func largeSource(bss, skip, total uint64) string {
	return strings.NewReplacer("BSS", fmt.Sprint(bss), "SKIP", fmt.Sprint(skip), "TOTAL", fmt.Sprint(total)).Replace(large)
}

// Programs of more than 128 MiB are traced by veneers where there is room for them.
func TestOutOfReach(t *testing.T) {
	for _, tt := range []struct {
		name   string
		flags  []string
		tracer patch.Tracer
		all    bool // every site has room for its veneer
	}{
		{"patchable-2", []string{"-fpatchable-function-entry=2"}, patch.FunctionGraph, false},
		{"patchable-2-function", []string{"-fpatchable-function-entry=2"}, patch.Function, false},
		{"patchable-3", []string{"-fpatchable-function-entry=3", "-no-pie", "-fno-pie"}, patch.FunctionGraph, true},
		{"patchable-4", []string{"-fpatchable-function-entry=4"}, patch.FunctionGraph, true},
		{"patchable-4-profile", []string{"-fpatchable-function-entry=4"}, patch.Profile, true},
		{"signed-static", []string{"-fpatchable-function-entry=4", "-mbranch-protection=standard", "-static"}, patch.FunctionGraph, true},
		{"mcount", []string{"-pg"}, patch.FunctionGraph, false},
		{"plain", nil, patch.FunctionGraph, false},
		{"plain-profile", []string{"-no-pie", "-fno-pie"}, patch.Profile, false},
		{"plain-static", []string{"-static"}, patch.Count, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			orig := read(t, onARM64.compile(t, "p.c", largeSource(140<<20, 4, 4), tt.flags...))
			p := plainPlan(t, orig, patch.Options{Tracer: tt.tracer}, record.Options{})
			want := map[string]uint64{}
			calls := map[string]uint64{"main": 1, "f1": 40, "f2": 10, "f3": 10, "f4": 10, "f5": 10}
			left := 0
			for _, f := range p.Functions {
				switch _, ok := calls[f.Name]; {
				case !ok: // the start files', the C library's
				case f.ID != 0:
					want[f.Name] = calls[f.Name]
				case f.Reason == record.ReasonOutOfReach:
					left++
				}
			}
			if len(want)+left != len(calls) || len(want) == 0 || tt.all && left > 0 {
				t.Errorf("traced: %v, out of reach: %d", want, left)
			}
			for _, f := range p.Functions {
				if f.ID != 0 && calls[f.Name] > 0 && arm64.Reaches(f.Addr, p.Thunk(&f)) {
					t.Fatalf("%s is not out of reach", f.Name)
				}
			}
			out, err := p.Image()
			if err != nil {
				t.Fatal(err)
			}
			before, status, _ := run(t, onARM64, orig)
			after, st, dir := run(t, onARM64, out)
			if before != after || status != st {
				t.Errorf("%q, status %d; original: %q, status %d", after, st, before, status)
			}
			tr, err := trace.Open(filepath.Join(dir, "fentry.data"))
			if err != nil {
				t.Fatal(err)
			}
			defer tr.Close()
			rows, err := tr.Report(trace.ReportOptions{})
			if err != nil {
				t.Fatal(err)
			}
			byID := names(p)
			for _, r := range rows {
				if name := byID[r.Func.ID]; calls[name] > 0 && r.Calls != want[name] {
					t.Errorf("%s: %d calls, want %d", name, r.Calls, want[name])
				}
				delete(want, byID[r.Func.ID])
			}
			if len(want) > 0 {
				t.Errorf("no calls of %v", want)
			}
			if _, err := patch.Verify(out); err != nil {
				t.Error(err)
			}
			if back, err := patch.Undo(out); err != nil || !bytes.Equal(back, orig) {
				t.Errorf("undo did not give the original back (%v)", err)
			}
		})
	}
}

// TestNoWayBack: if nothing is left to trace because all of it is out of reach, that is what is said.
func TestNoWayBack(t *testing.T) {
	orig := read(t, onARM64.compile(t, "p.c", largeSource(140<<20, 4, 4), "-O1", "-no-pie", "-fno-pie"))
	_, err := newPlanWith(orig, patch.Options{}, record.Options{})
	if !errors.Is(err, patch.ErrNoSites) || !strings.Contains(err.Error(), string(record.ReasonOutOfReach)) {
		t.Errorf("error %v, want ErrNoSites and the reason", err)
	}
}

// At the limits of what branches reach, to the byte, sites go to their thunks
// directly or by a veneer.
func TestReachLimits(t *testing.T) {
	// A thunk's branch to the body is the one that reaches less far: from its
	// back, which is behind all fronts, to behind the site.
	fromBack := func(p *patch.Plan, f *patch.Func) int64 {
		first := slices.IndexFunc(p.Functions, func(f patch.Func) bool { return f.ID == 1 })
		n := 0
		for i := range p.Functions {
			if p.Functions[i].ID != 0 {
				n++
			}
		}
		backs := (int64(p.Thunk(&p.Functions[first])) + int64(n)*arm64.FrontSize + arch.ThunkSize - 1) &^ (arch.ThunkSize - 1)
		return backs + int64(f.ID-1)*arm64.BackSize - int64(f.End())
	}
	distance := func(p *patch.Plan) (site, d int64) {
		i := slices.IndexFunc(p.Functions, func(f patch.Func) bool { return f.Name == "f1" })
		f := &p.Functions[i]
		return int64(f.Addr), fromBack(p, f)
	}
	build := func(bss, skip uint64) *patch.Plan {
		b := read(t, onARM64.compile(t, "p.c", largeSource(bss, skip, 0x20000), "-fpatchable-function-entry=4", "-fno-toplevel-reorder", "-falign-functions=4"))
		return plan(t, b, patch.Options{})
	}
	const reach = 1 << 27
	bss, skip := uint64(120<<20), uint64(4)
	_, d := distance(build(bss, skip))
	// What is added moves by whole pages, the functions by whole words.
	bss += uint64(reach-d+0xffff) &^ 0xffff
	_, d = distance(build(bss, skip))
	if d < reach || d > reach+0x20000 {
		t.Fatalf("distance %#x", d)
	}
	direct, veneers := 0, 0
	for _, delta := range []int64{-8, -4, 0, 4, 8} {
		p := build(bss, skip+uint64(d-reach-delta))
		_, now := distance(p)
		for _, e := range edits(t, p) {
			i := slices.IndexFunc(p.Functions, func(f patch.Func) bool { return f.Addr == e.Addr })
			if i < 0 {
				continue
			}
			f := &p.Functions[i]
			thunk := int64(p.Thunk(f))
			near := thunk-int64(f.Addr) <= reach-4 && fromBack(p, f) <= reach
			in := arm64.DecodeWord(binary.LittleEndian.Uint32(e.New))
			switch {
			case near && (in.Op != arm64.Jmp || int64(in.Target(e.Addr)) != thunk):
				t.Errorf("%s at %#x could reach its thunk at %#x: % x", f.Name, f.Addr, thunk, e.New)
			case !near && in.Op != arm64.Adrp:
				t.Errorf("%s at %#x cannot reach its thunk at %#x: % x", f.Name, f.Addr, thunk, e.New)
			}
			if f.Name == "f1" {
				if now != reach+delta {
					t.Fatalf("distance %#x, want %#x", now, reach+delta)
				}
				if near {
					direct++
				} else {
					veneers++
				}
			}
		}
	}
	if direct != 3 || veneers != 2 {
		t.Errorf("%d direct, %d by veneers: the limit is not where it should be", direct, veneers)
	}
}
