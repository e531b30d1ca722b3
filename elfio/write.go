package elfio

import (
	"debug/elf"
	"fmt"
)

// HeaderEdits encodes Header, Progs and Sections, as they are now, over the places they were read from. For
// an unchanged File the edits change nothing, byte for byte.
//
// Fields of entries may be changed between Parse and this call; the numbers of entries, the offsets of the
// tables and the class may not. Section names are written as NameOff; Name is ignored.
func (f *File) HeaderEdits() ([]RawEdit, error) {
	h, c := f.Header, f.c
	if len(f.Progs) != int(h.Phnum) || len(f.Sections) != int(h.Shnum) && h.Shnum != 0 || h.Phoff != f.hdr.phoff || h.Shoff != f.hdr.shoff ||
		h.Phentsize != f.hdr.phentsize || h.Shentsize != f.hdr.shentsize {
		return nil, fmt.Errorf("the size or place of a header table was changed: %d program headers, %d sections", len(f.Progs), len(f.Sections))
	}
	r := f.hdr // keeps how the counts are stored
	r.ident, r.typ, r.machine, r.version, r.entry = h.Ident, uint16(h.Type), uint16(h.Machine), h.Version, h.Entry
	r.flags, r.ehsize = h.Flags, h.Ehsize
	if elf.SectionIndex(r.shstrndx) != elf.SHN_XINDEX && uint32(r.shstrndx) != h.Shstrndx {
		if h.Shstrndx >= uint32(elf.SHN_LORESERVE) {
			return nil, fmt.Errorf("section name table %#x needs section header 0, which was not in use for it", h.Shstrndx)
		}
		if len(f.Sections) > 0 {
			r.shstrndx = uint16(h.Shstrndx)
		}
	}
	hdr := make([]byte, c.ehdrSize())
	c.writeHeader(hdr, r)
	edits := []RawEdit{{0, hdr}}
	for i, p := range f.Progs {
		b := make([]byte, c.phdrSize())
		c.writeProg(b, p)
		edits = append(edits, RawEdit{h.Phoff + uint64(i)*uint64(h.Phentsize), b})
	}
	for i, s := range f.Sections {
		b := make([]byte, c.shdrSize())
		c.writeSection(b, s)
		edits = append(edits, RawEdit{h.Shoff + uint64(i)*uint64(h.Shentsize), b})
	}
	return edits, nil
}

// Encode returns the image in a new slice, with Header, Progs and Sections encoded as they are now.
func (f *File) Encode() ([]byte, error) {
	edits, err := f.HeaderEdits()
	if err != nil {
		return nil, err
	}
	out := append(make([]byte, 0, len(f.raw)), f.raw...)
	for _, e := range edits {
		copy(out[e.Off:], e.New)
	}
	return out, nil
}
