package arguments

import (
	"encoding/binary"
	"strings"
)

// What variadic functions are called with behind their parameters nobody says but a format, as printf has it. Its
// conversions are shown of the words that were captured, which are those that integers and pointers are passed in. Of text
// only the address is known, and floating point is passed elsewhere.

// printfFormat is the Format of a Value that is shown by the parameter in front of it.
const printfFormat = "%"

// takesFormat reports whether a variadic function's last parameter can be such a format. Those of scanf take pointers.
func (f *Func) takesFormat() bool {
	n := len(f.Params)
	return n > 0 && f.Params[n-1].Type.Kind == String && !strings.Contains(f.Name, "scanf")
}

// appendFormatted appends the arguments that a format has conversions for, each behind a comma. What is not known is an
// ellipsis: all, if the format has no conversions.
func (v *Value) appendFormatted(b []byte, format string, words []uint64) []byte {
	raw, ok := v.bytes(words)
	start := len(b)
	for rest := format; ok; {
		_, after, found := strings.Cut(rest, "%")
		if !found {
			break
		}
		kinds, n := conversion(after)
		rest = after[n:]
		for _, k := range kinds {
			b = append(b, ", "...)
			switch {
			case k == unknownConversion || k != inFloats && len(raw) < 8:
				return append(b, "..."...)
			case k == inFloats:
				b = append(b, "<unknown>"...)
			default:
				t := conversions[k]
				s := shower{b: b, room: 1, format: t.format}
				s.value(t.t, raw[:8], 0)
				b, raw = s.b, raw[8:]
			}
		}
	}
	if len(b) == start {
		b = append(b, ", ..."...)
	}
	return b
}

// What conversions take, beside the keys of conversions.
const (
	inFloats          = "f"
	unknownConversion = "?"
)

// conversions are the types of what conversions take, by their letters behind what says how large it is.
var conversions = func() map[string]struct {
	t      *Type
	format string
} {
	type shown = struct {
		t      *Type
		format string
	}
	out := map[string]shown{
		"c": {&Type{Kind: Char, Size: 1}, ""}, "p": {&Type{Kind: Uint, Size: 8}, "x"}, "s": {&Type{Kind: Pointer, Size: 8}, ""},
	}
	for length, size := range map[string]int{"hh": 1, "h": 2, "": 4, "l": 8, "ll": 8, "z": 8, "j": 8, "t": 8} {
		out[length+"d"] = shown{&Type{Kind: Int, Size: size}, ""}
		out[length+"u"] = shown{&Type{Kind: Uint, Size: size}, ""}
		out[length+"x"] = shown{&Type{Kind: Uint, Size: size}, "x"}
		out[length+"o"] = shown{&Type{Kind: Uint, Size: size}, "o"}
	}
	return out
}()

// conversion reads a conversion behind its %, of n bytes, and returns what it takes.
func conversion(s string) (kinds []string, n int) {
	skip := func(set string) {
		for n < len(s) && strings.IndexByte(set, s[n]) >= 0 {
			if s[n] == '*' {
				kinds = append(kinds, "d")
			}
			n++
		}
	}
	skip("-+ #0'123456789*.")
	from := n
	skip("hlzjtL")
	length := s[from:n]
	if n == len(s) {
		return append(kinds, unknownConversion), n
	}
	letter := s[n]
	n++
	switch letter {
	case '%', 'm': // which takes errno
		return kinds, n
	case 'i':
		letter = 'd'
	case 'X':
		letter = 'x'
	case 'e', 'E', 'f', 'F', 'g', 'G', 'a', 'A':
		if length != "L" { // these are on the stack
			return append(kinds, inFloats), n
		}
	case 'c', 's', 'p':
		length = ""
	}
	k := length + string(letter)
	if _, ok := conversions[k]; !ok {
		k = unknownConversion
	}
	return append(kinds, k), n
}

// formatOf is the text of the parameter in front of one that is shown by it; ok is false if it is not all known.
func (c *Capture) formatOf(i int, words []uint64, m Memory) (format string, ok bool) {
	if v := &c.Params[i]; !v.More || v.Format != printfFormat || i == 0 {
		return "", false
	}
	p := &c.Params[i-1]
	b, ok := p.bytes(words)
	if !ok || len(b) < 8 {
		return "", false
	}
	r := m.at(binary.LittleEndian.Uint64(b))
	if r == nil || r.Cut || r.Unreadable {
		return "", false
	}
	return string(r.Bytes), true
}
