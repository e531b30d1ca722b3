package arguments

import "encoding/json"

// A Type is a type of a program, as far as its values are shown.
type Type struct {
	Kind  Kind   `json:"k"`
	Name  string `json:"n,omitempty"` // as the program calls it, "" if it has none
	Size  int    `json:"s,omitempty"` // in bytes
	Align int    `json:"a,omitempty"` // in bytes, 0: the size
	// Elem is what an array consists of, and what a pointer or reference points to, if that is shown.
	Elem   *Type        `json:"e,omitempty"`
	Count  int          `json:"c,omitempty"` // elements of an array
	Fields []Field      `json:"f,omitempty"` // of a struct or union
	Enum   []Enumerator `json:"v,omitempty"`
	// ByReference: values are passed by the address of a copy, since copying them takes code (C++).
	ByReference bool `json:"r,omitempty"`
	// Empty: a C++ class without data, which has a size all the same.
	Empty bool `json:"z,omitempty"`
	// Unsigned: values of an Enum have no sign.
	Unsigned bool `json:"u,omitempty"`
	// Swapped: a Span whose length comes before its address.
	Swapped bool `json:"w,omitempty"`
}

// A Field is a member of a struct or union.
type Field struct {
	Name   string `json:"n,omitempty"`
	Type   *Type  `json:"t"`
	Offset int    `json:"o,omitempty"` // in bytes
	// Of a bit field: the first bit from the struct's beginning, counted from the lowest, and how many; Bits 0: it is
	// none.
	Bit, Bits int `json:",omitempty"`
}

// An Enumerator is a name for a value.
type Enumerator struct {
	Name  string `json:"n"`
	Value int64  `json:"v"`
}

// A Kind is a kind of type.
type Kind uint8

// Kinds of types.
const (
	Unknown Kind = iota
	Void
	Bool
	Char // of text: one byte
	Int
	Uint
	Float      // 2, 4, 8 or 16 bytes: quadruple precision
	LongDouble // x86-64's, 80 bits in 16 bytes
	Complex    // of two floats of half the size
	Pointer
	Reference // of C++, never null
	Enum
	Struct
	Union
	Array
	Vector // several numbers in one register: Size bytes
	// String is a pointer to text that ends with a NUL.
	String
	// Span is two words, an address and a length, or a struct of these: std::string_view, &str.
	Span
	// Text is a std::string: its first two words are as a Span's.
	Text
)

var kindNames = [...]string{"unknown", "void", "bool", "char", "int", "uint", "float", "longdouble", "complex",
	"pointer", "reference", "enum", "struct", "union", "array", "vector", "string", "span", "text"}

// String returns the kind's name.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return "unknown"
}

// MarshalJSON returns the name.
func (k Kind) MarshalJSON() ([]byte, error) { return json.Marshal(k.String()) }

// UnmarshalJSON accepts what MarshalJSON returns; a kind of a later version is Unknown.
func (k *Kind) UnmarshalJSON(b []byte) error {
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return err
	}
	*k = Unknown
	for i, n := range kindNames {
		if n == s {
			*k = Kind(i)
		}
	}
	return nil
}

// align is the alignment in bytes, 1 at least.
func (t *Type) align() int {
	if t.Align > 0 {
		return t.Align
	}
	switch t.Kind {
	case Struct, Union:
		n := 1
		for i := range t.Fields {
			n = max(n, t.Fields[i].Type.align())
		}
		return n
	case Array:
		if t.Elem != nil {
			return t.Elem.align()
		}
	case Complex:
		return max(1, t.Size/2)
	case Span, Text:
		return 8
	}
	return max(1, min(t.Size, 16))
}

// aggregate reports whether values are made of members.
func (t *Type) aggregate() bool {
	return t.Kind == Struct || t.Kind == Union || t.Kind == Span || t.Kind == Text
}

// A Func is a function's parameters and result.
type Func struct {
	Name     string
	Params   []Param
	Result   *Type   // nil: it has none
	Variadic bool    // more arguments may follow
	result   any     // where Result is in debug information, a dwarf.Offset
	types    *reader // of debug information; nil: there is none
	// Why says why nothing but that is known: the function does not follow its machine's calling convention; "": it does.
	Why string
}

// A Param is a parameter.
type Param struct {
	Name   string
	Type   *Type
	Format string // as in an Item; "": as its type says
	at     any    // where Type is in debug information, a dwarf.Offset
}
