package elfio

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"iter"

	"github.com/fentry-dev/fentry/internal/bigslice"
)

// FDE is a frame description entry of .eh_frame: a range of code, usually a function or the split-off
// part of one, with its unwind rows (LSB Core, "Exception Frames").
type FDE struct {
	PC   uint64 // first address
	Size uint64 // bytes of code
	Off  uint64 // file offset of the entry (its length field)
	Addr uint64 // address of the entry
	LSDA uint64 // address of the language-specific data, 0 for none
	CIE  *CIE
	// Instructions are the call frame instructions after those of the CIE, a sub-slice of Raw.
	Instructions []byte
}

// CIE is a common information entry, shared by FDEs.
type CIE struct {
	Off          uint64 // file offset of the entry
	Augmentation string
	CodeAlign    uint64
	DataAlign    int64
	RetReg       uint64 // column of the return address
	Signal       bool   // 'S': the frame was interrupted, its pc is not a return address
	Instructions []byte

	fdeEnc, lsdaEnc, persEnc byte
	personality              uint64 // address, or that of the word holding it, as persEnc says
}

// Pointer encodings of .eh_frame (LSB Core, "DWARF Exception Header Encoding").
const (
	encAbsPtr  = 0x00
	encULEB    = 0x01
	encUdata2  = 0x02
	encUdata4  = 0x03
	encUdata8  = 0x04
	encSLEB    = 0x09
	encSdata2  = 0x0a
	encSdata4  = 0x0b
	encSdata8  = 0x0c
	encPCRel   = 0x10
	encDataRel = 0x30
	encOmit    = 0xff
)

// FrameTable is the entries of .eh_frame in file order. It keeps little more than their places: At reads them. Several
// goroutines may use it at once.
type FrameTable struct {
	f       *File
	area    frameArea
	entries []frameRef
	cies    []usualFDEs
}

// frameRef is where an FDE is.
type frameRef struct {
	pos uint64 // in the area
	cie int    // index of its CIE
}

// Frames returns the entries of .eh_frame. The section is found by name or, where section headers are stripped, through
// PT_GNU_EH_FRAME. An image without either gives an empty table. Relocatable objects are refused: their ranges are still
// in relocations. What has been read is kept.
func (f *File) Frames() (*FrameTable, error) {
	c := f.frameCache
	c.once.Do(func() { c.table, c.err = f.readFrames() })
	return c.table, c.err
}

// FDEs returns the entries of .eh_frame in a new slice; see [File.Frames], which needs less memory.
func (f *File) FDEs() ([]FDE, error) {
	t, err := f.Frames()
	if err != nil || t.Len() == 0 {
		return nil, err
	}
	return t.all(), nil
}

// Len is the number of entries.
func (t *FrameTable) Len() int { return len(t.entries) }

// At returns entry i.
func (t *FrameTable) At(i int) FDE {
	r := &t.entries[i]
	u := &t.cies[r.cie]
	if d, _, ok := u.read(t.area, r.pos); ok {
		return d
	}
	e, err := t.f.frameEntry(t.area, r.pos)
	if err == nil {
		var d FDE
		if d, err = t.f.fde(t.area, e, u.cie); err == nil {
			return d
		}
	}
	return FDE{} // it has been read before, so the file changes: other checks find that
}

// All yields the entries in order. What it yields is valid until the next one.
func (t *FrameTable) All() iter.Seq[*FDE] {
	return func(yield func(*FDE) bool) {
		var d FDE
		for i := range t.entries {
			if d = t.At(i); !yield(&d) {
				return
			}
		}
	}
}

func (t *FrameTable) all() []FDE {
	out := bigslice.Make[FDE](0, len(t.entries))
	for i := range t.entries {
		out = append(out, t.At(i))
	}
	return out
}

