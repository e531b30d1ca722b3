package names

import (
	"slices"
	"testing"
)

// The function of an id is the one its call is in, wherever in the word the call begins.
func TestLinked(t *testing.T) {
	tab := &Table{Linked: true, Base: 0x400000, Funcs: []Func{
		{Name: "even", Addr: 0x401000, Size: 9}, {Name: "odd", Addr: 0x401009, Size: 6}, {Name: "next", Addr: 0x40100f, Size: 16},
	}}
	for call, want := range map[uint64]string{0x401000: "even", 0x401001: "even", 0x401009: "odd", 0x40100f: "next", 0x401013: "next"} {
		id := uint32((call-tab.Base)/4 + 1)
		if f, ok := tab.Func(id); !ok || f.Name != want {
			t.Errorf("call at %#x, id %d: %q, want %q", call, id, f.Name, want)
		}
	}
	for _, id := range []uint32{0, 1, 1<<31 - 1} {
		if f, ok := tab.Func(id); ok {
			t.Errorf("id %d is of %q", id, f.Name)
		}
	}
}

// Functions with ids are those that were traced.
func TestTraced(t *testing.T) {
	funcs := []Func{{Name: "left"}, {Addr: 0x1200}, {ID: 1, Addr: 0x12ab}, {ID: 2, Name: "named", Addr: 0x1300}}
	tab := &Table{Funcs: funcs}
	got := slices.Collect(tab.Traced())
	if len(got) != 2 || got[0].Display() != "func_12ab" || got[1].Display() != "named" {
		t.Errorf("traced: %+v", got)
	}
	if got := slices.Collect((&Table{Funcs: funcs, Linked: true}).Traced()); len(got) != 4 {
		t.Errorf("traced, linked: %+v", got)
	}
}
