package ehframe

import (
	"encoding/binary"
	"fmt"
	"iter"
	"slices"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/elfio/internal/raw"
)

// Copies of unwind data.
//
// An image's entries cannot be changed where they are: there is no room for more instructions, and what is loaded must
// stay in its place. So they are encoded once more, for another address, with the CIEs they need in front of the first
// entry that uses them. An entry's addresses are kept in the encoding of the original, so a copy says of every function
// what the original does; readers of either need not know. The same rows go to .debug_frame, because debuggers read
// .eh_frame by section and would find the originals. Nearly all entries have one form, which is written without looking
// at encodings byte by byte (usual).

// Moved is unwind data copied to another address.
type Moved struct {
	EhFrame    []byte  // valid only at the address it was made for; no terminator
	Entries    []Entry // search table rows, in the order of the FDEs
	DebugFrame []byte  // the same rows for .debug_frame, with absolute addresses and without language-specific data
}

// Rules changes call frame instructions while they are copied. The zero value changes nothing.
type Rules struct {
	// CIE returns instructions to add to a CIE: they follow its own, so they apply at the start of every function
	// that shares it. If it returns none, the CIE and its FDEs are not changed.
	CIE func(*CIE) []byte
	// FDE, if not nil, returns what replaces the instructions of an FDE whose CIE has been added to. If it returns
	// false, the instructions stay and the FDE refers to a copy of the unchanged CIE.
	FDE func(*FDE) ([]byte, bool)
}

// movedSize is more than a copied FDE has besides its instructions.
const movedSize = 48

// CopySize returns an upper bound on the bytes that [Moved.Append] adds for the table to EhFrame and to DebugFrame
// each, not counting what rules add.
func (t *Table) CopySize() int {
	end := uint64(0)
	if n := len(t.entries); n > 0 {
		if e, err := t.area.entry(t.entries[n-1].pos); err == nil {
			end = e.next
		}
	}
	return int(end) + movedSize*len(t.entries)
}

// Append appends copies of FDEs to out.EhFrame, which will be at address at, and for debuggers to out.DebugFrame,
// which will be at offset debugAt of .debug_frame. Both slices must have lengths that are multiples of 8. The copies
// use the pointer encodings of the originals. f is the file whose byte order and class they have.
//
// It returns an error for an encoding that cannot be written at the new address. After an error the contents of out
// are undefined.
func (out *Moved) Append(f *elfio.File, at, debugAt uint64, fdes iter.Seq[*FDE], rules Rules) error {
	c := raw.CodecOf(f.Raw())
	m := &mover{c: c, little: c.Little64(), at: at - uint64(len(out.EhFrame)),
		debugAt: debugAt - uint64(len(out.DebugFrame)), out: out, cies: map[*CIE]*movedCIEs{}}
	var cie *CIE
	var copies *movedCIEs
	for d := range fdes {
		if d.CIE != cie {
			cie, copies = d.CIE, m.cies[d.CIE]
		}
		if copies == nil {
			copies = &movedCIEs{}
			if rules.CIE != nil {
				copies.extra = rules.CIE(d.CIE)
			}
			m.cies[d.CIE] = copies
		}
		which, code := 0, d.Instructions
		if len(copies.extra) > 0 {
			which = 1
			if rules.FDE != nil {
				if b, ok := rules.FDE(d); ok {
					code = b
				} else {
					which = 0
				}
			}
		}
		at := &copies.at[which]
		if !at.done {
			var err error
			if *at, err = m.cie(d.CIE, copies.extra[:len(copies.extra)*which]); err != nil {
				return elfio.FormatErrorf("CIE of .eh_frame", d.CIE.Off, "%v", err)
			}
		}
		if m.usual(d, *at, code) {
			continue
		}
		if err := m.fde(d, *at, code); err != nil {
			return elfio.FormatErrorf("FDE of .eh_frame", d.Off, "%v", err)
		}
	}
	return nil
}

type mover struct {
	c       raw.Codec
	at      uint64
	debugAt uint64
	out     *Moved
	cies    map[*CIE]*movedCIEs
	little  bool // 64-bit and little-endian
}

// movedCIEs are the copies of a CIE: as it was, and with what is added.
type movedCIEs struct {
	extra []byte
	at    [2]movedCIE
}

// movedCIE is where the copies of a CIE are.
type movedCIE struct {
	done      bool
	eh, debug int
}

