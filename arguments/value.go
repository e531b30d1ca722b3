package arguments

import (
	"encoding/binary"
	"math"
	"slices"
	"strconv"

	"github.com/fentry-dev/fentry/internal/safetext"
	"golang.org/x/sys/unix"
)

// Values as people and programs see them. The same bytes are shown as text, in the manner of C, and as JSON: numbers,
// strings, objects for structs; addresses as text, since JSON's numbers are not exact. What is unknown is <unknown>, or
// null; what could not be read is its address in <>.

// Memory is what was captured of the program's memory at one end of a call.
type Memory []Region

// A Region is a piece of Memory.
type Region struct {
	Address    uint64
	Bytes      []byte
	Text       bool // Bytes end before a NUL, unless one of the following says that none was seen
	Cut        bool // there is more
	Unreadable bool // there is more, which could not be read
	// Values: Bytes are no memory, but what the conversions of the format at Address take.
	Values bool
}

// at finds what was captured at an address.
func (m Memory) at(address uint64) *Region {
	for i := range m {
		if m[i].Address == address && !m[i].Values {
			return &m[i]
		}
	}
	return nil
}

// AppendArguments appends the arguments of a call as C has them, without parentheses.
func (c *Capture) AppendArguments(b []byte, words []uint64, m Memory) []byte {
	for i := range c.Params {
		if f, ok := c.formatted(i, words, m); ok {
			b = f.appendText(b)
			continue
		}
		if i > 0 {
			b = append(b, ", "...)
		}
		b = c.Params[i].AppendText(b, words, m)
	}
	return b
}

// AppendResult appends the result, which there is, as C has it and, if errno was captured and the call has failed, what
// that is.
func (c *Capture) AppendResult(b []byte, words []uint64, m Memory) []byte {
	b = c.Result.AppendText(b, words, m)
	if e := c.Error(words); e != "" {
		b = append(append(b, ' '), e...)
	}
	return b
}

// Error returns the name of errno, as ENOENT, of a call that has failed: one that has returned -1 or NULL; "": it has not,
// or errno was not captured.
func (c *Capture) Error(words []uint64) string {
	if c.Errno == nil || c.Result == nil || !c.Result.failed(words) {
		return ""
	}
	b, ok := c.Errno.bytes(words)
	if !ok || len(b) < 8 {
		return ""
	}
	n := binary.LittleEndian.Uint64(b)
	if n == 0 || n > math.MaxInt32 {
		return ""
	}
	if name := unix.ErrnoName(unix.Errno(n)); name != "" {
		return name
	}
	return strconv.FormatUint(n, 10)
}

// failed reports whether a result is one with which functions of C say that errno has the reason.
func (v *Value) failed(words []uint64) bool {
	b, ok := v.bytes(words)
	if !ok || v.Type == nil || v.Indirect || v.Type.Size > len(b) {
		return false
	}
	u, ok := unsigned(b, v.Type.Size)
	switch v.Type.Kind {
	case Pointer, String:
		return u == 0
	case Int, Uint, Enum:
		return ok && (u == 1<<(8*v.Type.Size)-1 || v.Format == "x" && uint32(u) == math.MaxUint32)
	}
	return false
}

// Captures reports whether anything is captured of the arguments: some functions have only such as nothing is known of.
func (c *Capture) Captures() bool {
	return slices.ContainsFunc(c.Params, func(v Value) bool { return v.Words > 0 })
}

// AppendText appends a value as C has it.
func (v *Value) AppendText(b []byte, words []uint64, m Memory) []byte {
	s := shower{b: b, m: m, format: v.Format}
	s.show(v, words)
	return s.b
}

// AppendJSON appends a value as JSON.
func (v *Value) AppendJSON(b []byte, words []uint64, m Memory) []byte {
	s := shower{b: b, m: m, format: v.Format, json: true}
	s.show(v, words)
	return s.b
}

// AppendObject appends the arguments of a call as a JSON object: by their names, or as arg1, arg2 and so on.
func (c *Capture) AppendObject(b []byte, words []uint64, m Memory) []byte {
	b = append(b, '{')
	for i := range c.Params {
		if i > 0 {
			b = append(b, ',')
		}
		b = safetext.AppendJSON(b, c.ParamName(i))
		b = append(b, ':')
		if f, ok := c.formatted(i, words, m); ok {
			b = f.appendJSON(b)
			continue
		}
		b = c.Params[i].AppendJSON(b, words, m)
	}
	return append(b, '}')
}

