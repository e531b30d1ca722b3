package elfio

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"slices"
	"testing"

	"github.com/fentry-dev/fentry/elfio/internal/elftest"
	"github.com/fentry-dev/fentry/elfio/internal/raw"
	"github.com/fentry-dev/fentry/internal/cost"
)

func addImages(f *testing.F) {
	for _, raw := range elftest.Images(f) {
		f.Add(raw)
	}
}

// touchCost is elftest.PerByte for touch, which reads tables that can all be the same bytes.
func touchCost(f *File) int { return elftest.PerByte * (8 + min(len(f.Sections), 100)) }

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
		cost.Check(t, len(raw), elftest.PerByte, func() { x, err = Parse(raw) })
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

func FuzzRelr(f *testing.F) {
	f.Add(relrWords(0x1000, 0b1011, 0x2000))
	f.Fuzz(func(t *testing.T, b []byte) {
		x := relrFile(t, 1<<12)
		var out []Reloc
		var err error
		cost.Check(t, len(b), elftest.PerByte, func() { out, err = x.decodeRelr(nil, b, "fuzz", 0) })
		if err == nil && len(out) > 1<<12/8 {
			t.Errorf("%d relocations", len(out))
		}
	})
}

// FuzzNotes: what is written as notes is read back, and nothing outside of what is given is ever read.
func FuzzNotes(f *testing.F) {
	for _, image := range elftest.Images(f) {
		x, err := Parse(image)
		if err != nil {
			f.Fatal(err)
		}
		for i, s := range x.Sections {
			if s.Type == elf.SHT_NOTE {
				b, err := x.SectionData(i)
				if err != nil {
					f.Fatal(err)
				}
				f.Add(b, s.Addralign == 8, x.c.Order == raw.ByteOrder(binary.BigEndian))
			}
		}
	}
	f.Fuzz(func(t *testing.T, b []byte, wide, big bool) {
		x := &File{c: raw.Codec{Order: binary.LittleEndian, Is64: true}}
		if big {
			x.c.Order = binary.BigEndian
		}
		align := uint64(4)
		if wide {
			align = 8
		}
		read := func(b []byte) (out []Note, err error) {
			cost.Check(t, len(b), elftest.PerByte, func() { out, err = x.notes(nil, b, 0, align, "fuzz") })
			return out, err
		}
		notes, err := read(b)
		if err != nil {
			return
		}
		var written []byte
		end := uint64(0)
		for _, n := range notes {
			if n.Off < end || n.DescOff < n.Off+12 || n.DescOff+uint64(len(n.Desc)) > uint64(len(b)) ||
				!bytes.Equal(n.Desc, b[n.DescOff:][:len(n.Desc)]) {
				t.Errorf("note %+v behind %#x, in %d bytes", n, end, len(b))
			}
			end = n.DescOff + uint64(len(n.Desc))
			o := x.c.Order
			written = o.AppendUint32(o.AppendUint32(o.AppendUint32(written, uint32(len(n.Name)+1)), uint32(len(n.Desc))), n.Type)
			written = append(append(written, n.Name...), 0)
			written = append(written, make([]byte, -len(written)&int(align-1))...)
			written = append(written, n.Desc...)
			written = append(written, make([]byte, -len(written)&int(align-1))...)
		}
		again, err := read(written)
		if err != nil || !slices.EqualFunc(notes, again, func(a, b Note) bool {
			return a.Name == b.Name &&
				a.Type == b.Type && bytes.Equal(a.Desc, b.Desc)
		}) {
			t.Errorf("%+v, written and read: %+v, %v", notes, again, err)
		}
	})
}
