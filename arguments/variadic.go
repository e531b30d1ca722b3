package arguments

import (
	"encoding/binary"
	"strings"
)

// What variadic functions are called with behind their parameters nobody says but a format, as printf has it. The runtime
// reads it at the call (stub/src/capture.c), takes what its conversions do from registers and the stack, and the texts
// among that, and here the same conversions say what that is.

// printfFormat is the Format of a Value that is shown by the parameter in front of it.
const printfFormat = "%"

// takesFormat reports whether a variadic function's last parameter can be such a format. Those of scanf take pointers.
func (f *Func) takesFormat() bool {
	n := len(f.Params)
	return n > 0 && f.Params[n-1].Type.Kind == String && !strings.Contains(f.Name, "scanf")
}

// formatted has the text that a value leads to captured as a format. It returns false if that is not captured at all.
func (p *program) formatted(v *Value, call callState) bool {
	for i := range p.memory {
		if op := &p.memory[i]; v.Words == 1 && op.Code == OpString && int(op.From) == v.Word {
			general, float, stack := call.taken()
			op.Code, op.N = OpFormat, uint16(general|float<<4|stack<<8)
			return general < 1<<4 && float < 1<<4 && stack < 1<<8
		}
	}
	return false
}

// longDouble is C's type as it is passed.
func longDouble(m Machine) *Type {
	if m == ARM64 {
		return &Type{Kind: Float, Size: 16}
	}
	return &Type{Kind: LongDouble, Size: 16}
}

// A formatted value is all that a format has conversions for.
type formatted struct {
	text       string // the format
	whole      bool   // all of it is known
	named      bool   // it is one by its name, and not only if it has conversions
	values     []byte
	memory     Memory
	longDouble *Type
}

// formatted finds what was captured by a format, of which the parameter in front of i is the text.
func (c *Capture) formatted(i int, words []uint64, m Memory) (f formatted, ok bool) {
	v := &c.Params[i]
	if !v.More || v.Format != printfFormat || i == 0 {
		return f, false
	}
	p := &c.Params[i-1]
	b, ok := p.bytes(words)
	if !ok || len(b) < 8 {
		return f, false
	}
	address := binary.LittleEndian.Uint64(b)
	r := m.at(address)
	if r == nil || r.Unreadable {
		return f, false
	}
	f = formatted{text: string(r.Bytes), whole: !r.Cut, named: p.Name == "format" || p.Name == "fmt", memory: m, longDouble: v.Type}
	for j := range m {
		if m[j].Values && m[j].Address == address {
			f.values = m[j].Bytes
			break
		}
	}
	return f, true
}

// each calls a function for each value, with its place for that. It returns false if there is more.
func (f *formatted) each(show func(k conversion, value []byte)) bool {
	values, before, some := f.values, uint64(0), f.named
	for rest := f.text; ; {
		_, after, found := strings.Cut(rest, "%")
		if !found {
			return f.whole && some
		}
		ks, n := conversions(after)
		rest = after[n:]
		for _, k := range ks {
			if k.letter == 0 {
				return false
			}
			size := 8
			if k.isLongDouble() {
				size = 16
			}
			if len(values) < size {
				return false
			}
			if k.letter == 's' && k.precision == precisionBefore {
				k.precision = max(int(int32(before)), noPrecision)
			}
			show(k, values[:size])
			some = true
			before = binary.LittleEndian.Uint64(values)
			values = values[size:]
		}
	}
}

// appendText appends the values, each behind a comma, and an ellipsis for what is not known.
func (f *formatted) appendText(b []byte) []byte {
	s := shower{b: b, m: f.memory}
	whole := f.each(func(k conversion, value []byte) {
		s.str(", ")
		f.show(&s, k, value)
	})
	if !whole {
		s.str(", ...")
	}
	return s.b
}

