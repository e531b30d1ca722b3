package elfio

import (
	"bytes"
	"cmp"
	"compress/flate"
	"debug/elf"
	"encoding/binary"
	"maps"
	"slices"
	"testing"

	"github.com/fentry-dev/fentry/internal/cost"
)

func addImages(f *testing.F) {
	for _, raw := range testImages(f) {
		f.Add(raw)
	}
}

// perByte is what a table read from an image takes in memory, for each byte of the image: an entry of 8 bytes becomes one
// of 56, in a slice that has grown.
const perByte = 64

// touchCost is perByte for touch, which reads tables that can all be the same bytes.
func touchCost(f *File) int { return perByte * (8 + min(len(f.Sections), 100)) }

// touch calls every accessor.
func touch(f *File) {
	_, _ = f.Symbols()
	_, _ = f.DynamicSymbols()
	_, _ = f.Dynamic()
	_, _ = f.DynamicRelocs()
	_, _ = f.Notes()
	_ = f.BuildID()
	for i := range min(len(f.Sections), 100) {
		_, _ = f.SectionData(i)
		_, _ = f.Relocs(i)
	}
	_, _ = f.Bytes(f.Header.Entry, 16)
	_, _ = f.Offset(f.Header.Entry)
}

func FuzzParse(f *testing.F) {
	addImages(f)
	f.Fuzz(func(t *testing.T, raw []byte) {
		var x *File
		var err error
		cost.Check(t, len(raw), perByte, func() { x, err = Parse(raw) })
		if err != nil {
			return
		}
		cost.Check(t, len(raw), touchCost(x), func() { touch(x) })
		out, err := x.Encode()
		if err != nil || !bytes.Equal(out, raw) {
			t.Errorf("encoding gives another image (%v)", err)
		}
	})
}

func FuzzInject(f *testing.F) {
	for _, raw := range testImages(f) {
		f.Add(raw, uint16(100), uint16(16), uint16(50))
	}
	f.Fuzz(func(t *testing.T, raw []byte, rw, align, edit uint16) {
		x, err := Parse(raw)
		if err != nil {
			return
		}
		l, err := x.Layout(uint64(rw), uint64(align))
		if err != nil {
			return
		}
		if l.RX%rxAlign != 0 && l.Segment%rxAlign == 0 {
			t.Errorf("RX at %#x", l.RX)
		}
		in := Injection{Layout: l, RX: bytes.Repeat([]byte{0x90}, 100), Entry: l.RX,
			Symbols: []AddedSymbol{{Name: "fentry:x", Value: l.RX, Info: elf.ST_INFO(elf.STB_LOCAL, elf.STT_FUNC)}},
			Edits:   []RawEdit{{Off: uint64(edit), New: []byte("edit")}}}
		if hdr, err := MergeEhFrameHdr(x, l.RX+16, []EhEntry{{l.RX, l.RX + 8}}); err == nil && l.EhFrame && len(hdr) <= 84 {
			in.EhFrameHdr = [2]uint64{l.RX + 16, uint64(len(hdr))}
			copy(in.RX[16:], hdr)
		}
		var plan *Output
		cost.Check(t, len(raw), perByte, func() { plan, err = x.PlanInject(in) })
		if err != nil {
			return
		}
		if err := disjoint(plan.Edits); err != nil {
			t.Error(err)
		}
		for _, e := range plan.Edits {
			if e.Off+uint64(len(e.New)) > uint64(len(raw)) {
				t.Errorf("%d bytes at %#x are changed, of %d", len(e.New), e.Off, len(raw))
			}
		}
		out := plan.Bytes()
		if len(out) > len(raw)*3+1<<22 {
			t.Errorf("%d bytes from %d", len(out), len(raw))
		}
		y, err := Parse(out)
		if err != nil {
			t.Fatalf("the result does not parse: %v", err)
		}
		touch(y)
		if b, err := y.Bytes(l.RX, len(in.RX)); err != nil || !bytes.Equal(b, in.RX) {
			t.Errorf("RX is not at its address (%v)", err)
		}
		back, err := Uninject(out)
		if err != nil || !bytes.Equal(back, raw) {
			t.Errorf("Uninject does not give the original (%v)", err)
		}
	})
}

