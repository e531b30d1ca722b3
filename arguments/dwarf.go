package arguments

import (
	"debug/dwarf"
	"errors"
	"fmt"
	"strings"
)

// Types from debug information. Package debug/dwarf makes types of what a program's do, but leaves out what decides how
// they are passed: base classes, and whether a class is trivial. So they are read from the entries here, and only as
// far as a value can be shown: of what a pointer points to no more than that it is text.

// Functions returns the parameters and results of the functions that begin at the given addresses, as far as debug
// information has them. name gives a function's symbol, which tells clones. Errors are those of malformed debug
// information.
func Functions(
	d *dwarf.Data, m Machine, addrs map[uint64]bool, name func(addr uint64) string,
) (fs map[uint64]*Func, err error) {
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
	f := &Func{Name: x.text(e, dwarf.AttrName), types: x}
	if at, ok := x.attribute(e, dwarf.AttrType).(dwarf.Offset); ok {
		t, err := x.typeAt(at, true, 0)
		if err != nil {
			return err
		}
		if x.rust {
			t = rustPassed(t)
		}
		if t.Kind != Void {
			f.Result, f.result = t, at
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
	at, ok := x.attribute(e, dwarf.AttrType).(dwarf.Offset)
	if ok {
		var err error
		if t, err = x.typeAt(at, true, 0); err != nil {
			return err
		}
	}
	if x.rust {
		t = rustPassed(t)
	}
	f.Params = append(f.Params, Param{Name: x.text(e, dwarf.AttrName), Type: t, at: at})
	return nil
}

// rustPassed is a type as Rust passes it: numbers, pointers and pairs of words as C does; what else it does is nowhere
// promised.
func rustPassed(t *Type) *Type {
	if t.aggregate() && t.Kind != Span && t.Size > 0 && !isFat(t) {
		return &Type{Name: t.Name}
	}
	return t
}

// isFat reports whether a type is Rust's reference to a slice or to an object with methods: two words, the second of which
// is a length or an address.
func isFat(t *Type) bool {
	to, ok := strings.CutPrefix(t.Name, "&")
	to = strings.TrimPrefix(to, "mut ")
	return ok && t.Kind == Struct && t.Size == 16 && len(t.Fields) == 2 &&
		(strings.HasPrefix(to, "[") || strings.HasPrefix(to, "dyn "))
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
