package ehframe

import (
	"bytes"
	"fmt"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/elfio/internal/raw"
)

// FDE is a frame description entry of .eh_frame or .debug_frame: a range of code, usually a function or the split-off
// part of one, with its unwind rows (LSB Core, "Exception Frames").
type FDE struct {
	PC   uint64 // first address
	Size uint64 // bytes of code
	Off  uint64 // file offset of the entry (its length field)
	Addr uint64 // address of the entry
	LSDA uint64 // address of the language-specific data, 0 if none
	CIE  *CIE
	// Instructions are the call frame instructions after those of the CIE, a sub-slice of Raw.
	Instructions []byte
}

// String returns the range of the entry.
func (e FDE) String() string { return fmt.Sprintf("FDE %#x+%#x", e.PC, e.Size) }

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

// Personality returns the address of the personality routine, or of the word that holds its address if the encoding
// says so, or 0 if there is none.
func (c *CIE) Personality() uint64 { return c.personality }

// entry is the framing of a CIE or FDE.
type entry struct {
	pos, idPos, next uint64
	id               uint32
	body             []byte // after the id; nil for the terminator
	bodyPos          uint64
}

func (a *area) entry(pos uint64) (e entry, err error) {
	bad := func(format string, args ...any) (entry, error) {
		return e, elfio.FormatErrorf("entry of "+a.what, a.off+pos, format, args...)
	}
	b, ok := raw.Slice(a.data, pos, 4)
	if !ok {
		return bad("outside the section")
	}
	e.pos = pos
	length, start := uint64(a.c.Order.Uint32(b)), pos+4
	if length == 0 {
		return e, nil
	}
	if length == 0xffffffff {
		if a.debug {
			return bad("64-bit format")
		}
		if b, ok = raw.Slice(a.data, start, 8); !ok {
			return bad("ends inside its length")
		}
		length, start = a.c.Order.Uint64(b), start+8
	}
	body, ok := raw.Slice(a.data, start, length)
	if !ok || length < 4 {
		return bad("%#x bytes do not fit the section of %#x bytes", length, len(a.data))
	}
	e.idPos, e.id = start, a.c.Order.Uint32(body)
	e.next, e.body, e.bodyPos = start+length, body[4:], start+4
	return e, nil
}

// maxAugmentation bounds the augmentation string, of which a handful of letters exist.
const maxAugmentation = 32

func (a *area) cie(pos uint64) (*CIE, error) {
	bad := func(format string, args ...any) (*CIE, error) {
		return nil, elfio.FormatErrorf("CIE of "+a.what, a.off+pos, format, args...)
	}
	e, err := a.entry(pos)
	if err != nil {
		return nil, err
	}
	if e.body == nil || !a.isCIE(&e) {
		return bad("an FDE refers to it, but it is none")
	}
	d := pointerReader{c: a.c, b: e.body, addr: a.addr + e.bodyPos}
	c := &CIE{Off: a.off + pos, lsdaEnc: encOmit}
	version := d.u8()
	if n := bytes.IndexByte(d.b[:min(len(d.b), maxAugmentation)], 0); n >= 0 {
		c.Augmentation = string(d.b[:n])
	} else {
		return bad("augmentation string does not end")
	}
	d.skip(uint64(len(c.Augmentation)) + 1)
	if c.Augmentation == "eh" { // gcc 2: a pointer follows
		d.skip(a.c.WordSize())
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
		data, ok := raw.Slice(d.b, 0, n)
		if !ok || d.bad {
			return bad("augmentation data of %#x bytes does not fit", n)
		}
		g := pointerReader{c: a.c, b: data, addr: d.addr}
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

func (a *area) fde(e entry, c *CIE) (FDE, error) {
	d := pointerReader{c: a.c, b: e.body, addr: a.addr + e.bodyPos}
	out := FDE{Off: a.off + e.pos, Addr: a.addr + e.pos, CIE: c}
	out.PC = d.pointer(c.fdeEnc)
	out.Size = d.pointer(c.fdeEnc & 0x0f)
	if !a.c.Is64 {
		out.Size = uint64(uint32(out.Size))
	}
	if len(c.Augmentation) > 0 && c.Augmentation[0] == 'z' {
		n := d.uleb()
		g := pointerReader{c: a.c, addr: d.addr}
		g.b, _ = raw.Slice(d.b, 0, n)
		if c.lsdaEnc != encOmit && n > 0 {
			out.LSDA = g.pointer(c.lsdaEnc)
			d.bad = d.bad || g.bad
		}
		d.skip(n)
	}
	if d.bad {
		return FDE{}, elfio.FormatErrorf("FDE of "+a.what, out.Off, "ends too early or uses pointer encoding %#x", c.fdeEnc)
	}
	out.Instructions = d.b
	return out, nil
}
