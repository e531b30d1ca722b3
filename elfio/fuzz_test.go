package elfio

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"testing"
)

func addImages(f *testing.F) {
	for _, raw := range testImages(f) {
		f.Add(raw)
	}
}

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
		x, err := Parse(raw)
		if err != nil {
			return
		}
		touch(x)
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
		out, err := x.Inject(in)
		if err != nil {
			return
		}
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
		out, err := Uninject(raw)
		if err == nil && len(out) > len(raw) {
			t.Errorf("original of %d bytes in a file of %d", len(out), len(raw))
		}
		if x, err := Parse(raw); err == nil {
			_, _ = x.Injected()
			_ = x.Verify()
		}
	})
}

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
			f.Add(b, x.Is64(), x.c.order == byteOrder(binary.BigEndian))
		}
	}
	f.Fuzz(func(t *testing.T, b []byte, is64, big bool) {
		x := &File{c: codec{binary.LittleEndian, is64}, raw: b}
		if big {
			x.c.order = binary.BigEndian
		}
		fdes, err := x.FramesIn(b, 0x1000)
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
		if m, err := x.MoveFrames(0x100000, 0, fdes, FrameRules{}); err == nil && len(m.Entries) != len(fdes) {
			t.Errorf("%d FDEs moved, %d came", len(fdes), len(m.Entries))
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
		l, err := LinkObject(x, LinkOptions{RX: 0x10000000, RW: 0x20000000, Symbols: map[string]uint64{"missing": 0x10000000}, Import: func(n string) bool { return len(n)%2 == 0 }})
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
		out, err := x.decodeRelr(nil, b, "fuzz", 0)
		if err == nil && len(out) > 1<<12/8 {
			t.Errorf("%d relocations", len(out))
		}
	})
}