// appendJSON appends them as an array.
func (f *formatted) appendJSON(b []byte) []byte {
	s := shower{b: append(b, '['), m: f.memory, json: true}
	n := 0
	f.each(func(k conversion, value []byte) {
		if n++; n > 1 {
			s.str(",")
		}
		f.show(&s, k, value)
	})
	return append(s.b, ']')
}

// show appends a value.
func (f *formatted) show(s *shower, k conversion, value []byte) {
	if k.isText() {
		f.showText(s, k, binary.LittleEndian.Uint64(value))
		return
	}
	t, format := k.typ()
	if k.isLongDouble() {
		t = f.longDouble
	}
	s.room, s.format = 1, format
	s.value(t, value, 0)
}

func (f *formatted) showText(s *shower, k conversion, address uint64) {
	r := f.memory.at(address)
	switch {
	case address == 0:
		s.null()
	case k.precision == 0:
		s.text(nil, false)
	case r == nil: // there were too many
		s.name(hex(address))
	case r.Unreadable && len(r.Bytes) == 0:
		s.unreadable(address)
	case k.precision > 0 && len(r.Bytes) >= k.precision:
		s.text(r.Bytes[:k.precision], false)
	default:
		s.text(r.Bytes, r.Cut || r.Unreadable)
	}
}

// A conversion is what a part of a format takes: a letter, d of a width or precision; 0: it is not known.
type conversion struct {
	letter    byte
	length    string // in front of the letter
	precision int
}

// Precisions that are no number.
const (
	noPrecision     = -1
	precisionBefore = -2 // the value before says it
)

func (k conversion) isText() bool { return k.letter == 's' && !strings.Contains(k.length, "l") }

func (k conversion) isLongDouble() bool { return k.letter == 'f' && strings.Contains(k.length, "L") }

// typ is the type of what it takes, and the format in which that is shown.
func (k conversion) typ() (t *Type, format string) {
	size := 4
	switch k.length {
	case "":
	case "hh":
		size = 1
	case "h":
		size = 2
	default:
		size = 8
	}
	switch k.letter {
	case 'f':
		return &Type{Kind: Float, Size: 8}, ""
	case 'c':
		return &Type{Kind: Char, Size: 1}, ""
	case 'u':
		return &Type{Kind: Uint, Size: size}, ""
	case 'x', 'o':
		return &Type{Kind: Uint, Size: size}, string(k.letter)
	case 'd':
		return &Type{Kind: Int, Size: size}, ""
	}
	return &Type{Kind: Uint, Size: 8}, "x"
}

// conversions reads a conversion behind its %, of n bytes, and returns what it takes, with a width and a precision that
// are values.
func conversions(s string) (ks []conversion, n int) {
	k := conversion{precision: noPrecision}
	for ; n < len(s) && strings.IndexByte("-+ #0123456789'*.", s[n]) >= 0; n++ {
		switch c := s[n]; {
		case c == '*':
			ks = append(ks, conversion{letter: 'd'})
			if k.precision != noPrecision {
				k.precision = precisionBefore
			}
		case c == '.':
			k.precision = 0
		case c >= '0' && c <= '9' && k.precision >= 0 && k.precision < maxText:
			k.precision = 10*k.precision + int(c-'0')
		}
	}
	from := n
	for n < len(s) && strings.IndexByte("hlzjtL", s[n]) >= 0 {
		n++
	}
	k.length = s[from:n]
	if n == len(s) {
		return append(ks, conversion{}), n
	}
	letter := s[n]
	n++
	switch letter {
	case '%', 'm': // which takes errno
		return ks, n
	case 'i':
		letter = 'd'
	case 'X':
		letter = 'x'
	case 'e', 'E', 'F', 'g', 'G', 'a', 'A':
		letter = 'f'
	case 'd', 'u', 'x', 'o', 'c', 's', 'p', 'n', 'f':
	default:
		return append(ks, conversion{}), n
	}
	k.letter = letter
	return append(ks, k), n
}
