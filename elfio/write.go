package elfio

import (
	"cmp"
	"debug/elf"
	"fmt"
	"slices"

	"github.com/fentry-dev/fentry/elfio/internal/raw"
)

// headerEdits encodes Header, Progs and Sections, as they are now, over the places they were read from. For
// an unchanged File the edits change nothing, byte for byte.
//
// Fields of entries may be changed between Parse and Encode; the numbers of entries, the offsets of the tables and
// the class must not. Section names are written as NameOff; Name is ignored.
func (f *File) headerEdits() ([]RawEdit, error) {
	h, c := f.Header, f.c
	if len(f.Progs) != int(h.Phnum) || len(f.Sections) != int(h.Shnum) && h.Shnum != 0 || h.Phoff != f.hdr.Phoff ||
		h.Shoff != f.hdr.Shoff ||
		h.Phentsize != f.hdr.Phentsize || h.Shentsize != f.hdr.Shentsize {
		return nil, fmt.Errorf("the size or place of a header table was changed: %d program headers, %d sections",
			len(f.Progs), len(f.Sections))
	}
	r := f.hdr // keeps how the counts are stored
	r.Ident, r.Type, r.Machine, r.Version, r.Entry = h.Ident, uint16(h.Type), uint16(h.Machine), h.Version, h.Entry
	r.Flags, r.Ehsize = h.Flags, h.Ehsize
	if elf.SectionIndex(r.Shstrndx) != elf.SHN_XINDEX && uint32(r.Shstrndx) != h.Shstrndx {
		if h.Shstrndx >= uint32(elf.SHN_LORESERVE) {
			return nil, fmt.Errorf("section name table %#x needs section header 0, which was not in use for it", h.Shstrndx)
		}
		if len(f.Sections) > 0 {
			r.Shstrndx = uint16(h.Shstrndx)
		}
	}
	hdr := make([]byte, c.EhdrSize())
	c.WriteHeader(hdr, r)
	edits := []RawEdit{{0, hdr}}
	for i, p := range f.Progs {
		b := make([]byte, c.PhdrSize())
		f.PutProg(b, p)
		edits = append(edits, RawEdit{h.Phoff + uint64(i)*uint64(h.Phentsize), b})
	}
	for i := range f.Sections {
		b := make([]byte, c.ShdrSize())
		f.PutSection(b, &f.Sections[i])
		edits = append(edits, RawEdit{h.Shoff + uint64(i)*uint64(h.Shentsize), b})
	}
	return edits, nil
}

// Encode returns the image in a new slice, with the present values of Header, Progs and Sections written to the
// places they were read from. For an unchanged File that is the image, byte for byte.
//
// Fields of entries may be changed between Parse and Encode; the numbers of entries, the offsets of the tables and
// the class must not. Section names are written as NameOff; Name is ignored.
func (f *File) Encode() ([]byte, error) {
	edits, err := f.headerEdits()
	if err != nil {
		return nil, err
	}
	out := append(make([]byte, 0, len(f.raw)), f.raw...)
	for _, e := range edits {
		copy(out[e.Off:], e.New)
	}
	return out, nil
}

// WordSize returns the size of an address of the file in bytes.
func (f *File) WordSize() int { return int(f.c.WordSize()) }

// PutWord stores an address-sized word into b in the file's byte order.
func (f *File) PutWord(b []byte, v uint64) { f.c.PutWord(b, v) }

// Word reads an address-sized word in the file's byte order.
func (f *File) Word(b []byte) uint64 { return f.c.Word(b) }

// Rewrite returns the file with edits applied. It sorts edits in place. Overlapping edits are an error: they change
// sections that share bytes.
func (f *File) Rewrite(edits []RawEdit) (*Output, error) {
	slices.SortStableFunc(edits, func(a, b RawEdit) int { return cmp.Compare(a.Off, b.Off) })
	end := uint64(0)
	for _, e := range edits {
		if e.Off < end {
			return nil, FormatErrorf("file", e.Off, "sections that change overlap")
		}
		if _, ok := raw.Slice(f.raw, e.Off, uint64(len(e.New))); !ok {
			return nil, FormatErrorf("file", e.Off, "a section that changes ends outside")
		}
		end = e.Off + uint64(len(e.New))
	}
	return &Output{Orig: f.raw, Edits: edits}, nil
}