func (m *mover) cie(c *CIE, extra []byte) (movedCIE, error) {
	p := movedCIE{true, len(m.out.EhFrame), len(m.out.DebugFrame)}
	o := m.c.Order
	b := m.out.EhFrame
	b = o.AppendUint32(o.AppendUint32(b, 0), 0) // length later; id of a CIE
	b = append(b, 1)                            // version
	b = append(append(b, c.Augmentation...), 0)
	b = appendSLEB(appendULEB(b, c.CodeAlign), c.DataAlign)
	if c.RetReg > 0xff {
		return p, fmt.Errorf("return address column %d", c.RetReg)
	}
	b = append(b, byte(c.RetReg))
	switch {
	case c.Augmentation == "":
	case c.Augmentation[0] != 'z':
		return p, fmt.Errorf("augmentation %q", c.Augmentation)
	default:
		size := len(b)
		b = append(b, 0) // how many follow
		for _, ch := range c.Augmentation[1:] {
			var err error
			switch ch {
			case 'R':
				b = append(b, c.fdeEnc)
			case 'L':
				b = append(b, c.lsdaEnc)
			case 'P':
				b = append(b, c.persEnc)
				b, err = m.pointer(b, c.persEnc, c.personality)
			case 'S', 'B', 'G':
			default:
				err = fmt.Errorf("augmentation %q", c.Augmentation)
			}
			if err != nil {
				return p, err
			}
		}
		n := len(b) - size - 1
		if n >= 0x80 { // letters are there once, and take a few bytes each
			return p, fmt.Errorf("augmentation %q of %d bytes", c.Augmentation, n)
		}
		b[size] = byte(n)
	}
	b = append(append(b, c.Instructions...), extra...)
	m.out.EhFrame = m.finish(b, p.eh, 8)

	d := m.out.DebugFrame
	d = o.AppendUint32(o.AppendUint32(d, 0), ^uint32(0))
	d = append(d, 1, 0) // version, no augmentation
	d = appendSLEB(appendULEB(d, c.CodeAlign), c.DataAlign)
	d = append(d, byte(c.RetReg))
	d = append(append(d, c.Instructions...), extra...)
	m.out.DebugFrame = m.finish(d, p.debug, 8)
	return p, nil
}

// usual is fde for entries as compilers of 64-bit little-endian machines make nearly all of them; false: it is another
// one.
func (m *mover) usual(d *FDE, c movedCIE, code []byte) bool {
	const plain = encPCRel | encSdata4
	k := d.CIE
	if !m.little || k.fdeEnc != plain || k.lsdaEnc != encOmit && k.lsdaEnc != plain || k.Augmentation == "" ||
		k.Augmentation[0] != 'z' {
		return false
	}
	le := binary.LittleEndian
	b := m.out.EhFrame
	start := len(b)
	// relative is an address as it is stored at offset o of the entry; zero is no address.
	relative := func(v uint64, o int) (uint32, bool) {
		if v == 0 {
			return 0, true
		}
		v -= m.at + uint64(start+o)
		return uint32(v), int64(v) == int64(int32(v))
	}
	n := 17 // length, distance to the CIE, first address, size, length of what follows
	var lsda uint32
	pc, ok := relative(d.PC, 8)
	if k.lsdaEnc != encOmit {
		var reaches bool
		lsda, reaches = relative(d.LSDA, n)
		ok = ok && reaches
		n += 4
	}
	size := uint32(d.Size)
	if !ok || int64(d.Size) != int64(int32(size)) {
		return false
	}
	end := (start + n + len(code) + 7) &^ 7
	b = slices.Grow(b, end-start)[:end]
	e := b[start:]
	le.PutUint32(e, uint32(end-start-4))
	le.PutUint32(e[4:], uint32(start+4-c.eh))
	le.PutUint32(e[8:], pc)
	le.PutUint32(e[12:], size)
	e[16] = byte(n - 17)
	if n > 17 {
		le.PutUint32(e[17:], lsda)
	}
	clear(e[n+copy(e[n:], code):])
	m.out.EhFrame = b
	m.out.Entries = append(m.out.Entries, Entry{PC: d.PC, FDE: m.at + uint64(start)})

	b = m.out.DebugFrame
	start = len(b)
	end = (start + 24 + len(code) + 7) &^ 7
	b = slices.Grow(b, end-start)[:end]
	e = b[start:]
	le.PutUint32(e, uint32(end-start-4))
	le.PutUint32(e[4:], uint32(m.debugAt)+uint32(c.debug))
	le.PutUint64(e[8:], d.PC)
	le.PutUint64(e[16:], d.Size)
	clear(e[24+copy(e[24:], code):])
	m.out.DebugFrame = b
	return true
}

