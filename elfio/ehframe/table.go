package ehframe

import (
	"debug/elf"
	"encoding/binary"
	"iter"
	"slices"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/elfio/internal/raw"
	"github.com/fentry-dev/fentry/internal/bigslice"
)

// Reading .eh_frame.
//
// A large image has hundreds of thousands of entries. All are read once, so that malformed ones are found before
// anybody relies on the table; but only their places are kept, 16 bytes each, and At decodes again. Nearly all have one
// form (usualFDEs), which takes a few loads; what is not of that form goes through a reader that checks field by field.
//
// What an entry says of stack frames, row by row, and what its LSDA says of landing pads, is read from the Instructions
// and LSDA of an FDE: see rows.go and lsda.go.

// Table holds the entries of .eh_frame in file order. It stores little more than their offsets: At decodes them. It
// is safe for concurrent use.
type Table struct {
	area    area
	entries []place
	cies    []usualFDEs
}

// place is where an FDE is.
type place struct {
	pos uint64 // in the area
	cie int    // index of its CIE
}

// tableKey is what a file remembers its table by.
type tableKey struct{}

// Read returns the entries of .eh_frame. The section is found by name or, where section headers are stripped, through
// PT_GNU_EH_FRAME. An image without either gives an empty table. Relocatable objects are refused: their ranges are
// still in relocations. The result is kept with the file.
func Read(f *elfio.File) (*Table, error) {
	t, err := f.Remember(tableKey{}, func() (any, error) { return read(f) })
	if err != nil {
		return nil, err
	}
	return t.(*Table), nil
}

// Parse returns the entries of unwind data that is in the file's byte order and will be at address addr, such as the
// .eh_frame of a linked object. FDE.Off is the offset in data.
func Parse(f *elfio.File, data []byte, addr uint64) (*Table, error) {
	return parse(area{c: raw.CodecOf(f.Raw()), what: "unwind data", data: data, addr: addr, sized: true})
}

// ParseDebugFrame returns the entries of the contents of a linked file's .debug_frame (DWARF 5, 6.4.1), which say the same
// in another form: the mark of a CIE is all ones, an FDE names its CIE by the offset in the section, and addresses are
// absolute. FDE.Off is the offset in data. The 64-bit format is refused.
func ParseDebugFrame(f *elfio.File, data []byte) (*Table, error) {
	return parse(area{c: raw.CodecOf(f.Raw()), what: ".debug_frame", data: data, sized: true, debug: true})
}

// Len returns the number of entries.
func (t *Table) Len() int { return len(t.entries) }

// At returns entry i.
func (t *Table) At(i int) FDE {
	r := &t.entries[i]
	u := &t.cies[r.cie]
	if d, _, ok := u.read(&t.area, r.pos); ok {
		return d
	}
	e, err := t.area.entry(r.pos)
	if err == nil {
		var d FDE
		if d, err = t.area.fde(e, u.cie); err == nil {
			return d
		}
	}
	return FDE{} // it has been read before, so the file changes: other checks find that
}

// Entries returns the rows of the search table of .eh_frame_hdr for the entries, in their order.
func (t *Table) Entries() []Entry {
	out := make([]Entry, 0, t.Len())
	for d := range t.All() {
		out = append(out, Entry{d.PC, d.Addr})
	}
	return out
}

// All yields the entries in order. An FDE is valid only until the next one is yielded.
func (t *Table) All() iter.Seq[*FDE] {
	return func(yield func(*FDE) bool) {
		var d FDE
		for i := range t.entries {
			if d = t.At(i); !yield(&d) {
				return
			}
		}
	}
}

func read(f *elfio.File) (*Table, error) {
	c := raw.CodecOf(f.Raw())
	if f.Header.Type == elf.ET_REL {
		return nil, elfio.FormatErrorf("ELF header", 16, "relocatable object: its .eh_frame has no addresses yet")
	}
	if i := f.SectionIndex(".eh_frame"); i >= 0 {
		data, err := f.SectionData(i)
		if err != nil || data == nil {
			return &Table{}, err
		}
		return parse(area{c: c, what: f.SectionLabel(i), data: data, off: f.Sections[i].Off, addr: f.Sections[i].Addr,
			sized: true})
	}
	for i, p := range f.Progs {
		if p.Type != elf.PT_GNU_EH_FRAME || p.Filesz == 0 {
			continue
		}
		h, err := readHeader(f, i)
		if err != nil {
			return nil, err
		}
		if h.none {
			continue
		}
		data, off := f.From(h.ehFrame)
		if data == nil {
			return nil, elfio.FormatErrorf(f.ProgLabel(i), p.Off, ".eh_frame at %#x is outside the loaded segments", h.ehFrame)
		}
		return parse(area{c: c, what: ".eh_frame", data: data, off: off, addr: h.ehFrame})
	}
	return &Table{}, nil
}

