package arguments

import (
	"debug/dwarf"
	"errors"
	"fmt"
	"strings"
)

// Types from debug information. Package debug/dwarf makes types of what a program's do, but leaves out what decides how
// they are passed: base classes, and whether a class is trivial. So they are read from the entries here, and only as far
// as a value can be shown: of what a pointer points to no more than that it is text.

// Functions returns the parameters and results of the functions that begin at the given addresses, as far as debug
// information has them. name gives a function's symbol, which tells clones. Errors are those of malformed debug
// information.
func Functions(d *dwarf.Data, m Machine, addrs map[uint64]bool, name func(addr uint64) string) (fs map[uint64]*Func, err error) {
	defer func() { // debug/dwarf does not promise to have no panics
		if r := recover(); r != nil {
			err = fmt.Errorf("debug information: %v", r)
		}
	}()
	x := &reader{d: d, machine: m, types: map[typeKey]*Type{}, out: map[uint64]*Func{}, wanted: addrs, name: name}
	r := d.Reader()
	for len(x.out) < len(addrs) {
		e, err := r.Next()
		if err != nil {
			return nil, err
		}
		if e == nil {
			break
		}
		if err := x.entry(r, e); err != nil {
			return nil, err
		}
	}
	return x.out, nil
}

type typeKey struct {
	at   dwarf.Offset
	deep bool
}

type reader struct {
	d       *dwarf.Data
	machine Machine
	types   map[typeKey]*Type
	out     map[uint64]*Func
	wanted  map[uint64]bool
	name    func(uint64) string
	rust    bool // the unit's language
}

// DWARF languages whose calling convention is not C's.
const (
	languageRust = 0x1c
	languageGo   = 0x16
)

// entry looks for functions in an entry that is no function's.
func (x *reader) entry(r *dwarf.Reader, e *dwarf.Entry) error {
	switch e.Tag {
	case dwarf.TagCompileUnit, dwarf.TagSkeletonUnit:
		language, _ := e.Val(dwarf.AttrLanguage).(int64)
		x.rust = language == languageRust
		if language == languageGo {
			r.SkipChildren()
		}
	case dwarf.TagNamespace, dwarf.TagModule:
	case dwarf.TagStructType, dwarf.TagClassType, dwarf.TagUnionType, dwarf.TagEnumerationType:
		if e.Children && !x.rust { // Rust defines methods there
			r.SkipChildren()
		}
	case dwarf.TagSubprogram:
		low, ok := x.begin(e)
		if !ok || !x.wanted[low] || x.out[low] != nil {
			r.SkipChildren()
			return nil
		}
		return x.function(r, e, low)
	default:
		r.SkipChildren()
	}
	return nil
}

// begin is where a function begins. One in several parts mostly says which of them it is.
func (x *reader) begin(e *dwarf.Entry) (addr uint64, ok bool) {
	if addr, ok = e.Val(dwarf.AttrLowpc).(uint64); ok || e.Val(dwarf.AttrRanges) == nil {
		return addr, ok
	}
	if addr, ok = e.Val(dwarf.AttrEntrypc).(uint64); ok {
		return addr, true
	}
	parts, err := x.d.Ranges(e)
	if err != nil || len(parts) == 0 {
		return 0, false
	}
	return parts[0][0], true
}

// function reads a function and its parameters.
func (x *reader) function(r *dwarf.Reader, e *dwarf.Entry, low uint64) error {
	f := &Func{Name: x.text(e, dwarf.AttrName)}
	if at, ok := x.attribute(e, dwarf.AttrType).(dwarf.Offset); ok {
		t, err := x.typeAt(at, true, 0)
		if err != nil {
			return err
		}
		if x.rust {
			t = rustPassed(t)
		}
		if t.Kind != Void {
			f.Result = t
		}
	}
	const doesNotFollow = 3 // DW_CC_nocall
	if cc, ok := e.Val(dwarf.AttrCalling).(int64); ok && cc == doesNotFollow || isClone(x.name(low)) {
		f.Why = "optimized out"
	}
	x.out[low] = f
	if !e.Children {
		return nil
	}
	for depth := 0; ; {
		c, err := r.Next()
		switch {
		case err != nil:
			return err
		case c == nil:
			return errors.New("debug information ends inside a function")
		case c.Tag == 0:
			if depth == 0 {
				return nil
			}
			depth--
			continue
		case c.Tag == dwarf.TagFormalParameter:
			if err := x.param(f, c); err != nil {
				return err
			}
		case c.Tag == dwarf.TagUnspecifiedParameters:
			f.Variadic = true
		}
		if c.Children {
			r.SkipChildren()
		}
		if len(f.Params) > maxParams {
			return fmt.Errorf("function at %#x has more than %d parameters", low, maxParams)
		}
	}
}

// maxParams bounds the parameters of a function.
const maxParams = 1024

func (x *reader) param(f *Func, e *dwarf.Entry) error {
	t := &Type{}
	if at, ok := x.attribute(e, dwarf.AttrType).(dwarf.Offset); ok {
		var err error
		if t, err = x.typeAt(at, true, 0); err != nil {
			return err
		}
	}
	if x.rust {
		t = rustPassed(t)
	}
	f.Params = append(f.Params, Param{Name: x.text(e, dwarf.AttrName), Type: t})
	return nil
}

// rustPassed is a type as Rust passes it: numbers, pointers and pairs of words as C does; what else it does is nowhere
// promised.
func rustPassed(t *Type) *Type {
	if t.aggregate() && t.Kind != Span && t.Size > 0 {
		return &Type{Name: t.Name}
	}
	return t
}

// isClone reports whether a symbol is that of a copy that a compiler has made for some callers, with other parameters.
func isClone(symbol string) bool {
	for _, s := range []string{".isra.", ".constprop.", ".part."} {
		if strings.Contains(symbol, s) {
			return true
		}
	}
	return false
}

// attribute returns an attribute of an entry, or of what it is an instance or a definition of.
func (x *reader) attribute(e *dwarf.Entry, a dwarf.Attr) any {
	for range 4 {
		if v := e.Val(a); v != nil {
			return v
		}
		at, ok := e.Val(dwarf.AttrAbstractOrigin).(dwarf.Offset)
		if !ok {
			if at, ok = e.Val(dwarf.AttrSpecification).(dwarf.Offset); !ok {
				return nil
			}
		}
		r := x.d.Reader()
		r.Seek(at)
		next, err := r.Next()
		if err != nil || next == nil {
			return nil
		}
		e = next
	}
	return nil
}

func (x *reader) text(e *dwarf.Entry, a dwarf.Attr) string {
	s, _ := x.attribute(e, a).(string)
	return s
}

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
	if t.Size == 0 {
		of, err := x.of(e, false, depth)
		if err != nil {
			return nil, err
		}
		t.Size = of.Size
	}
	if t.Size > 8 {
		return &Type{Name: name}, nil
	}
	err := eachChild(r, e, func(c *dwarf.Entry) error {
		v, ok := c.Val(dwarf.AttrConstValue).(int64)
		n, _ := c.Val(dwarf.AttrName).(string)
		if c.Tag == dwarf.TagEnumerator && ok && len(t.Enum) < maxEnumerators {
			t.Enum = append(t.Enum, Enumerator{n, v})
		}
		return nil
	})
	return t, err
}

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
