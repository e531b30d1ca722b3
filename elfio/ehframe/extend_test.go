package ehframe

import (
	"bytes"
	"slices"
	"testing"

	"github.com/fentry-dev/fentry/elfio"
)

// extended is the data of a table with the edits of an extension.
func extended(t *testing.T, table *Table, x *Extension) []byte {
	t.Helper()
	b := slices.Clone(table.area.data)
	end := uint64(0)
	for _, e := range x.Edits {
		at := e.Addr - table.area.addr
		if at != e.Off-table.area.off || at < end || len(e.Old) != len(e.New) || !bytes.Equal(e.Old, b[at:][:len(e.Old)]) {
			t.Fatalf("edit at %#x, offset %#x, of %d bytes behind one that ends at %#x", e.Addr, e.Off, len(e.New), end)
		}
		end = at + uint64(copy(b[at:], e.New))
	}
	return b
}

// checkExtended compares the entries that stay with the originals, and the instructions of their CIEs with what a rule adds.
func checkExtended(t *testing.T, f *elfio.File, table *Table, rule func(*CIE) []byte) (stay int) {
	t.Helper()
	x := table.Extend(rule)
	area := table.area
	area.data = extended(t, table, x)
	after, err := parse(area)
	if err != nil {
		t.Fatalf("not readable afterwards: %v", err)
	}
	at := map[uint64]FDE{}
	for d := range after.All() {
		at[d.Addr] = *d
	}
	for i := range table.Len() {
		if !x.Stays(i) {
			continue
		}
		stay++
		a := table.At(i)
		b, ok := at[a.Addr]
		want := a.CIE.Instructions
		if extra := rule(a.CIE); len(extra) > 0 {
			want = append(bytes.Clone(want), extra...)
		}
		trim := func(b []byte) []byte { return bytes.TrimRight(b, "\x00") }
		if !ok || a.PC != b.PC || a.Size != b.Size || a.LSDA != b.LSDA || !bytes.Equal(a.Instructions, b.Instructions) ||
			a.CIE.Augmentation != b.CIE.Augmentation || a.CIE.Personality() != b.CIE.Personality() ||
			!bytes.Equal(trim(b.CIE.Instructions), trim(want)) {
			t.Fatalf("%v at %#x: %v %+v, was %+v", a, a.Addr, ok, b, a)
		}
	}
	return stay
}

// Entries of CIEs that have grown say what they said before, and nearly all stay where they are.
func TestExtend(t *testing.T) {
	ofInstalled(t, func(name string, f *elfio.File, table *Table) {
		for _, size := range []int{0, 1, 30, 60} {
			rule := func(c *CIE) []byte {
				if c.Signal {
					return nil
				}
				return bytes.Repeat([]byte{0x0a, 0x0b}, size) // any instructions will do
			}
			stay := checkExtended(t, f, table, rule)
			if size == 0 && stay != table.Len() || table.Len()-stay > 200 {
				t.Errorf("%s, %d bytes: %d of %d entries stay", name, 2*size, stay, table.Len())
			}
		}
	})
}

// A CIE with no room behind it stays as it is: another one follows, or the end.
func TestExtendNoRoom(t *testing.T) {
	cie := func(letter byte) []byte {
		return []byte{20, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0x78, 16, 12, 7, 8, letter, 0, 0, 0, 0, 0, 0, 0}
	}
	fde := func(back byte) []byte {
		return []byte{20, 0, 0, 0, back, 0, 0, 0, 0, 16, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0}
	}
	// Two CIEs and three entries, the first of them the first one's. Only the second CIE can grow, over the entries.
	data := slices.Concat(cie(1), cie(2), fde(52), fde(28+24), fde(28+48), []byte{0, 0, 0, 0})
	f := fileOf(t, true, false, nil)
	table, err := Parse(f, data, 0x1000)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ extra, stay int }{{0, 3}, {1, 2}, {24, 2}, {25, 1}, {49, 0}, {73, 0}} {
		rule := func(*CIE) []byte { return bytes.Repeat([]byte{0x0a}, tt.extra) }
		if stay := checkExtended(t, f, table, rule); stay != tt.stay {
			t.Errorf("%d bytes: %d of %d entries stay, want %d", tt.extra, stay, table.Len(), tt.stay)
		}
	}
}
