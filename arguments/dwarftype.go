package arguments

import (
	"debug/dwarf"
	"fmt"
)

// Types but for structures. What a pointer points to is looked at only where a parameter itself is one, so types that
// refer to themselves end there; nesting is bounded besides.

// typeAt reads a type. deep says that what a pointer points to matters.
func (x *reader) typeAt(at dwarf.Offset, deep bool, depth int) (*Type, error) {
	key := typeKey{at, deep}
	if t := x.types[key]; t != nil {
		return t, nil
	}
	if depth > maxNesting {
		return &Type{}, nil
	}
	r := x.d.Reader()
	r.Seek(at)
	e, err := r.Next()
	if err != nil {
		return nil, err
	}
	if e == nil {
		return nil, fmt.Errorf("no type at %#x", at)
	}
	t, err := x.newType(r, e, deep, depth)
	if err != nil {
		return nil, err
	}
	x.types[key] = t
	return t, nil
}

// of reads the type that an entry refers to: void if it refers to none.
func (x *reader) of(e *dwarf.Entry, deep bool, depth int) (*Type, error) {
	switch at := e.Val(dwarf.AttrType).(type) {
	case dwarf.Offset:
		return x.typeAt(at, deep, depth+1)
	case nil:
		return &Type{Kind: Void}, nil
	}
	return &Type{}, nil // in a unit of its own
}

func size(e *dwarf.Entry) int {
	n, _ := e.Val(dwarf.AttrByteSize).(int64)
	if n < 0 || n > 1<<31-1 {
		return 0
	}
	return int(n)
}

func (x *reader) newType(r *dwarf.Reader, e *dwarf.Entry, deep bool, depth int) (*Type, error) {
	name, _ := e.Val(dwarf.AttrName).(string)
	switch e.Tag {
	case dwarf.TagBaseType:
		return x.baseType(e, name), nil
	case dwarf.TagTypedef, dwarf.TagConstType, dwarf.TagVolatileType, dwarf.TagRestrictType, tagAtomicType:
		return x.of(e, deep, depth)
	case dwarf.TagUnspecifiedType: // nullptr_t
		return &Type{Kind: Pointer, Name: name, Size: 8}, nil
	case dwarf.TagPointerType, dwarf.TagReferenceType, dwarf.TagRvalueReferenceType:
		return x.pointer(e, deep, depth)
	case dwarf.TagPtrToMemberType:
		t, err := x.of(e, false, depth)
		if err == nil && t.Kind == Unknown { // a function: its address, and what is added to this
			word := &Type{Kind: Uint, Size: 8}
			return &Type{Kind: Struct, Size: 16, Fields: []Field{{Type: word}, {Type: word, Offset: 8}}}, nil
		}
		return &Type{Kind: Pointer, Size: 8}, err
	case dwarf.TagEnumerationType:
		return x.enumeration(r, e, name, depth)
	case dwarf.TagArrayType:
		return x.array(r, e, depth)
	case dwarf.TagStructType, dwarf.TagClassType, dwarf.TagUnionType:
		return x.structure(r, e, name, depth)
	}
	return &Type{Name: name}, nil
}

// tagAtomicType is missing in debug/dwarf.
const tagAtomicType dwarf.Tag = 0x47

func (x *reader) baseType(e *dwarf.Entry, name string) *Type {
	t := &Type{Name: name, Size: size(e)}
	encoding, _ := e.Val(dwarf.AttrEncoding).(int64)
	switch encoding { // DWARF 5, 7.8
	case 0x01, 0x07, 0x08, 0x05, 0x06, 0x10:
		t.Kind = map[int64]Kind{0x01: Uint, 0x07: Uint, 0x08: Char, 0x05: Int, 0x06: Char, 0x10: Uint}[encoding]
		if name == "int8_t" || name == "signed char" || name == "i8" {
			t.Kind = Int
		}
		if name == "unsigned char" || name == "u8" {
			t.Kind = Uint
		}
	case 0x02:
		t.Kind = Bool
	case 0x03:
		t.Kind = Complex
	case 0x04:
		t.Kind = Float
		if x.machine == AMD64 && t.Size == 16 && (name == "long double" || name == "_Float64x") {
			t.Kind = LongDouble
		}
	}
	if t.Kind != Complex && t.Size > 16 || t.Size > 32 {
		t.Kind = Unknown
	}
	return t
}

