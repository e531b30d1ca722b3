package symbol

import (
	"debug/dwarf"
	"errors"
	"fmt"

	"github.com/fentry-dev/fentry/elfio"
)

// unitOffsets returns where the first entry of each unit of .debug_info is (DWARF 5, 7.5.1). It reads headers only, so
// that finding the units does not cost reading all entries.
func unitOffsets(f *elfio.File, info []byte) ([]dwarf.Offset, error) {
	var out []dwarf.Offset
	o := f.Order()
	for at := uint64(0); at < uint64(len(info)); {
		b := cursor{b: info[at:], u16: o.Uint16, u32: o.Uint32, u64: o.Uint64}
		length, dwarf64 := b.length()
		start := uint64(b.off)
		version := b.uint16()
		skip := uint64(4) // debug_abbrev_offset
		if dwarf64 {
			skip = 8
		}
		if version >= 5 {
			switch typ := b.uint8(); typ {
			case 1, 3: // DW_UT_compile, DW_UT_partial
				b.skip(1 + skip)
			case 4, 5: // DW_UT_skeleton, DW_UT_split_compile: with an id
				b.skip(1 + skip + 8)
			default: // type units have no code
				b.skip(1 + skip)
				version = 0
			}
		} else {
			b.skip(skip + 1)
		}
		if b.err != nil || length > uint64(len(info))-at-start {
			return nil, fmt.Errorf("unit at %#x of .debug_info: cut off", at)
		}
		if version >= 2 {
			out = append(out, dwarf.Offset(at+uint64(b.off)))
		}
		at += start + length
	}
	return out, nil
}

// checkLineHeader refuses line tables whose header announces more directories or files than its bytes can hold: memory
// would be taken for them before they are read (DWARF 5, 6.2.4).
func checkLineHeader(line []byte, at uint64, d *dwarf.Data) error {
	if at >= uint64(len(line)) {
		return errors.New("outside the section")
	}
	o := d.Reader().ByteOrder()
	b := cursor{b: line[at:], u16: o.Uint16, u32: o.Uint32, u64: o.Uint64}
	_, dwarf64 := b.length()
	if b.uint16() != 5 {
		return b.err // older tables are lists with an end
	}
	b.skip(2)
	if dwarf64 {
		b.skip(8)
	} else {
		b.skip(4)
	}
	b.skip(5)
	if base := b.uint8(); base > 0 {
		b.skip(uint64(base) - 1)
	}
	for _, what := range []string{"directories", "files"} {
		forms := make([]uint64, 0, 8)
		for n := b.uint8(); n > 0 && b.err == nil; n-- {
			b.uleb()
			forms = append(forms, b.uleb())
		}
		count := b.uleb()
		if b.err == nil && (count > uint64(len(b.b)-b.off) || count > 0 && len(forms) == 0) {
			return fmt.Errorf("%d %s in %d bytes", count, what, len(b.b)-b.off)
		}
		for ; count > 0 && b.err == nil; count-- {
			for _, form := range forms {
				b.form(form, dwarf64)
			}
		}
	}
	return b.err
}

// cursor reads numbers; after the first one that is not there, err is set and all are zero.
type cursor struct {
	b   []byte
	off int
	err error
	u16 func([]byte) uint16
	u32 func([]byte) uint32
	u64 func([]byte) uint64
}

var errCut = errors.New("cut off")

func (c *cursor) take(n int) []byte {
	if c.err != nil || len(c.b)-c.off < n {
		c.err = errCut
		return make([]byte, n)
	}
	c.off += n
	return c.b[c.off-n : c.off]
}

func (c *cursor) skip(n uint64) {
	if c.err != nil || uint64(len(c.b)-c.off) < n {
		c.err = errCut
		return
	}
	c.off += int(n)
}

func (c *cursor) uint8() uint8   { return c.take(1)[0] }
func (c *cursor) uint16() uint16 { return c.u16(c.take(2)) }

// length reads a unit's length: 32 bits, or ffffffff and 64 bits.
func (c *cursor) length() (n uint64, dwarf64 bool) {
	if n = uint64(c.u32(c.take(4))); n == 0xffffffff {
		return c.u64(c.take(8)), true
	}
	return n, false
}

func (c *cursor) uleb() (v uint64) {
	for shift := uint(0); ; shift += 7 {
		b := c.uint8()
		if shift < 64 {
			v |= uint64(b&0x7f) << shift
		}
		if b&0x80 == 0 || c.err != nil {
			return v
		}
	}
}

// form skips a value of one of the forms line tables use (DWARF 5, 7.5.6). Others end the check.
func (c *cursor) form(form uint64, dwarf64 bool) {
	word := uint64(4)
	if dwarf64 {
		word = 8
	}
	switch form {
	case 0x08: // DW_FORM_string
		for c.uint8() != 0 {
		}
	case 0x0e, 0x1f, 0x17: // DW_FORM_strp, line_strp, sec_offset
		c.skip(word)
	case 0x0f: // DW_FORM_udata
		c.uleb()
	case 0x0b: // DW_FORM_data1
		c.skip(1)
	case 0x05: // data2
		c.skip(2)
	case 0x06: // data4
		c.skip(4)
	case 0x07: // data8
		c.skip(8)
	case 0x1e: // data16
		c.skip(16)
	case 0x09: // DW_FORM_block
		c.skip(c.uleb())
	case 0x0a: // block1
		c.skip(uint64(c.uint8()))
	case 0x1a, 0x25, 0x26, 0x27, 0x28: // DW_FORM_strx and its sizes
		switch form {
		case 0x1a:
			c.uleb()
		case 0x27:
			c.skip(3)
		case 0x28:
			c.skip(4)
		default:
			c.skip(form - 0x24)
		}
	default:
		c.err = fmt.Errorf("unknown form %#x", form)
	}
}