func FuzzUninject(f *testing.F) {
	for _, raw := range testImages(f) {
		x, err := Parse(raw)
		if err != nil {
			f.Fatal(err)
		}
		l, err := x.Layout(64, 8)
		if err != nil {
			continue
		}
		out, err := x.Inject(Injection{Layout: l, RX: []byte("code")})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(out)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var out []byte
		var err error
		cost.Check(t, len(raw), perByte, func() { out, err = Uninject(raw) })
		if err == nil && len(out) > len(raw) {
			t.Errorf("original of %d bytes in a file of %d", len(out), len(raw))
		}
		if x, err := Parse(raw); err == nil {
			_, _ = x.Injected()
			_ = x.Verify()
		}
	})
}

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

// FuzzFDEs: unwind data from anywhere is refused, or can be moved, and says the same then.
func FuzzFDEs(f *testing.F) {
	for _, raw := range testImages(f) {
		x, err := Parse(raw)
		if err != nil {
			f.Fatal(err)
		}
		if i := x.SectionIndex(".eh_frame"); i >= 0 {
			b, err := x.SectionData(i)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(b, x.Is64(), x.c.order == byteOrder(binary.BigEndian), uint8(0))
			f.Add(b, x.Is64(), x.c.order == byteOrder(binary.BigEndian), uint8(3))
		}
	}
	f.Add(manyLetters(), true, false, uint8(0))
	f.Add(nestedCIEs(3000), true, false, uint8(0))
	f.Fuzz(func(t *testing.T, b []byte, is64, big bool, extra uint8) {
		x := &File{c: codec{binary.LittleEndian, is64}, raw: b}
		if big {
			x.c.order = binary.BigEndian
		}
		var fdes []FDE
		var err error
		cost.Check(t, len(b), perByte, func() { fdes, err = x.FramesIn(b, 0x1000) })
		if err != nil {
			return
		}
		if len(fdes) > len(b)/8 {
			t.Errorf("%d FDEs in %d bytes", len(fdes), len(b))
		}
		for _, d := range fdes {
			if d.CIE == nil || d.Off >= uint64(len(b)) {
				t.Errorf("%v", d)
			}
		}
		// Added to some CIEs, taken up by some FDEs.
		rules := FrameRules{}
		if extra&1 != 0 {
			rules.CIE = func(c *CIE) []byte { return make([]byte, c.Off/8&uint64(extra>>1)) }
		}
		if extra&2 != 0 {
			rules.FDE = func(d *FDE) ([]byte, bool) { return d.Instructions, d.Off>>4&1 != 0 }
		}
		const at = 0x100000
		var m *MovedFrames
		cost.Check(t, len(b), perByte, func() { m, err = x.MoveFrames(at, 0, fdes, rules) })
		if err != nil {
			return
		}
		again, err := x.FramesIn(m.EhFrame, at)
		if err != nil || len(again) != len(fdes) || len(m.Entries) != len(fdes) {
			t.Fatalf("%d FDEs moved, %d came, %d entries (%v)", len(fdes), len(again), len(m.Entries), err)
		}
		for i, d := range fdes {
			n := again[i]
			if n.PC != d.PC || n.Size != d.Size || n.LSDA != d.LSDA || m.Entries[i] != (EhEntry{n.PC, n.Addr}) {
				t.Errorf("%v with LSDA %#x has become %v with %#x, in the table %#x", d, d.LSDA, n, n.LSDA, m.Entries[i])
			}
			if k, o := n.CIE, d.CIE; k.CodeAlign != o.CodeAlign || k.DataAlign != o.DataAlign || k.RetReg != o.RetReg || k.personality != o.personality ||
				k.Signal != o.Signal || !padded(k.Instructions, o.Instructions) {
				t.Errorf("%v: its CIE %+v has become %+v", d, o, k)
			}
			if !padded(n.Instructions, d.Instructions) {
				t.Errorf("%v: rows % x have become % x", d, d.Instructions, n.Instructions)
			}
		}
	})
}

// padded reports whether b is a and nops (zeroes).
func padded(b, a []byte) bool {
	return bytes.HasPrefix(b, a) && len(bytes.Trim(b[len(a):], "\x00")) == 0
}

