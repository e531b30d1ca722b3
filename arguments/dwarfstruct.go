package arguments

import (
	"debug/dwarf"
	"strings"
)

// Structures. C++ passes a class by the address of a copy if copying or destroying it takes code. Compilers of today
// say so (DW_AT_calling_convention); older ones leave it to what the class declares. Some classes are shown as the
// text that they stand for, which their name and their members tell.

const (
	passByReference = 4 // DW_CC_pass_by_reference
	passByValue     = 5
)

// maxFields bounds the members of a struct that are kept.
const maxFields = 512

func (x *reader) structure(r *dwarf.Reader, e *dwarf.Entry, name string, depth int) (*Type, error) {
	t := &Type{Kind: Struct, Name: name, Size: size(e)}
	if e.Tag == dwarf.TagUnionType {
		t.Kind = Union
	}
	if declared, _ := e.Val(dwarf.AttrDeclaration).(bool); declared {
		return &Type{Name: name}, nil
	}
	if n, ok := e.Val(attrAlignment).(int64); ok && n > 0 && n <= 1<<20 {
		t.Align = int(n)
	}
	own, whole := false, true
	err := eachChild(r, e, func(c *dwarf.Entry) error {
		switch c.Tag {
		case dwarf.TagMember, dwarf.TagInheritance:
			ok, err := x.member(t, c, depth)
			whole = whole && ok
			return err
		case dwarf.TagSubprogram:
			own = own || x.makesCopies(c, name)
		case dwarf.TagVariantPart: // of Rust's enumerations
			whole = false
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if !whole {
		return &Type{Name: name, Size: t.Size}, nil
	}
	switch cc, _ := e.Val(dwarf.AttrCalling).(int64); cc {
	case passByReference:
		t.ByReference = true
	case passByValue:
	default:
		t.ByReference = own || inherits(t)
	}
	t.Empty = t.Size > 0 && isEmpty(t, 0)
	if t.Kind == Struct {
		asText(t)
	}
	return t, nil
}

// attrAlignment is of DWARF 5.
const attrAlignment dwarf.Attr = 0x88

// member adds a member or a base class. It returns false if where it is is not known.
func (x *reader) member(t *Type, e *dwarf.Entry, depth int) (ok bool, err error) {
	if external, _ := e.Val(dwarf.AttrExternal).(bool); external {
		return true, nil // static
	}
	if declared, _ := e.Val(dwarf.AttrDeclaration).(bool); declared {
		return true, nil
	}
	of, err := x.of(e, false, depth)
	if err != nil {
		return false, err
	}
	f := Field{Type: of}
	f.Name, _ = e.Val(dwarf.AttrName).(string)
	if e.Tag == dwarf.TagInheritance {
		f.Name = of.Name
	}
	switch at := e.Val(dwarf.AttrDataMemberLoc).(type) {
	case int64:
		f.Offset = int(at)
	case nil:
	default:
		return false, nil // a virtual base class
	}
	if bit, bits, ok := bitsOf(e, of, f.Offset); ok {
		f.Bit, f.Bits, f.Offset = int(bit), int(bits), 0
		if bits <= 0 || bits > 64 || bit < 0 || bit+bits > int64(t.Size)*8 {
			return false, nil
		}
	}
	if f.Offset < 0 || f.Bits == 0 && f.Offset > t.Size || len(t.Fields) == maxFields {
		return false, nil
	}
	t.Fields = append(t.Fields, f)
	return true, nil
}

// bitsOf returns the first bit of a bit field of a type, counted from the struct's beginning, and how many there are.
// offset is what the member says of its place in bytes. ok is false of other members.
func bitsOf(e *dwarf.Entry, of *Type, offset int) (bit, bits int64, ok bool) {
	bits, ok = e.Val(dwarf.AttrBitSize).(int64)
	bit, have := e.Val(dwarf.AttrDataBitOffset).(int64)
	if ok && !have { // before DWARF 4: from the highest bit of a unit at the offset
		high, _ := e.Val(dwarf.AttrBitOffset).(int64)
		unit := size(e)
		if unit == 0 {
			unit = of.Size
		}
		bit = int64(offset)*8 + int64(unit)*8 - high - bits
	}
	return bit, bits, ok
}

// makesCopies reports whether a member function makes copies, moves or destroys, and was written by the user.
func (x *reader) makesCopies(e *dwarf.Entry, class string) bool {
	name, _ := e.Val(dwarf.AttrName).(string)
	if made, _ := e.Val(dwarf.AttrArtificial).(bool); made {
		return false
	}
	if v, _ := e.Val(attrDefaulted).(int64); v == 1 { // in the class: trivial as far as it goes
		return false
	}
	class, _, _ = strings.Cut(class, "<")
	if strings.HasPrefix(name, "~") {
		return true
	}
	if name != class || !e.Children {
		return false
	}
	// A constructor from one reference to the class.
	r := x.d.Reader()
	r.Seek(e.Offset)
	if _, err := r.Next(); err != nil {
		return false
	}
	var params []*dwarf.Entry
	_ = eachChild(r, e, func(c *dwarf.Entry) error {
		if made, _ := c.Val(dwarf.AttrArtificial).(bool); c.Tag == dwarf.TagFormalParameter && !made {
			params = append(params, c)
		}
		return nil
	})
	return len(params) == 1 && x.refersTo(params[0], class)
}

// attrDefaulted is of DWARF 5.
const attrDefaulted dwarf.Attr = 0x8b

// refersTo reports whether a parameter is a reference to a class.
func (x *reader) refersTo(e *dwarf.Entry, class string) bool {
	reference := false
	for range 6 {
		at, ok := e.Val(dwarf.AttrType).(dwarf.Offset)
		if !ok {
			return false
		}
		r := x.d.Reader()
		r.Seek(at)
		next, err := r.Next()
		if err != nil || next == nil {
			return false
		}
		e = next
		switch e.Tag {
		case dwarf.TagReferenceType, dwarf.TagRvalueReferenceType:
			reference = true
		case dwarf.TagStructType, dwarf.TagClassType:
			name, _ := e.Val(dwarf.AttrName).(string)
			name, _, _ = strings.Cut(name, "<")
			return reference && name == class
		}
	}
	return false
}

// inherits reports whether a member or base class is passed by reference, and so the whole.
func inherits(t *Type) bool {
	for i := range t.Fields {
		of := t.Fields[i].Type
		for of.Kind == Array && of.Elem != nil {
			of = of.Elem
		}
		if of.ByReference {
			return true
		}
	}
	return false
}

// isEmpty reports whether a struct has no data.
func isEmpty(t *Type, depth int) bool {
	if t.Kind != Struct || depth > maxNesting {
		return false
	}
	for i := range t.Fields {
		f := &t.Fields[i]
		if f.Bits != 0 && f.Name == "" {
			continue
		}
		if !isEmpty(f.Type, depth+1) {
			return false
		}
	}
	return true
}

// rustText are the types of Rust that are an address and a length of text, or of bytes.
var rustText = map[string]bool{"&str": true, "&mut str": true, "&[u8]": true, "&mut [u8]": true}

// asText makes a Span of a struct that is an address and a length of text, and a Text of a std::string whose first two
// words are these: that of libstdc++, not that of libc++, which keeps short ones elsewhere.
func asText(t *Type) {
	switch {
	case strings.HasPrefix(t.Name, "basic_string<char,") && t.Size == 32:
		t.Kind, t.Fields = Text, nil
	case strings.HasPrefix(t.Name, "basic_string_view<char,") && t.Size == 16 && len(t.Fields) == 2:
		t.Kind, t.Swapped = Span, t.Fields[0].Type.Kind == Uint && t.Fields[0].Offset == 0
		t.Fields = nil
	case rustText[t.Name] && t.Size == 16:
		t.Kind, t.Swapped = Span, false
		for _, f := range t.Fields {
			t.Swapped = t.Swapped || f.Name == "length" && f.Offset == 0
		}
		t.Fields = nil
	}
}