func (m *mover) fde(d *FDE, c movedCIE, code []byte) error {
	o := m.c.Order
	start := len(m.out.EhFrame)
	b := o.AppendUint32(m.out.EhFrame, 0)
	b = o.AppendUint32(b, uint32(start+4-c.eh))
	b, err := m.pointer(b, d.CIE.fdeEnc, d.PC)
	if err != nil {
		return err
	}
	if b, err = m.pointer(b, d.CIE.fdeEnc&0x0f, d.Size); err != nil {
		return err
	}
	if a := d.CIE.Augmentation; a != "" && a[0] == 'z' {
		size := len(b)
		b = append(b, 0)
		if d.CIE.lsdaEnc != encOmit {
			if b, err = m.pointer(b, d.CIE.lsdaEnc, d.LSDA); err != nil {
				return err
			}
		}
		b[size] = byte(len(b) - size - 1)
	}
	m.out.EhFrame = m.finish(append(b, code...), start, 8)
	m.out.Entries = append(m.out.Entries, Entry{PC: d.PC, FDE: m.at + uint64(start)})

	start = len(m.out.DebugFrame)
	b = o.AppendUint32(m.out.DebugFrame, 0)
	b = o.AppendUint32(b, uint32(m.debugAt)+uint32(c.debug))
	b = m.word(b, d.PC)
	b = m.word(b, d.Size)
	m.out.DebugFrame = m.finish(append(b, code...), start, 8)
	return nil
}

// finish pads the entry at start with DW_CFA_nop and sets its length.
func (m *mover) finish(b []byte, start, align int) []byte {
	for len(b)%align != 0 {
		b = append(b, 0)
	}
	m.c.Order.PutUint32(b[start:], uint32(len(b)-start-4))
	return b
}

// pointer appends an encoded pointer to unwind data that will be at m.at. Zero is no pointer in any encoding.
func (m *mover) pointer(b []byte, enc byte, v uint64) ([]byte, error) {
	if enc == encOmit {
		return b, nil
	}
	switch enc & 0x70 {
	case 0:
	case encPCRel:
		if v != 0 {
			v -= m.at + uint64(len(b))
		}
	default:
		return nil, fmt.Errorf("pointer encoding %#x", enc)
	}
	o := m.c.Order
	fits := true
	switch enc & 0x0f {
	case encAbsPtr:
		return m.word(b, v), nil
	case encUdata8, encSdata8:
		return o.AppendUint64(b, v), nil
	case encUdata4:
		fits = v == uint64(uint32(v)) || !m.c.Is64
		b = o.AppendUint32(b, uint32(v))
	case encSdata4:
		fits = int64(v) == int64(int32(v)) || !m.c.Is64
		b = o.AppendUint32(b, uint32(v))
	default:
		return nil, fmt.Errorf("pointer encoding %#x", enc)
	}
	if !fits {
		return nil, fmt.Errorf("pointer encoding %#x cannot reach its target from %#x", enc, m.at)
	}
	return b, nil
}

// word appends an address.
func (m *mover) word(b []byte, v uint64) []byte {
	n := m.c.WordSize()
	b = append(b, make([]byte, n)...)
	m.c.PutWord(b[uint64(len(b))-n:], v)
	return b
}

// Hide returns the edit of the file that makes an FDE cover no code, so that only a copy of it is found. It returns
// an error for pointer encodings and lengths that no compiler writes.
func Hide(f *elfio.File, d *FDE) (elfio.RawEdit, error) {
	b, ok := raw.Slice(f.Raw(), d.Off, 4)
	e := d.CIE.fdeEnc & 0x0f
	if !ok || raw.CodecOf(f.Raw()).Order.Uint32(b) == 0xffffffff || e != encSdata4 && e != encUdata4 {
		return elfio.RawEdit{}, elfio.FormatErrorf("FDE of .eh_frame", d.Off, "pointer encoding %#x or its length",
			d.CIE.fdeEnc)
	}
	return elfio.RawEdit{Off: d.Off + 12, New: make([]byte, 4)}, nil // behind length, CIE pointer and first address
}