// FuzzEhFrameHdr: a table that is merged has the rows of both, sorted, and is read as that.
func FuzzEhFrameHdr(f *testing.F) {
	all := testImages(f)
	var images [][]byte
	for i, name := range slices.Sorted(maps.Keys(all)) {
		images = append(images, all[name])
		f.Add(uint8(i), uint64(0x500000), []byte("\x10\x20\x30\x40\x50"), []byte{})
		f.Add(uint8(i), uint64(0x500000), []byte{}, []byte{8, 0, 0xff})
	}
	f.Fuzz(func(t *testing.T, which uint8, at uint64, places, patch []byte) {
		raw := bytes.Clone(images[int(which)%len(images)])
		x, err := Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		p := x.progOfType(elf.PT_GNU_EH_FRAME)
		if p < 0 {
			return
		}
		table, err := x.progData(p)
		if err != nil {
			t.Fatal(err)
		}
		for ; len(patch) >= 3 && len(table) > 0; patch = patch[3:] {
			table[(int(patch[0])|int(patch[1])<<8)%len(table)] = patch[2]
		}
		var extra []EhEntry
		for i, d := range places {
			extra = append(extra, EhEntry{at + uint64(d), at + uint64(len(places)*8+i*8)})
		}
		b, err := MergeEhFrameHdr(x, at, extra)
		if err != nil {
			return
		}
		if n, err := EhFrameHdrSize(x, len(extra)); err != nil || n != uint64(len(b)) {
			t.Errorf("%d bytes, EhFrameHdrSize says %d (%v)", len(b), n, err)
		}
		h, err := x.ehFrameHdr(p)
		if err != nil {
			t.Fatal(err)
		}
		want, err := x.ehEntries(h)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range extra {
			want = append(want, EhEntry{x.trim(e.PC), x.trim(e.FDE)})
		}
		y := &File{c: x.c, raw: b, Progs: []Prog{{Type: elf.PT_GNU_EH_FRAME, Vaddr: at, Filesz: uint64(len(b)), Memsz: uint64(len(b))}}}
		if h, err = y.ehFrameHdr(0); err != nil {
			t.Fatal(err)
		}
		got, err := y.ehEntries(h)
		if err != nil {
			t.Fatal(err)
		}
		if x.Is64() && !slices.IsSortedFunc(got, func(a, b EhEntry) int { return cmp.Compare(a.PC, b.PC) }) {
			t.Errorf("rows out of order: %x", got)
		}
		both := func(a, b EhEntry) int {
			return cmp.Or(cmp.Compare(a.PC, b.PC), cmp.Compare(a.FDE, b.FDE))
		}
		slices.SortFunc(got, both)
		slices.SortFunc(want, both)
		if !slices.Equal(got, want) {
			t.Errorf("%d rows %x, want %d: %x", len(got), got, len(want), want)
		}
	})
}

func FuzzLinkObject(f *testing.F) {
	addImages(f)
	f.Fuzz(func(t *testing.T, raw []byte) {
		x, err := Parse(raw)
		if err != nil {
			return
		}
		size, _, sizeErr := WritableSize(x)
		var l *Linked
		o := LinkOptions{RX: 0x10000000, RW: 0x20000000, Symbols: map[string]uint64{"missing": 0x10000000}, Import: func(n string) bool { return len(n)%2 == 0 }}
		cost.Check(t, len(raw), 4*perByte, func() { l, err = LinkObject(x, o) })
		if err != nil {
			return
		}
		if sizeErr != nil || l.RWSize > size {
			t.Errorf("%d bytes of zeroed memory, WritableSize says %d (%v)", l.RWSize, size, sizeErr)
		}
		for _, s := range l.Sections {
			if s.Flags&elf.SHF_WRITE == 0 && (s.Addr < 0x10000000 || s.Addr+s.Size > 0x10000000+uint64(len(l.RX))) {
				t.Errorf("section %+v outside %d bytes", s, len(l.RX))
			}
		}
	})
}

func FuzzRelr(f *testing.F) {
	f.Add(relrWords(0x1000, 0b1011, 0x2000))
	f.Fuzz(func(t *testing.T, b []byte) {
		x := relrFile(t, 1<<12)
		var out []Reloc
		var err error
		cost.Check(t, len(b), perByte, func() { out, err = x.decodeRelr(nil, b, "fuzz", 0) })
		if err == nil && len(out) > 1<<12/8 {
			t.Errorf("%d relocations", len(out))
		}
	})
}