func (f *File) readFrames() (*FrameTable, error) {
	if f.Header.Type == elf.ET_REL {
		return nil, formatErr("ELF header", 16, "relocatable object: its .eh_frame has no addresses yet")
	}
	if i := f.SectionIndex(".eh_frame"); i >= 0 {
		data, err := f.SectionData(i)
		if err != nil || data == nil {
			return &FrameTable{}, err
		}
		return f.frames(frameArea{what: f.sectionLabel(i), data: data, off: f.Sections[i].Off, addr: f.Sections[i].Addr, sized: true})
	}
	for i, p := range f.Progs {
		if p.Type != elf.PT_GNU_EH_FRAME || p.Filesz == 0 {
			continue
		}
		h, err := f.ehFrameHdr(i)
		if err != nil {
			return nil, err
		}
		data, off := f.from(h.ehFrame)
		if data == nil {
			return nil, formatErr(progLabel(i, p), p.Off, ".eh_frame at %#x is outside the loaded segments", h.ehFrame)
		}
		return f.frames(frameArea{what: ".eh_frame", data: data, off: off, addr: h.ehFrame})
	}
	return &FrameTable{}, nil
}

// frameArea is the extent of .eh_frame.
type frameArea struct {
	what      string
	data      []byte
	off, addr uint64
	sized     bool // data ends with the section, not with the segment it is in
}