// ParamName is what a parameter is called: its name, or arg and its number from 1.
func (c *Capture) ParamName(i int) string {
	if n := c.Params[i].Name; n != "" {
		return n
	}
	return "arg" + strconv.Itoa(i+1)
}

// bytes returns a value's own bytes, false if they were not captured.
func (v *Value) bytes(words []uint64) ([]byte, bool) {
	if v.Words <= 0 || v.Word < 0 || v.Words > MaxWords || v.Word+v.Words > len(words) {
		return nil, v.Type != nil && (v.Type.Size == 0 || v.Type.Empty) && v.Type.Kind != Unknown
	}
	stride := 8
	if v.Stride > 0 && v.Stride < 8 {
		stride = v.Stride
	}
	var b []byte
	for _, w := range words[v.Word : v.Word+v.Words] {
		var word [8]byte
		binary.LittleEndian.PutUint64(word[:], w)
		b = append(b, word[:stride]...)
	}
	if v.Offset < 0 || v.Offset > len(b) {
		return nil, false
	}
	return b[v.Offset:], true
}

type shower struct {
	b      []byte
	m      Memory
	json   bool
	format string
	room   int // how many values of arrays and structs are shown yet
}

func (s *shower) str(text string) { s.b = append(s.b, text...) }

// name appends a word that stands for a value.
func (s *shower) name(text string) {
	if s.json {
		s.b = safetext.AppendJSON(s.b, text)
	} else {
		s.str(safetext.Line(text))
	}
}

func (s *shower) unknown() {
	if s.json {
		s.str("null")
	} else {
		s.str("<unknown>")
	}
}

// unreadable appends an address of which nothing could be read.
func (s *shower) unreadable(address uint64) {
	if address == 0 {
		s.null()
		return
	}
	s.name("<" + hex(address) + ">")
}

func (s *shower) null() {
	if s.json {
		s.str("null")
	} else {
		s.str("NULL")
	}
}

func hex(v uint64) string { return "0x" + strconv.FormatUint(v, 16) }

func (s *shower) show(v *Value, words []uint64) {
	const shown = 32
	s.room = shown
	b, ok := v.bytes(words)
	switch {
	case v.More && !ok:
		s.more(nil)
		return
	case !ok || v.Type == nil:
		s.unknown()
		return
	}
	if !v.Indirect {
		switch {
		case v.More:
			s.more(b)
		case v.Bits != 0:
			if !s.bitField(v.bitField(), b) {
				s.unknown()
			}
		default:
			s.value(v.Type, b, 0)
		}
		return
	}
	if len(b) < 8 {
		s.unknown()
		return
	}
	address := binary.LittleEndian.Uint64(b)
	if v.Bits != 0 {
		if r := s.m.at(address); r == nil || !s.bitField(v.bitField(), r.Bytes) {
			s.unreadable(address)
		}
		return
	}
	if v.Type.Kind == Span || v.Type.Kind == Text {
		s.spanAt(v.Type, address)
		return
	}
	s.at(v.Type, address)
}

// bitField is a value that is one as a member.
func (v *Value) bitField() *Field { return &Field{Type: v.Type, Bit: v.Bit, Bits: v.Bits} }

// at appends the value at an address.
func (s *shower) at(t *Type, address uint64) {
	r := s.m.at(address)
	if r == nil || len(r.Bytes) < t.Size && r.Unreadable {
		s.unreadable(address)
		return
	}
	s.value(t, r.Bytes, 0)
}

// spanAt appends the text to which an address and a length at an address lead.
func (s *shower) spanAt(t *Type, address uint64) {
	r := s.m.at(address)
	if r == nil || len(r.Bytes) < 16 {
		s.unreadable(address)
		return
	}
	s.span(t, r.Bytes)
}