// pointer reads a pointer or reference.
func (x *reader) pointer(e *dwarf.Entry, deep bool, depth int) (*Type, error) {
	t := &Type{Kind: Pointer, Size: 8}
	if e.Tag != dwarf.TagPointerType {
		t.Kind = Reference
	}
	if n := size(e); n != 0 {
		t.Size = n
	}
	if !deep {
		return t, nil
	}
	to, err := x.of(e, false, depth)
	if err != nil {
		return nil, err
	}
	switch {
	case to.Kind == Char && to.Size == 1 && t.Kind == Pointer:
		t.Kind = String
	case to.Kind == Span || to.Kind == Text || t.Kind == Reference && to.Size > 0 && to.Size <= maxBytes:
		t.Elem = to
	}
	return t, nil
}

func (x *reader) enumeration(r *dwarf.Reader, e *dwarf.Entry, name string, depth int) (*Type, error) {
	t := &Type{Kind: Enum, Name: name, Size: size(e)}
	of, err := x.of(e, false, depth)
	if err != nil {
		return nil, err
	}
	if t.Size == 0 {
		t.Size = of.Size
	}
	if t.Size > 8 {
		return &Type{Name: name}, nil
	}
	encoding, ok := e.Val(dwarf.AttrEncoding).(int64)
	t.Unsigned = of.Kind == Uint || of.Kind == Bool || of.Kind == Char && of.Name != "char" || ok && encoding == encodingUnsigned
	err = eachChild(r, e, func(c *dwarf.Entry) error {
		v, ok := c.Val(dwarf.AttrConstValue).(int64)
		n, _ := c.Val(dwarf.AttrName).(string)
		if c.Tag == dwarf.TagEnumerator && ok && len(t.Enum) < maxEnumerators {
			t.Enum = append(t.Enum, Enumerator{n, v})
		}
		return nil
	})
	if t.Unsigned && t.Size < 8 {
		for i := range t.Enum { // some compilers have them as numbers with a sign
			t.Enum[i].Value &= 1<<(8*t.Size) - 1
		}
	}
	return t, err
}

// encodingUnsigned is DW_ATE_unsigned (DWARF 5, 7.8).
const encodingUnsigned = 7

// maxEnumerators bounds the names of an enumeration that are kept.
const maxEnumerators = 4096

func (x *reader) array(r *dwarf.Reader, e *dwarf.Entry, depth int) (*Type, error) {
	of, err := x.of(e, false, depth)
	if err != nil {
		return nil, err
	}
	var counts []int
	err = eachChild(r, e, func(c *dwarf.Entry) error {
		if c.Tag != dwarf.TagSubrangeType {
			return nil
		}
		n := 0
		if v, ok := c.Val(dwarf.AttrCount).(int64); ok {
			n = int(v)
		} else if v, ok := c.Val(dwarf.AttrUpperBound).(int64); ok {
			n = int(v) + 1
		}
		counts = append(counts, min(max(n, 0), 1<<20))
		return nil
	})
	if err != nil {
		return nil, err
	}
	t := of
	for i := len(counts) - 1; i >= 0; i-- {
		if t.Size > 1<<20 {
			return &Type{}, nil
		}
		t = &Type{Kind: Array, Elem: t, Count: counts[i], Size: t.Size * counts[i]}
	}
	if vector, _ := e.Val(attrVector).(bool); vector {
		return &Type{Kind: Vector, Elem: of, Count: t.Count, Size: t.Size, Align: t.Size}, nil
	}
	return t, nil
}

// attrVector is GNU's, for arrays that are in one register.
const attrVector dwarf.Attr = 0x2107

// eachChild calls fn with the children of an entry.
func eachChild(r *dwarf.Reader, e *dwarf.Entry, fn func(*dwarf.Entry) error) error {
	if !e.Children {
		return nil
	}
	for {
		c, err := r.Next()
		if err != nil {
			return err
		}
		if c == nil || c.Tag == 0 {
			return nil
		}
		if err := fn(c); err != nil {
			return err
		}
		if c.Children {
			r.SkipChildren()
		}
	}
}
