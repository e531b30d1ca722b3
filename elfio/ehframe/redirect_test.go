package ehframe

import (
	"bytes"
	"debug/elf"
	"slices"
	"testing"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/elfio/internal/elftest"
)

// Entries that are led to the CIEs of their copies have one there that is as theirs, with what was added.
func TestLeadToCIE(t *testing.T) {
	f, err := elfio.Parse(elftest.Images(t)["x86_64-shared"])
	if err != nil {
		t.Fatal(err)
	}
	table, err := Read(f)
	if err != nil {
		t.Fatal(err)
	}
	base := uint64(1 << 20)
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD {
			base = max(base, (p.Vaddr+p.Memsz+1<<20)&^7)
		}
	}
	added := []byte{0x2d, 0x2d, 0x2d} // an instruction of another machine
	out := Moved{EhFrame: make([]byte, 64)}
	if err := out.Append(f, base+64, 0, table.All(), Rules{CIE: func(*CIE) []byte { return added }}); err != nil {
		t.Fatal(err)
	}
	i := 0
	for d := range table.All() {
		entry := out.Entries[i].FDE
		i++
		e, err := out.LeadToCIE(f, d, entry, base)
		if err != nil {
			t.Fatal(err)
		}
		if old := uint64(f.Order().Uint32(f.Raw()[e.Off:])); e.Off-old != d.CIE.Off {
			t.Fatalf("entry of %#x: %#x is not the distance to its CIE", d.PC, old)
		}
		at := d.Addr + (e.Off - d.Off) - uint64(int64(int32(f.Order().Uint32(e.New)))) - base
		c := out.EhFrame[at:]
		c = c[:4+f.Order().Uint32(c)]
		if f.Order().Uint32(c[4:]) != 0 || !bytes.Contains(c, slices.Concat(d.CIE.Instructions, added)) {
			t.Errorf("entry of %#x is led to % x", d.PC, c)
		}
		if _, err := out.LeadToCIE(f, d, entry, base+1<<20); err == nil {
			t.Error("an entry outside the copies has a CIE")
		}
		if _, err := out.LeadToCIE(f, d, entry+1<<33, base+1<<33); err == nil {
			t.Error("a CIE 8 GiB away is in reach")
		}
	}
	if i == 0 {
		t.Error("no entries")
	}
}
