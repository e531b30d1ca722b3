package patch

import (
	"debug/elf"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/elfio/inject"
	"github.com/fentry-dev/fentry/record"
)

// tinyPlan plans the smallest image there is.
func tinyPlan(t *testing.T) *Plan {
	t.Helper()
	b, err := os.ReadFile("testdata/tiny")
	if err != nil {
		t.Fatal(err)
	}
	f, err := elfio.Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	sites, err := record.Find(f, record.Options{})
	if err != nil {
		t.Fatal(err)
	}
	p, err := New(f, sites, Options{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// What the writer makes otherwise than the layout has decided is found, whatever it is.
func TestProof(t *testing.T) {
	if err := tinyPlan(t).l.prove(); err != nil {
		t.Fatal(err)
	}
	find := func(l *layout, name string) *piece {
		for i := range l.pieces {
			if l.pieces[i].name == name {
				return &l.pieces[i]
			}
		}
		t.Fatalf("no piece %s", name)
		return nil
	}
	for _, tt := range []struct {
		name   string
		damage func(l *layout)
		want   string
	}{
		{"short", func(l *layout) {
			find(l, "runtime").write = func(dst []byte) ([]byte, error) { return append(dst, 1, 2, 3), nil }
		}, "runtime at 0x"},
		{"long", func(l *layout) {
			pc := find(l, "runtime")
			pc.write = func(dst []byte) ([]byte, error) { return append(dst, make([]byte, pc.size+1)...), nil }
		}, "bytes written"},
		{"no part", func(l *layout) {
			find(l, ".fentry.thunks").part = func(*Func, route, []byte) (int, error) { return 0, nil }
		}, ".fentry.thunks at 0x"},
		{"overlap", func(l *layout) {
			pc := find(l, "runtime")
			pc.addr -= pc.align
		}, "overlaps what ends at"},
		{"gap", func(l *layout) { find(l, ".fentry.info").addr += 8 }, "bytes before it belong to nothing"},
		{"zeroed", func(l *layout) { find(l, "switches").size += 8; find(l, "switches").used += 8 }, "outside of the memory"},
		{"zeroed twice", func(l *layout) { find(l, "relocated word").addr += 8 }, "overlaps what ends at"},
		{"alignment", func(l *layout) { find(l, ".fentry.sites").align = 1 << 20 }, "not aligned"},
		{"more", func(l *layout) { l.rx = append(l.rx, make([]byte, 64)...) }, "in "},
		{"code", func(l *layout) {
			l.pieces = append([]piece{{name: "veneer", addr: l.p.Functions[0].Addr, align: 1, owner: 0}}, l.pieces...)
		}, "not what its function is to be rewritten with"},
		{"nobody's code", func(l *layout) {
			l.pieces = append([]piece{{name: "veneer", addr: 64, align: 1, owner: nobody}}, l.pieces...)
		}, "not what its function is to be rewritten with"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := tinyPlan(t).l
			tt.damage(l)
			for i := range l.pieces {
				if pc := &l.pieces[i]; pc.part != nil || pc.write != nil || pc.ready != nil {
					pc.used = 0
				}
			}
			err := l.write()
			if err == nil {
				err = l.prove()
			}
			var internal *internalError
			if !errors.As(err, &internal) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want an internal one with %q", err, tt.want)
			}
		})
	}
}

// Pieces with one name in a row make one section; those in the image's code make none.
func TestNamedSections(t *testing.T) {
	l := &layout{base: 0x10000, pieces: []piece{
		{name: ".a", addr: 0x400, size: 12, align: 4},
		{name: ".a", addr: 0x10000, size: 8, align: 8, code: true},
		{name: ".a", addr: 0x10008, size: 12, align: 4, code: true},
		{name: "b", addr: 0x10020, size: 12, align: 32},
		{name: ".c", addr: 0x10030, size: 4, align: 4},
	}}
	got := l.namedSections()
	const flags = elf.SHF_ALLOC | elf.SHF_EXECINSTR
	want := []inject.Section{
		{Name: ".a", Type: elf.SHT_PROGBITS, Flags: flags, Addr: 0x10000, Size: 20, Align: 8},
		{Name: ".c", Type: elf.SHT_PROGBITS, Flags: elf.SHF_ALLOC, Addr: 0x10030, Size: 4, Align: 4},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}