// area is the extent of .eh_frame.
type area struct {
	c         raw.Codec
	what      string
	data      []byte
	off, addr uint64
	sized     bool // data ends with the section, not with the segment it is in
	debug     bool // .debug_frame
}

// isCIE tells whether an entry is one.
func (a *area) isCIE(e *entry) bool {
	if a.debug {
		return e.id == ^uint32(0)
	}
	return e.id == 0
}

// cieOf is where an FDE says that its CIE is.
func (a *area) cieOf(e *entry) uint64 {
	if a.debug {
		return uint64(e.id)
	}
	return e.idPos - uint64(e.id)
}

// parse reads all entries, so that malformed ones are found.
func parse(a area) (*Table, error) {
	t := &Table{area: a}
	if a.sized { // where the section's end is not known, the data reach far behind it
		const small = 20 // bytes of an entry; few are smaller
		t.entries = bigslice.Make[place](0, len(a.data)/small)
	}
	known := map[uint64]int{} // index of the CIE at a place
	code := 0                 // bytes of their instructions
	last := -1
	for pos := uint64(0); uint64(len(a.data))-pos >= 4; {
		if last >= 0 {
			if _, next, ok := t.cies[last].read(&a, pos); ok {
				t.entries = append(t.entries, place{pos, last})
				pos = next
				continue
			}
		}
		e, err := a.entry(pos)
		if err != nil {
			return nil, err
		}
		if e.body == nil { // terminator; a section may go on after one
			if !a.sized {
				break
			}
			pos += 4
			continue
		}
		pos = e.next
		if a.isCIE(&e) {
			continue // CIEs are read when an FDE names them
		}
		at := a.cieOf(&e)
		i, ok := known[at]
		if !ok {
			cie, err := a.cie(at)
			if err != nil {
				return nil, err
			}
			// Whoever copies them must not copy the same bytes many times over.
			if code += len(cie.Instructions); code > len(a.data) {
				return nil, elfio.FormatErrorf("CIE of "+a.what, cie.Off, "it and others are parts of each other")
			}
			i = len(t.cies)
			known[at] = i
			t.cies = append(t.cies, a.usual(cie, at))
		}
		if _, err := a.fde(e, t.cies[i].cie); err != nil {
			return nil, err
		}
		last = i
		t.entries = append(t.entries, place{e.pos, i})
	}
	return t, nil
}

// usualFDEs reads the FDEs of one CIE that are as compilers of 64-bit little-endian machines make nearly all of them:
// with a 32-bit length, and with addresses relative to themselves in 4 bytes.
type usualFDEs struct {
	cie  *CIE
	at   uint64 // of the CIE, in the data
	some bool   // there can be such
	lsda bool
}

func (a *area) usual(c *CIE, at uint64) usualFDEs {
	const usual = encPCRel | encSdata4
	if !a.c.Little64() || c.fdeEnc != usual || c.lsdaEnc != encOmit && c.lsdaEnc != usual ||
		c.Augmentation == "" || c.Augmentation[0] != 'z' {
		return usualFDEs{cie: c, at: at}
	}
	return usualFDEs{c, at, true, c.lsdaEnc != encOmit}
}

// read reads the entry at pos; ok is false for every other one, malformed ones included.
func (u *usualFDEs) read(a *area, pos uint64) (d FDE, next uint64, ok bool) {
	b := a.data[pos:]
	if !u.some || len(b) < 17 {
		return d, 0, false
	}
	le := binary.LittleEndian
	// length, distance to the CIE, first address, size, length of the augmentation data
	length, id, pc, size, n := le.Uint32(b), le.Uint32(b[4:]), le.Uint32(b[8:]), le.Uint32(b[12:]), uint32(b[16])
	if length < 13 || uint64(length) > uint64(len(b)-4) || length >= 0xfffffff0 || pos+4-uint64(id) != u.at || id == 0 ||
		n >= 0x80 || n > length-13 {
		return d, 0, false
	}
	d.Off, d.Addr, d.CIE = a.off+pos, a.addr+pos, u.cie
	if pc != 0 {
		d.PC = d.Addr + 8 + uint64(int64(int32(pc)))
	}
	d.Size = uint64(int64(int32(size)))
	if u.lsda && n > 0 {
		if n < 4 {
			return d, 0, false
		}
		if v := le.Uint32(b[17:]); v != 0 {
			d.LSDA = d.Addr + 17 + uint64(int64(int32(v)))
		}
	}
	next = pos + 4 + uint64(length)
	d.Instructions = a.data[pos+17+uint64(n) : next : next]
	return d, next, true
}

// HasPersonality reports whether any entry names a personality routine: unwinders do something in functions of the image, other
// than to pass through.
func (t *Table) HasPersonality() bool {
	return slices.ContainsFunc(t.cies, func(u usualFDEs) bool { return u.cie.personality != 0 })
}
