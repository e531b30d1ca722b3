package arguments

import (
	"encoding/binary"
	"math/bits"
	"strconv"
	"unicode/utf8"

	"github.com/fentry-dev/fentry/internal/safetext"
)

// AppendQuoted appends text as C has it, between quotes: what is not safe to print is escaped.
func AppendQuoted(b, text []byte, quote byte) []byte {
	b = append(b, quote)
	for len(text) > 0 {
		r, n := utf8.DecodeRune(text)
		c := text[0]
		switch {
		case c == quote || c == '\\':
			b = append(b, '\\', c)
		case c == '\n':
			b = append(b, `\n`...)
		case c == '\t':
			b = append(b, `\t`...)
		case c == '\r':
			b = append(b, `\r`...)
		case c == 0:
			b = append(b, `\0`...)
		case n > 1 && safetext.Safe(r):
			b = append(b, text[:n]...)
		case n == 1 && c >= ' ' && c < 0x7f:
			b = append(b, c)
		default:
			for _, c := range text[:n] {
				b = append(b, '\\', 'x', "0123456789abcdef"[c>>4], "0123456789abcdef"[c&15])
			}
		}
		text = text[n:]
	}
	return append(b, quote)
}

// enum appends a value of an enumeration by its name, or by those of its bits: A|B|0x10.
func (s *shower) enum(t *Type, v int64) {
	for _, e := range t.Enum {
		if e.Value == v {
			s.name(e.Name)
			return
		}
	}
	if v == 0 || !isFlags(t) {
		if t.Unsigned {
			s.str(strconv.FormatUint(uint64(v), 10))
		} else {
			s.str(strconv.FormatInt(v, 10))
		}
		return
	}
	mask := uint64(1)<<min(63, 8*t.Size) - 1
	if t.Size >= 8 {
		mask = 1<<64 - 1
	}
	rest, text := uint64(v)&mask, ""
	for i := len(t.Enum) - 1; i >= 0; i-- { // unions of bits mostly come behind these
		e := uint64(t.Enum[i].Value) & mask
		if e != 0 && rest&e == e {
			if text != "" {
				text = "|" + text
			}
			text = t.Enum[i].Name + text
			rest &^= e
		}
	}
	if rest != 0 {
		if text != "" {
			text += "|"
		}
		text += hex(rest)
	}
	s.name(text)
}

// isFlags reports whether an enumeration is one of bits: all values but 0 are single bits, or unions of them.
func isFlags(t *Type) bool {
	var single uint64
	several := 0
	for _, e := range t.Enum {
		if bits.OnesCount64(uint64(e.Value)) == 1 {
			single |= uint64(e.Value)
			several++
		}
	}
	for _, e := range t.Enum {
		if uint64(e.Value)&^single != 0 {
			return false
		}
	}
	return several > 1
}

// pointer appends an address, or the text or value that is there.
func (s *shower) pointer(t *Type, b []byte, depth int) {
	address, ok := unsigned(b, t.Size)
	switch {
	case !ok:
		s.unknown()
	case address == 0:
		s.null()
	case depth > 0: // nobody has looked there
		s.name(hex(address))
	case t.Kind == String:
		r := s.m.at(address)
		if r == nil || len(r.Bytes) == 0 && (r.Unreadable || r.Cut) {
			s.unreadable(address)
			return
		}
		s.text(r.Bytes, r.Cut || r.Unreadable)
	case t.Elem != nil && (t.Elem.Kind == Span || t.Elem.Kind == Text):
		s.spanAt(t.Elem, address)
	case t.Elem != nil:
		s.at(t.Elem, address)
	default:
		s.name(hex(address))
	}
}

// members appends a struct or union.
func (s *shower) members(t *Type, b []byte, depth int) {
	s.str("{")
	for i := range t.Fields {
		f := &t.Fields[i]
		if i > 0 {
			s.comma()
		}
		if s.room <= 0 {
			s.rest(true)
			break
		}
		name := f.Name
		if name == "" && s.json {
			name = "field" + strconv.Itoa(i+1)
		}
		if s.json {
			s.b = append(safetext.AppendJSON(s.b, name), ':')
		} else if name != "" {
			s.str(safetext.Line(name) + "=")
		}
		switch {
		case f.Bits != 0:
			if !s.bitField(f, b) {
				s.unknown()
			}
		case f.Offset < 0 || f.Offset > len(b):
			s.unknown()
		default:
			s.value(f.Type, b[f.Offset:], depth+1)
		}
	}
	s.str("}")
}

// rest says that a struct, or an array, has more.
func (s *shower) rest(object bool) {
	switch {
	case !s.json:
		s.str("...")
	case object:
		s.str(`"...":null`)
	default:
		s.str("null")
	}
}

func (s *shower) comma() {
	if s.json {
		s.str(",")
	} else {
		s.str(", ")
	}
}

// bitField appends a member that has only some bits. ok is false if what the struct is does not have them.
func (s *shower) bitField(f *Field, b []byte) (ok bool) {
	w, ok := f.extract(b)
	if ok {
		s.value(f.Type, w, 1)
	}
	return ok
}

// extract makes a whole value, of up to 8 bytes, of a bit field of what b is.
func (f *Field) extract(b []byte) (value []byte, ok bool) {
	if f.Bit < 0 || f.Bits < 1 || f.Bits > 64 || f.Bit > 8*len(b)-f.Bits || f.Type == nil {
		return nil, false
	}
	var v uint64
	for i := range f.Bits {
		at := f.Bit + i
		v |= uint64(b[at/8]>>(at%8)&1) << i
	}
	if !f.Type.unsignedBits() {
		shift := 64 - f.Bits
		v = uint64(int64(v<<shift) >> shift)
	}
	return binary.LittleEndian.AppendUint64(nil, v), true
}

// unsignedBits reports whether bit fields of a type have no sign.
func (t *Type) unsignedBits() bool {
	return t.Kind == Uint || t.Kind == Bool || t.Kind == Enum || t.Kind == Pointer
}

// hasSign reports whether values of a type can be negative.
func (t *Type) hasSign() bool { return t.Kind == Int || t.Kind == Enum && !t.Unsigned }

// elements appends an array or a vector, text as a string.
func (s *shower) elements(t *Type, b []byte, depth int) {
	if t.Elem == nil || t.Elem.Size <= 0 {
		s.unknown()
		return
	}
	if t.Elem.Kind == Char && t.Elem.Size == 1 {
		text := b[:min(len(b), max(0, t.Count))]
		for i, c := range text {
			if c == 0 {
				s.text(text[:i], false)
				return
			}
		}
		s.text(text, len(text) < t.Count)
		return
	}
	s.str("[")
	for i := range t.Count {
		if i > 0 {
			s.comma()
		}
		if s.room <= 0 || (i+1)*t.Elem.Size > len(b) {
			s.rest(false)
			break
		}
		s.value(t.Elem, b[i*t.Elem.Size:], depth+1)
	}
	s.str("]")
}
