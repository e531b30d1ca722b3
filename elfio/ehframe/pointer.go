package ehframe

import "github.com/fentry-dev/fentry/elfio/internal/raw"

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

// pointerReader takes DWARF values off the front of b, which lies at address addr. After an overrun bad
// is set and every value is 0.
type pointerReader struct {
	c    raw.Codec
	b    []byte
	addr uint64
	bad  bool
}

func (d *pointerReader) take(n uint64) []byte {
	b, ok := raw.Slice(d.b, 0, n)
	if !ok || d.bad {
		d.bad, d.b = true, nil
		return nil
	}
	d.b = d.b[n:]
	d.addr += n
	return b
}

func (d *pointerReader) skip(n uint64) { d.take(n) }

func (d *pointerReader) u8() byte {
	if b := d.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (d *pointerReader) uleb() uint64 { return d.leb(false) }
func (d *pointerReader) sleb() int64  { return int64(d.leb(true)) }

func (d *pointerReader) leb(signed bool) (v uint64) {
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
func (d *pointerReader) pointer(enc byte) uint64 {
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
	o := d.c.Order
	var v uint64
	switch enc & 0x0f {
	case encAbsPtr:
		if b := d.take(d.c.WordSize()); b != nil {
			v = d.c.Word(b)
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
	if !d.c.Is64 {
		v = uint64(uint32(v))
	}
	return v // an indirect one (0x80) gives the address of the pointer
}

func appendULEB(b []byte, v uint64) []byte {
	for v >= 0x80 {
		b = append(b, byte(v)|0x80)
		v >>= 7
	}
	return append(b, byte(v))
}

func appendSLEB(b []byte, v int64) []byte {
	for v < -64 || v > 63 {
		b = append(b, byte(v)|0x80)
		v >>= 7
	}
	return append(b, byte(v)&0x7f)
}
