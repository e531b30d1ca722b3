package ehframe

import (
	"bytes"
	"cmp"
	"debug/elf"
	"encoding/binary"
	"maps"
	"slices"
	"testing"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/elfio/internal/elftest"
	"github.com/fentry-dev/fentry/internal/cost"
)

// manyLetters is a CIE with as many letters as are read, and an FDE of it.
func manyLetters() []byte {
	const n = maxAugmentation - 2
	cie := append([]byte{0, 0, 0, 0, 1, 'z'}, bytes.Repeat([]byte{'P'}, n)...)
	cie = appendULEB(append(cie, 0, 1, 0x78, 16), 9*n)
	for range n {
		cie = append(cie, encUdata8, 1, 2, 3, 4, 5, 6, 7, 8)
	}
	le := binary.LittleEndian
	b := append(le.AppendUint32(nil, uint32(len(cie))), cie...)
	b = le.AppendUint32(le.AppendUint32(b, 21), uint32(len(b)+4))
	return append(b, 0, 0x10, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0)
}

// nestedCIEs has n CIEs, each of which is part of the one before it, and an FDE of each.
func nestedCIEs(n int) []byte {
	const cie = 13 // bytes of each that are its own
	le := binary.LittleEndian
	var b []byte
	for i := range n {
		b = le.AppendUint32(b, uint32((n-i)*cie-4))
		b = append(b, 0, 0, 0, 0, 1, 0, 1, 0x78, 16)
	}
	for i := range n {
		at := len(b)
		b = le.AppendUint32(b, 24)
		b = le.AppendUint32(b, uint32(at+4-i*cie))
		b = le.AppendUint64(le.AppendUint64(b, uint64(0x1000+i)), 1)
		b = append(b, 0, 0, 0, 0)
	}
	return b
}