// span appends the text of an address and a length.
func (s *shower) span(t *Type, b []byte) {
	if len(b) < 16 {
		s.unknown()
		return
	}
	address, n := binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:])
	if t.Swapped {
		address, n = n, address
	}
	if n == 0 {
		s.text(nil, false)
		return
	}
	r := s.m.at(address)
	if r == nil || len(r.Bytes) == 0 {
		s.unreadable(address)
		return
	}
	s.text(r.Bytes[:min(uint64(len(r.Bytes)), n)], uint64(len(r.Bytes)) < n)
}

// more appends words of a variadic function: nobody knows which of them were passed.
func (s *shower) more(b []byte) {
	if !s.json {
		s.str("...")
		return
	}
	s.str("[")
	for i := 0; i+8 <= len(b); i += 8 {
		if i > 0 {
			s.str(",")
		}
		s.name(hex(binary.LittleEndian.Uint64(b[i:])))
	}
	s.str("]")
}

// text appends bytes as a string.
func (s *shower) text(b []byte, cut bool) {
	if s.json {
		s.b = safetext.AppendJSON(s.b, string(b))
		return
	}
	s.b = AppendQuoted(s.b, b, '"')
	if cut {
		s.str("...")
	}
}

// value appends a value of a type that begins with b.
func (s *shower) value(t *Type, b []byte, depth int) {
	s.room--
	if t == nil || depth > maxNesting || len(b) < t.Size && !t.aggregate() && t.Kind != Array {
		s.unknown()
		return
	}
	switch t.Kind {
	case Bool:
		if len(b) > 0 {
			s.str(strconv.FormatBool(b[0] != 0))
		} else {
			s.unknown()
		}
	case Char, Int, Uint, Enum:
		if u, ok := unsigned(b, t.Size); ok {
			s.integer(t, u)
		} else {
			s.wide(t, b)
		}
	case Float, LongDouble, Complex:
		s.floats(t, b)
	case Pointer, Reference, String:
		s.pointer(t, b, depth)
	case Span:
		s.span(t, b)
	case Struct, Union:
		s.members(t, b, depth)
	case Array, Vector:
		s.elements(t, b, depth)
	default:
		s.unknown()
	}
}

// unsigned reads a number of up to 8 bytes.
func unsigned(b []byte, size int) (uint64, bool) {
	var w [8]byte
	if size < 1 || size > 8 || len(b) < size {
		return 0, false
	}
	copy(w[:], b[:size])
	return binary.LittleEndian.Uint64(w[:]), true
}

// wide appends a number of 16 bytes.
func (s *shower) wide(t *Type, b []byte) {
	if t.Size != 16 || len(b) < 16 {
		s.unknown()
		return
	}
	low, high := binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:])
	if high == 0 {
		s.str(strconv.FormatUint(low, 10))
		return
	}
	if t.Kind == Int && high == math.MaxUint64 && low>>63 != 0 {
		s.str(strconv.FormatInt(int64(low), 10))
		return
	}
	digits := strconv.FormatUint(low, 16)
	for len(digits) < 16 {
		digits = "0" + digits
	}
	s.name(hex(high) + digits)
}

// integer appends a number as the format, or else its type, says.
func (s *shower) integer(t *Type, u uint64) {
	shift := 64 - 8*t.Size
	i := int64(u<<shift) >> shift
	switch s.format {
	case "x":
		s.name(hex(u))
		return
	case "o":
		s.name("0" + strconv.FormatUint(u, 8))
		return
	case "d":
		s.str(strconv.FormatInt(i, 10))
		return
	case "u":
		s.str(strconv.FormatUint(u, 10))
		return
	case "i":
		const small = 100000
		if i >= small || i <= -small {
			s.name(hex(u))
			return
		}
	}
	switch {
	case t.Kind == Char && t.Size == 1:
		if s.json {
			s.b = safetext.AppendJSON(s.b, string(rune(byte(u))))
		} else {
			s.b = AppendQuoted(s.b, []byte{byte(u)}, '\'')
		}
	case t.Kind == Enum && t.Unsigned:
		s.enum(t, int64(u))
	case t.Kind == Enum:
		s.enum(t, i)
	case t.Kind == Uint:
		s.str(strconv.FormatUint(u, 10))
	default:
		s.str(strconv.FormatInt(i, 10))
	}
}
