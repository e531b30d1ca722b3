package patch

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fentry-dev/fentry/record"
)

// planOf is a plan with functions that have sites of 8 bytes at these addresses, and pieces in the code.
func planOf(sites []uint64, pieces ...piece) *Plan {
	p := &Plan{}
	for _, a := range sites {
		p.Functions = append(p.Functions, Func{Site: &record.Site{Func: a, Addr: a, Len: 8}, Action: Trace})
	}
	p.l = &layout{p: p, base: 1 << 20, pieces: pieces}
	return p
}

func island(owner int, addr uint64) piece { return piece{owner: owner, addr: addr, size: 12, align: 4} }

// A function's windows are sorted, and those that touch are one, with both purposes and the bytes of both.
func TestWindows(t *testing.T) {
	p := planOf([]uint64{100, 200, 300}, island(0, 108), island(0, 400), island(1, 80), island(1, 208))
	p.Functions[2].Action = Nop
	if err := p.l.cut(); err != nil {
		t.Fatal(err)
	}
	for i := range p.l.before {
		p.l.before[i], p.l.after[i] = byte(i), byte(100+i)
	}
	run := func(from, n int) (b []byte) {
		for i := range n {
			b = append(b, byte(from+i))
		}
		return b
	}
	for i, want := range [][]Window{
		{{100, run(0, 20), run(100, 20), ToThunk | ToLanding}, {400, run(20, 12), run(120, 12), ToLanding}},
		{{80, run(32, 12), run(132, 12), ToLanding}, {200, run(44, 20), run(144, 20), ToThunk | ToLanding}},
		{{300, run(64, 8), run(164, 8), ToNop}},
	} {
		if d := cmp.Diff(want, p.Windows(&p.Functions[i])); d != "" {
			t.Errorf("function %d: %s", i, d)
		}
	}
	if got := (ToThunk | ToLanding).String() + " " + ToNop.String(); got != "trace+veneer nop" {
		t.Error(got)
	}
	var addrs []uint64
	for _, e := range p.l.allEdits() {
		addrs = append(addrs, e.Addr)
	}
	if d := cmp.Diff([]uint64{80, 100, 200, 300, 400}, addrs); d != "" {
		t.Error(d)
	}
	p.Functions[0].Action = Leave
	if err := p.l.cut(); err != nil || len(p.Windows(&p.Functions[0])) != 0 {
		t.Errorf("%v, windows of a function that is left alone", err)
	}
}

// No two windows share a byte.
func TestWindowsOverlap(t *testing.T) {
	for _, tt := range []struct {
		name string
		p    *Plan
		want string
	}{
		{"sites", planOf([]uint64{100, 107}), "site 0x6b overlaps the one before"},
		{"sites out of order", planOf([]uint64{100, 50}), "overlaps the one before"},
		{"own site", planOf([]uint64{100}, island(0, 107)), "window at 0x6b overlaps the site at 0x64"},
		{"other's site", planOf([]uint64{100, 200}, island(0, 190)), "window at 0xbe overlaps the site at 0xc8"},
		{"inside a site", planOf([]uint64{100, 200}, island(1, 99)), "overlaps the site at 0x64"},
		{"each other", planOf([]uint64{100, 200}, island(0, 400), island(1, 411)), "windows at 0x190 and 0x19b overlap"},
		{"touching", planOf([]uint64{100, 200}, island(0, 188), island(1, 208)), ""},
	} {
		err := tt.p.l.cut()
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: error %v, want %q", tt.name, err, tt.want)
		}
	}
	p := planOf([]uint64{100})
	p.Functions[0].Len = 1 << 16
	if err := p.l.cut(); err == nil || !strings.Contains(err.Error(), "has 65536 bytes") {
		t.Errorf("a site of 64 KiB: %v", err)
	}
}
