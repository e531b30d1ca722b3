package ehframe

import (
	"bytes"
	"slices"
	"testing"

	"github.com/fentry-dev/fentry/elfio"
)

// byRows is a reviser by which entries have a variant for their number of rows, and entries with many rows a lead. No
// unwinder would be served by it.
type byRows struct{ leads bool }

func (byRows) Variant(c *CIE, key int64) (uint64, []byte, bool) {
	return c.RetReg, []byte{cfaGNUArgs, byte(key)}, !c.Signal
}

func (byRows) Lead() int64 { return 100 }

func (r byRows) Revise(d *FDE, rows []Row) (out Revision, ok bool) {
	out.Key = int64(min(len(rows), 9))
	if r.leads && len(rows) > 3 {
		out.Lead = rows[2].At
	}
	return out, d.PC%16 != 3
}

// checkRevised gives the entries of a table variants, and compares what they say afterwards with what they said: where
// they stay, and split for copies.
func checkRevised(t *testing.T, table *Table, by byRows, keep func(pc uint64) bool) (stay, leads int) {
	t.Helper()
	v := NewVariants(by)
	x := table.Revise(v, keep)
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
	lead := x.Leads
	for i := range table.Len() {
		a := table.At(i)
		rows, err := a.AppendRows(nil)
		r, ok := by.Revise(&a, rows)
		if ok = ok && err == nil && !a.CIE.Signal; ok {
			checkParts(t, &a, v.Split(&a), r, by, rows)
		}
		if !x.Stays(i) {
			continue
		}
		stay++
		b, found := at[a.Addr]
		if !found || (x.Entry(&a, i) != Entry{b.PC, b.Addr}) {
			t.Fatalf("%v: %v, %v afterwards, in the table %#x", a, found, b, x.Entry(&a, i))
		}
		if keep(a.PC) || a.CIE.Signal {
			if b.PC != a.PC || !padded(b.Instructions, a.Instructions) || !padded(b.CIE.Instructions, a.CIE.Instructions) {
				t.Fatalf("%v was to be left alone, is %+v", a, b)
			}
			continue
		}
		parts := []FDE{b}
		if b.PC != a.PC {
			parts, lead = []FDE{lead[0], b}, lead[1:]
		}
		if !ok {
			t.Fatalf("%v stays, but has no variant", a)
		}
		checkParts(t, &a, parts, r, by, rows)
	}
	if len(lead) != 0 {
		t.Fatalf("%d leads too many", len(lead))
	}
	return stay, len(x.Leads)
}

// checkParts compares an entry, whose rows are known, with what stands for it.
func checkParts(t *testing.T, a *FDE, parts []FDE, r Revision, by byRows, rows []Row) {
	t.Helper()
	if r.Lead > 0 && (a.LSDA != 0 || r.Lead >= a.Size) {
		if parts != nil {
			t.Fatalf("%v is in parts", a)
		}
		return
	}
	keys := []int64{r.Key}
	if r.Lead > 0 {
		keys = []int64{by.Lead(), r.Key}
	}
	if len(parts) != len(keys) {
		t.Fatalf("%v: %d parts, want %d", a, len(parts), len(keys))
	}
	pc := a.PC
	for k := range parts {
		p := &parts[k]
		_, extra, _ := by.Variant(a.CIE, keys[k])
		if p.PC != pc || p.LSDA != a.LSDA || !padded(p.CIE.Instructions, slices.Concat(a.CIE.Instructions, extra)) ||
			p.CIE.Augmentation != a.CIE.Augmentation || p.CIE.Personality() != a.CIE.Personality() {
			t.Fatalf("%v: part %d is %v of %+v", a, k, p, p.CIE)
		}
		got, err := p.AppendRows(nil)
		if err != nil {
			t.Fatalf("%v: part %d: %v", a, k, err)
		}
		for _, row := range rows {
			from := p.PC - a.PC
			if row.At < from || row.At >= from+p.Size && p.Size > 0 {
				continue
			}
			if g := rowOf(got, row.At-from); g != rowOf(rows, row.At) {
				t.Fatalf("%v: %+v has become %+v in part %d", a, row, g, k)
			}
		}
		pc += p.Size
	}
	if pc != a.PC+a.Size {
		t.Fatalf("%v: its parts end at %#x", a, pc)
	}
}

// Entries that have got variants of their CIEs say what they said before, and nearly all stay where they are.
func TestRevise(t *testing.T) {
	ofInstalled(t, func(name string, _ *elfio.File, table *Table) {
		for _, leads := range []bool{false, true} {
			stay, n := checkRevised(t, table, byRows{leads}, func(pc uint64) bool { return pc%32 == 0 })
			withLSDA := 0
			for d := range table.All() {
				if d.LSDA != 0 {
					withLSDA++ // these have no leads
				}
			}
			others := table.Len() - stay
			if leads {
				others -= withLSDA
			}
			if others > 20+table.Len()/20 || leads != (n > 0) {
				t.Errorf("%s: %d of %d entries stay, %d leads", name, stay, table.Len(), n)
			}
		}
	})
}

// Without room for them in front there are no variants in place; entries stay if nothing is to be changed.
func TestReviseNoRoom(t *testing.T) {
	cie := []byte{20, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0x78, 16, 12, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0}
	fde := func(back, pc byte) []byte {
		return []byte{20, 0, 0, 0, back, 0, 0, 0, pc, 16, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0}
	}
	data := slices.Concat(cie, fde(28, 0), fde(28+24, 16), []byte{0, 0, 0, 0})
	table, err := Parse(fileOf(t, true, false, nil), data, 0x1000)
	if err != nil {
		t.Fatal(err)
	}
	if stay, _ := checkRevised(t, table, byRows{}, func(uint64) bool { return false }); stay != 0 {
		t.Errorf("%d entries stay", stay)
	}
	x := table.Revise(NewVariants(byRows{}), func(uint64) bool { return true })
	if len(x.Edits) != 0 || !x.Stays(0) || !x.Stays(1) || !bytes.Equal(extended(t, table, x), data) {
		t.Errorf("%d edits, though nothing is to be changed", len(x.Edits))
	}
}