// FuzzNotes: what is written as notes is read back, and nothing outside of what is given is ever read.
func FuzzNotes(f *testing.F) {
	for _, raw := range testImages(f) {
		x, err := Parse(raw)
		if err != nil {
			f.Fatal(err)
		}
		for i, s := range x.Sections {
			if s.Type == elf.SHT_NOTE {
				b, err := x.SectionData(i)
				if err != nil {
					f.Fatal(err)
				}
				f.Add(b, s.Addralign == 8, x.c.order == byteOrder(binary.BigEndian))
			}
		}
	}
	f.Fuzz(func(t *testing.T, b []byte, wide, big bool) {
		x := &File{c: codec{binary.LittleEndian, true}}
		if big {
			x.c.order = binary.BigEndian
		}
		align := uint64(4)
		if wide {
			align = 8
		}
		read := func(b []byte) (out []Note, err error) {
			cost.Check(t, len(b), perByte, func() { out, err = x.notes(nil, b, 0, align, "fuzz") })
			return out, err
		}
		notes, err := read(b)
		if err != nil {
			return
		}
		var written []byte
		end := uint64(0)
		for _, n := range notes {
			if n.Off < end || n.DescOff < n.Off+12 || n.DescOff+uint64(len(n.Desc)) > uint64(len(b)) || !bytes.Equal(n.Desc, b[n.DescOff:][:len(n.Desc)]) {
				t.Errorf("note %+v behind %#x, in %d bytes", n, end, len(b))
			}
			end = n.DescOff + uint64(len(n.Desc))
			o := x.c.order
			written = o.AppendUint32(o.AppendUint32(o.AppendUint32(written, uint32(len(n.Name)+1)), uint32(len(n.Desc))), n.Type)
			written = append(append(written, n.Name...), 0)
			written = append(written, make([]byte, -len(written)&int(align-1))...)
			written = append(written, n.Desc...)
			written = append(written, make([]byte, -len(written)&int(align-1))...)
		}
		again, err := read(written)
		if err != nil || !slices.EqualFunc(notes, again, func(a, b Note) bool { return a.Name == b.Name && a.Type == b.Type && bytes.Equal(a.Desc, b.Desc) }) {
			t.Errorf("%+v, written and read: %+v, %v", notes, again, err)
		}
	})
}

// FuzzUndoRecord: a record gives back what it was made of, and any body that is read names ranges of the original.
func FuzzUndoRecord(f *testing.F) {
	f.Add([]byte("the original, of which some is changed"), []byte{4, 8, 2, 1, 0, 3})
	f.Add([]byte("x"), []byte{})
	f.Add([]byte("a body \x02\x01\x01\x02\x01xy"), []byte{7, 3})
	f.Fuzz(func(t *testing.T, orig, places []byte) {
		var edits []RawEdit
		for at := uint64(0); len(places) >= 2; places = places[2:] {
			at += uint64(places[0])
			if n := uint64(places[1]); at+n <= uint64(len(orig)) {
				edits = append(edits, RawEdit{at, make([]byte, n)})
				at += n
			}
		}
		rec := encodeUndo(orig, edits)
		if last, ok := trailer(append(bytes.Clone(orig), rec...)); !ok || !bytes.Equal(last, rec) {
			t.Fatal("the record is not found")
		}
		u, err := decodeUndo(rec, 0, uint64(len(orig)))
		if err != nil {
			t.Fatal(err)
		}
		if u.size != uint64(len(orig)) || u.sum != checksum(orig) || len(u.spans) != len(edits) {
			t.Fatalf("%+v for %d bytes and %d edits", u, len(orig), len(edits))
		}
		old := u.old
		for i, e := range edits {
			n := uint64(len(e.New))
			if u.spans[i] != (span{e.Off, n}) || !bytes.Equal(old[:n], orig[e.Off:e.Off+n]) {
				t.Fatalf("range %d: %+v, want %#x+%#x", i, u.spans[i], e.Off, n)
			}
			old = old[n:]
		}

		// The same bytes as a body.
		var z bytes.Buffer
		w, _ := flate.NewWriter(&z, flate.HuffmanOnly)
		w.Write(orig)
		w.Close()
		le := binary.LittleEndian
		rec = append(bytes.Clone(rec[:undoHeader]), z.Bytes()...)
		le.PutUint64(rec[48:], uint64(z.Len()))
		le.PutUint64(rec[56:], uint64(len(orig)))
		const window = 64 << 10 // what DEFLATE keeps
		cost.Check(t, len(orig)+window, perByte, func() { u, err = decodeUndo(rec, 0, uint64(len(orig))) })
		if err != nil {
			return
		}
		at, total := uint64(0), uint64(0)
		for _, s := range u.spans {
			if s.off < at || s.off+s.n < s.off || s.off+s.n > u.size {
				t.Fatalf("range %+v behind %#x of %#x", s, at, u.size)
			}
			at = s.off + s.n
			total += s.n
		}
		if total != uint64(len(u.old)) {
			t.Fatalf("%d bytes for ranges of %d", len(u.old), total)
		}
	})
}