// fileOf is an ELF file of a class and byte order without anything in it, 64 bytes and then b.
func fileOf(t *testing.T, is64, big bool, b []byte) *elfio.File {
	t.Helper()
	head := make([]byte, 64, 64+len(b))
	copy(head, "\x7fELF\x01\x01\x01")
	if is64 {
		head[elf.EI_CLASS] = byte(elf.ELFCLASS64)
	}
	if big {
		head[elf.EI_DATA] = byte(elf.ELFDATA2MSB)
	}
	f, err := elfio.Parse(append(head, b...))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// checkMovedLSDA makes copies of language-specific data, at its own address: they have the same rows, as far as those
// cover anything.
func checkMovedLSDA(t *testing.T, f *elfio.File, fdes *Table, fixed bool) {
	t.Helper()
	n := 0
	for d := range fdes.All() {
		if n++; n > 16 {
			return
		}
		d.LSDA = 0x400078
		moved, err := d.AppendMovedLSDA(nil, f, d.LSDA, 0, d.Size, fixed, func(at uint64) (uint64, bool) { return at, true })
		if err != nil {
			continue
		}
		want, _, _ := d.AppendCallSites(f, nil, maxLSDA)
		got, _, err := d.AppendCallSites(loaded(t, moved), nil, maxLSDA)
		if err != nil {
			t.Fatalf("copied as % x: %v", moved, err)
		}
		want = slices.DeleteFunc(want, func(c CallSite) bool { return c.Lo == c.Hi })
		if len(got) > len(want) || !slices.Equal(got, want[:len(got)]) {
			t.Errorf("copied as % x, with rows %x for %x", moved, got, want)
		}
	}
}

// FuzzParse: unwind data from anywhere is refused, or can be moved, and says the same then.
func FuzzParse(f *testing.F) {
	for _, image := range elftest.Images(f) {
		x, err := elfio.Parse(image)
		if err != nil {
			f.Fatal(err)
		}
		if i := x.SectionIndex(".eh_frame"); i >= 0 {
			b, err := x.SectionData(i)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(b, x.Is64(), x.Order() == binary.BigEndian, uint8(0))
			f.Add(b, x.Is64(), x.Order() == binary.BigEndian, uint8(3))
		}
	}
	f.Add(manyLetters(), true, false, uint8(0))
	f.Add(nestedCIEs(3000), true, false, uint8(0))
	f.Fuzz(func(t *testing.T, b []byte, is64, big bool, extra uint8) {
		x, lsda := fileOf(t, is64, big, nil), loaded(t, b)
		var fdes *Table
		var err error
		cost.Check(t, len(b), elftest.PerByte, func() { fdes, err = Parse(x, b, 0x1000) })
		if err != nil {
			return
		}
		if fdes.Len() > len(b)/8 {
			t.Errorf("%d FDEs in %d bytes", fdes.Len(), len(b))
		}
		for d := range fdes.All() {
			if d.CIE == nil || d.Off >= uint64(len(b)) {
				t.Errorf("%v", d)
			}
		}
		// Rows and call sites are read, and rows cut, whatever they say.
		var rows []Row
		var calls []CallSite
		budget := len(b)
		index := NewIndex(fdes)
		cost.Check(t, len(b), elftest.PerByte, func() {
			for d := range fdes.All() {
				rows, _ = d.AppendRows(rows[:0])
				_, _ = d.AppendMoved(nil, d.Size/2, func(at uint64) (uint64, bool) { return at, true })
				if _, ok := index.Find(d.PC); d.Size != 0 && !ok {
					t.Errorf("%v is not found", d)
				}
				d.LSDA = 0x400078
				var n int
				calls, n, _ = d.AppendCallSites(lsda, calls[:0], budget)
				budget -= n
			}
		})
		checkMovedLSDA(t, lsda, fdes, extra > 1)
		checkExtended(t, x, fdes, func(c *CIE) []byte { return bytes.Repeat([]byte{cfaRemember}, int(extra)*int(c.Off%3)) })
		cost.Check(t, len(b), elftest.PerByte, func() { fdes.Revise(NewVariants(byRows{true}), func(uint64) bool { return false }) })
		checkRevised(t, fdes, byRows{extra&1 != 0}, func(pc uint64) bool { return pc&uint64(extra) == 4 })
		// Added to some CIEs, taken up by some FDEs.
		rules := Rules{}
		if extra&1 != 0 {
			rules.CIE = func(c *CIE) []byte { return make([]byte, c.Off/8&uint64(extra>>1)) }
		}
		if extra&2 != 0 {
			rules.FDE = func(d *FDE) ([]byte, bool) { return d.Instructions, d.Off>>4&1 != 0 }
		}
		const at = 0x100000
		var m Moved
		cost.Check(t, len(b), elftest.PerByte, func() { err = m.Append(x, at, 0, fdes.All(), rules) })
		if err != nil {
			return
		}
		again, err := Parse(x, m.EhFrame, at)
		if err != nil || again.Len() != fdes.Len() || len(m.Entries) != fdes.Len() {
			t.Fatalf("%d FDEs moved, %d came, %d entries (%v)", fdes.Len(), again.Len(), len(m.Entries), err)
		}
		for i := range fdes.Len() {
			d, n := fdes.At(i), again.At(i)
			if n.PC != d.PC || n.Size != d.Size || n.LSDA != d.LSDA || m.Entries[i] != (Entry{n.PC, n.Addr}) {
				t.Errorf("%v with LSDA %#x has become %v with %#x, in the table %#x", d, d.LSDA, n, n.LSDA, m.Entries[i])
			}
			if k, o := n.CIE, d.CIE; k.CodeAlign != o.CodeAlign || k.DataAlign != o.DataAlign || k.RetReg != o.RetReg ||
				k.personality != o.personality ||
				k.Signal != o.Signal || !padded(k.Instructions, o.Instructions) {
				t.Errorf("%v: its CIE %+v has become %+v", d, o, k)
			}
			if !padded(n.Instructions, d.Instructions) {
				t.Errorf("%v: rows % x have become % x", d, d.Instructions, n.Instructions)
			}
		}
		checkDebugFrame(t, x, m.DebugFrame, fdes)
	})
}

// FuzzDebugFrame: a .debug_frame from anywhere is refused, or can be written again, and says the same then.
func FuzzDebugFrame(f *testing.F) {
	for _, image := range elftest.Images(f) {
		x, err := elfio.Parse(image)
		if err != nil {
			f.Fatal(err)
		}
		t, err := Read(x)
		if err != nil {
			continue
		}
		var m Moved
		if m.Append(x, 0x100000, 0, t.All(), Rules{}) == nil {
			f.Add(m.DebugFrame, x.Is64(), x.Order() == binary.BigEndian)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte, is64, big bool) {
		x := fileOf(t, is64, big, nil)
		var fdes *Table
		var err error
		cost.Check(t, len(b), elftest.PerByte, func() { fdes, err = ParseDebugFrame(x, b) })
		if err != nil {
			return
		}
		var m Moved
		cost.Check(t, len(b), elftest.PerByte, func() { err = m.Append(x, 0, 0, fdes.All(), Rules{}) })
		if err == nil {
			checkDebugFrame(t, x, m.DebugFrame, fdes)
		}
	})
}

// checkDebugFrame: a .debug_frame has these entries.
func checkDebugFrame(t *testing.T, x *elfio.File, b []byte, fdes *Table) {
	t.Helper()
	again, err := ParseDebugFrame(x, b)
	if err != nil || again.Len() != fdes.Len() {
		t.Fatalf("%d FDEs in .debug_frame, want %d (%v)", again.Len(), fdes.Len(), err)
	}
	for i := range fdes.Len() {
		d, n := fdes.At(i), again.At(i)
		if n.PC != d.PC || n.Size != d.Size || n.CIE.RetReg != d.CIE.RetReg || n.CIE.DataAlign != d.CIE.DataAlign ||
			!padded(n.CIE.Instructions, d.CIE.Instructions) || !padded(n.Instructions, d.Instructions) {
			t.Errorf("%v of %+v has become %v of %+v", d, d.CIE, n, n.CIE)
		}
	}
}

// padded reports whether b is a and nops (zeroes).
func padded(b, a []byte) bool {
	return bytes.HasPrefix(b, a) && len(bytes.Trim(b[len(a):], "\x00")) == 0
}

// FuzzHeader: a table that is merged has the rows of both, sorted, and is read as that.
func FuzzHeader(f *testing.F) {
	all := elftest.Images(f)
	var images [][]byte
	for i, name := range slices.Sorted(maps.Keys(all)) {
		images = append(images, all[name])
		f.Add(uint8(i), uint64(0x500000), []byte("\x10\x20\x30\x40\x50"), []byte{})
		f.Add(uint8(i), uint64(0x500000), []byte{}, []byte{8, 0, 0xff})
	}
	f.Fuzz(func(t *testing.T, which uint8, at uint64, places, patch []byte) {
		raw := bytes.Clone(images[int(which)%len(images)])
		x, err := elfio.Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		p := x.ProgIndex(elf.PT_GNU_EH_FRAME)
		if p < 0 {
			return
		}
		table, err := x.ProgData(p)
		if err != nil {
			t.Fatal(err)
		}
		for ; len(patch) >= 3 && len(table) > 0; patch = patch[3:] {
			table[(int(patch[0])|int(patch[1])<<8)%len(table)] = patch[2]
		}
		var extra []Entry
		for i, d := range places {
			extra = append(extra, Entry{at + uint64(d), at + uint64(len(places)*8+i*8)})
		}
		b, err := MergeHeader(x, at, extra)
		if err != nil {
			return
		}
		h, err := readHeader(x, p)
		if err != nil {
			t.Fatal(err)
		}
		want, err := h.entries(x)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range extra {
			if !x.Is64() {
				e.PC, e.FDE = uint64(uint32(e.PC)), uint64(uint32(e.FDE))
			}
			want = append(want, e)
		}
		y := fileOf(t, x.Is64(), x.Order() == binary.BigEndian, b)
		y.Progs = []elfio.Prog{{Type: elf.PT_GNU_EH_FRAME, Vaddr: at, Off: 64, Filesz: uint64(len(b)), Memsz: uint64(len(b))}}
		if h, err = readHeader(y, 0); err != nil {
			t.Fatal(err)
		}
		got, err := h.entries(y)
		if err != nil {
			t.Fatal(err)
		}
		if x.Is64() && !slices.IsSortedFunc(got, func(a, b Entry) int { return cmp.Compare(a.PC, b.PC) }) {
			t.Errorf("rows out of order: %x", got)
		}
		both := func(a, b Entry) int {
			return cmp.Or(cmp.Compare(a.PC, b.PC), cmp.Compare(a.FDE, b.FDE))
		}
		slices.SortFunc(got, both)
		slices.SortFunc(want, both)
		if !slices.Equal(got, want) {
			t.Errorf("%d rows %x, want %d: %x", len(got), got, len(want), want)
		}
	})
}