// frames reads all entries, so that malformed ones are found.
func (f *File) frames(a frameArea) (*FrameTable, error) {
	t := &FrameTable{f: f, area: a}
	if a.sized { // where the section's end is not known, the data reach far behind it
		const small = 20 // bytes of an entry; few are smaller
		t.entries = bigslice.Make[frameRef](0, len(a.data)/small)
	}
	known := map[uint64]int{} // index of the CIE at a place
	code := 0                 // bytes of their instructions
	last := -1
	for pos := uint64(0); uint64(len(a.data))-pos >= 4; {
		if last >= 0 {
			if _, next, ok := t.cies[last].read(a, pos); ok {
				t.entries = append(t.entries, frameRef{pos, last})
				pos = next
				continue
			}
		}
		e, err := f.frameEntry(a, pos)
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
		if e.id == 0 {
			continue // CIEs are read when an FDE names them
		}
		at := e.idPos - uint64(e.id)
		i, ok := known[at]
		if !ok {
			cie, err := f.cie(a, at)
			if err != nil {
				return nil, err
			}
			// Whoever copies them must not copy the same bytes many times over.
			if code += len(cie.Instructions); code > len(a.data) {
				return nil, formatErr("CIE of "+a.what, cie.Off, "it and others are parts of each other")
			}
			i = len(t.cies)
			known[at] = i
			t.cies = append(t.cies, f.usualFDEs(cie, at))
		}
		if _, err := f.fde(a, e, t.cies[i].cie); err != nil {
			return nil, err
		}
		last = i
		t.entries = append(t.entries, frameRef{e.pos, i})
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

func (f *File) usualFDEs(c *CIE, at uint64) usualFDEs {
	const usual = encPCRel | encSdata4
	if !f.c.is64 || f.c.order != byteOrder(binary.LittleEndian) || c.fdeEnc != usual || c.lsdaEnc != encOmit && c.lsdaEnc != usual ||
		c.Augmentation == "" || c.Augmentation[0] != 'z' {
		return usualFDEs{cie: c, at: at}
	}
	return usualFDEs{c, at, true, c.lsdaEnc != encOmit}
}

// read reads the entry at pos; ok is false for every other one, malformed ones included.
func (u *usualFDEs) read(a frameArea, pos uint64) (d FDE, next uint64, ok bool) {
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

// frameEntry is the framing of a CIE or FDE.
type frameEntry struct {
	pos, idPos, next uint64
	id               uint32
	body             []byte // after the id; nil for the terminator
	bodyPos          uint64
}

func (f *File) frameEntry(a frameArea, pos uint64) (e frameEntry, err error) {
	bad := func(format string, args ...any) (frameEntry, error) {
		return e, formatErr("entry of "+a.what, a.off+pos, format, args...)
	}
	b, ok := slice(a.data, pos, 4)
	if !ok {
		return bad("outside the section")
	}
	e.pos = pos
	length, start := uint64(f.c.order.Uint32(b)), pos+4
	if length == 0 {
		return e, nil
	}
	if length == 0xffffffff {
		if b, ok = slice(a.data, start, 8); !ok {
			return bad("ends inside its length")
		}
		length, start = f.c.order.Uint64(b), start+8
	}
	body, ok := slice(a.data, start, length)
	if !ok || length < 4 {
		return bad("%#x bytes do not fit the section of %#x bytes", length, len(a.data))
	}
	e.idPos, e.id = start, f.c.order.Uint32(body)
	e.next, e.body, e.bodyPos = start+length, body[4:], start+4
	return e, nil
}

// maxAugmentation bounds the augmentation string, of which a handful of letters exist.
const maxAugmentation = 32

func (f *File) cie(a frameArea, pos uint64) (*CIE, error) {
	bad := func(format string, args ...any) (*CIE, error) {
		return nil, formatErr("CIE of "+a.what, a.off+pos, format, args...)
	}
	e, err := f.frameEntry(a, pos)
	if err != nil {
		return nil, err
	}
	if e.body == nil || e.id != 0 {
		return bad("an FDE refers to it, but it is none")
	}
	d := frameReader{f: f, b: e.body, addr: a.addr + e.bodyPos}
	c := &CIE{Off: a.off + pos, lsdaEnc: encOmit}
	version := d.u8()
	if n := bytes.IndexByte(d.b[:min(len(d.b), maxAugmentation)], 0); n >= 0 {
		c.Augmentation = string(d.b[:n])
	} else {
		return bad("augmentation string does not end")
	}
	d.skip(uint64(len(c.Augmentation)) + 1)
	if c.Augmentation == "eh" { // gcc 2: a pointer follows
		d.skip(f.c.wordSize())
	}
	switch version {
	case 1, 3:
	case 4:
		d.skip(2) // address and segment size
	default:
		return bad("unknown version %d", version)
	}
	c.CodeAlign, c.DataAlign = d.uleb(), d.sleb()
	if version == 1 {
		c.RetReg = uint64(d.u8())
	} else {
		c.RetReg = d.uleb()
	}
	if len(c.Augmentation) > 0 && c.Augmentation[0] == 'z' {
		n := d.uleb()
		data, ok := slice(d.b, 0, n)
		if !ok || d.bad {
			return bad("augmentation data of %#x bytes does not fit", n)
		}
		g := frameReader{f: f, b: data, addr: d.addr}
		d.skip(n)
	letters:
		for _, ch := range c.Augmentation[1:] {
			switch ch {
			case 'R':
				c.fdeEnc = g.u8()
			case 'L':
				c.lsdaEnc = g.u8()
			case 'P':
				c.persEnc = g.u8()
				c.personality = g.pointer(c.persEnc)
			case 'S':
				c.Signal = true
			case 'B', 'G': // arm64: signed with the B key, tagged stack
			default:
				break letters // the length makes unknown ones harmless
			}
		}
		if g.bad {
			return bad("augmentation %q does not fit its data", c.Augmentation)
		}
	} else if c.Augmentation != "" && c.Augmentation != "eh" {
		return bad("unknown augmentation %q", c.Augmentation)
	}
	if d.bad {
		return bad("ends too early")
	}
	c.Instructions = d.b
	return c, nil
}

func (f *File) fde(a frameArea, e frameEntry, c *CIE) (FDE, error) {
	d := frameReader{f: f, b: e.body, addr: a.addr + e.bodyPos}
	out := FDE{Off: a.off + e.pos, Addr: a.addr + e.pos, CIE: c}
	out.PC = d.pointer(c.fdeEnc)
	out.Size = d.pointer(c.fdeEnc & 0x0f)
	if !f.c.is64 {
		out.Size = uint64(uint32(out.Size))
	}
	if len(c.Augmentation) > 0 && c.Augmentation[0] == 'z' {
		n := d.uleb()
		g := frameReader{f: f, addr: d.addr}
		g.b, _ = slice(d.b, 0, n)
		if c.lsdaEnc != encOmit && n > 0 {
			out.LSDA = g.pointer(c.lsdaEnc)
			d.bad = d.bad || g.bad
		}
		d.skip(n)
	}
	if d.bad {
		return FDE{}, formatErr("FDE of "+a.what, out.Off, "ends too early or uses pointer encoding %#x", c.fdeEnc)
	}
	out.Instructions = d.b
	return out, nil
}

// frameReader takes DWARF values off the front of b, which lies at address addr. After an overrun bad
// is set and every value is 0.
type frameReader struct {
	f    *File
	b    []byte
	addr uint64
	bad  bool
}

func (d *frameReader) take(n uint64) []byte {
	b, ok := slice(d.b, 0, n)
	if !ok || d.bad {
		d.bad, d.b = true, nil
		return nil
	}
	d.b = d.b[n:]
	d.addr += n
	return b
}

func (d *frameReader) skip(n uint64) { d.take(n) }

func (d *frameReader) u8() byte {
	if b := d.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (d *frameReader) uleb() uint64 { return d.leb(false) }
func (d *frameReader) sleb() int64  { return int64(d.leb(true)) }

func (d *frameReader) leb(signed bool) (v uint64) {
	for shift := uint(0); ; shift += 7 {
		b := d.u8()
		if d.bad {
			return 0
		}
		if shift < 64 {
			v |= uint64(b&0x7f) << shift
		}
		if b&0x80 == 0 {
			if signed && b&0x40 != 0 && shift+7 < 64 {
				v |= ^uint64(0) << (shift + 7)
			}
			return v
		}
	}
}

// pointer reads an encoded pointer. A zero value is no pointer whatever it is relative to.
func (d *frameReader) pointer(enc byte) uint64 {
	if enc == encOmit {
		return 0
	}
	base := uint64(0)
	switch enc & 0x70 {
	case 0:
	case encPCRel:
		base = d.addr
	default:
		d.bad = true
		return 0
	}
	o := d.f.c.order
	var v uint64
	switch enc & 0x0f {
	case encAbsPtr:
		if b := d.take(d.f.c.wordSize()); b != nil {
			v = d.f.c.word(b)
		}
	case encULEB:
		v = d.uleb()
	case encSLEB:
		v = uint64(d.sleb())
	case encUdata2:
		if b := d.take(2); b != nil {
			v = uint64(o.Uint16(b))
		}
	case encSdata2:
		if b := d.take(2); b != nil {
			v = uint64(int64(int16(o.Uint16(b))))
		}
	case encUdata4:
		if b := d.take(4); b != nil {
			v = uint64(o.Uint32(b))
		}
	case encSdata4:
		if b := d.take(4); b != nil {
			v = uint64(int64(int32(o.Uint32(b))))
		}
	case encUdata8, encSdata8:
		if b := d.take(8); b != nil {
			v = o.Uint64(b)
		}
	default:
		d.bad = true
	}
	if v == 0 || d.bad {
		return 0
	}
	v += base
	if !d.f.c.is64 {
		v = uint64(uint32(v))
	}
	return v // an indirect one (0x80) gives the address of the pointer
}

// ehFrameHdr is a decoded .eh_frame_hdr.
type ehFrameHdr struct {
	off, addr uint64
	enc       [3]byte // eh_frame_ptr, fde_count, table
	ehFrame   uint64
	count     uint64
	table     []byte // 8 bytes an entry; only for the table encoding every linker writes
}

// ehFrameHdr decodes the header that program header i points to.
func (f *File) ehFrameHdr(i int) (h ehFrameHdr, err error) {
	p := f.Progs[i]
	b, err := f.progData(i)
	if err != nil {
		return h, err
	}
	bad := func(format string, args ...any) (ehFrameHdr, error) {
		return h, formatErr(progLabel(i, p), p.Off, format, args...)
	}
	if len(b) < 4 || b[0] != 1 {
		return bad("no version 1 .eh_frame_hdr of at least 4 bytes")
	}
	h.off, h.addr = p.Off, p.Vaddr
	copy(h.enc[:], b[1:4])
	d := frameReader{f: f, b: b[4:], addr: p.Vaddr + 4}
	h.ehFrame = d.pointer(h.enc[0])
	if h.enc[1] == encOmit || h.enc[2] == encOmit {
		if d.bad {
			return bad("ends too early or uses pointer encoding %#x", h.enc[0])
		}
		return h, nil // no search table
	}
	h.count = d.pointer(h.enc[1])
	if d.bad {
		return bad("ends too early or uses pointer encodings %#x and %#x", h.enc[0], h.enc[1])
	}
	if h.enc[2] != encDataRel|encSdata4 {
		return h, nil
	}
	if h.count > uint64(len(d.b))/8 {
		return bad("%d entries do not fit its %d bytes", h.count, len(b))
	}
	h.table = d.b[:h.count*8]
	return h, nil
}

// String gives the range of the entry.
func (e FDE) String() string { return fmt.Sprintf("FDE %#x+%#x", e.PC, e.Size) }
