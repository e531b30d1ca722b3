package arguments

import (
	"debug/dwarf"
	"errors"
	"fmt"
)

// Where members are. Unlike the types of values, which are read as far as values are shown, those on the way to a member
// are looked up one after the other, so that only they are read.

// walk follows steps from a value whose type is at an offset, of any kind that debug information can have.
func (x *reader) walk(from any, path []step) (hops []hop, t *Type, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("debug information: %v", r)
		}
	}()
	at, ok := from.(dwarf.Offset)
	if !ok {
		return nil, nil, errNoTypes
	}
	for _, st := range path {
		e, r, err := x.named(at)
		if err != nil {
			return nil, nil, err
		}
		h := hop{deref: st.deref}
		points := e.Tag == dwarf.TagPointerType || e.Tag == dwarf.TagReferenceType || e.Tag == dwarf.TagRvalueReferenceType
		switch {
		case points:
			h.deref = true
			if !st.deref && !st.index && e.Tag == dwarf.TagPointerType {
				return nil, nil, fmt.Errorf(".%s: it is a pointer: write ->%s", st.name, st.name)
			}
			if at, ok = e.Val(dwarf.AttrType).(dwarf.Offset); !ok {
				return nil, nil, errors.New("nothing is known of where a pointer points")
			}
			if e, r, err = x.named(at); err != nil {
				return nil, nil, err
			}
		case st.deref:
			return nil, nil, fmt.Errorf("->%s: it is no pointer", st.name)
		}
		switch {
		case st.index:
			at, h.offset, err = x.element(e, at, st.number, points)
		case st.name == "":
			err = errors.New("numbers of bytes and names do not go together")
		default:
			at, h.offset, err = x.memberOf(r, e, st.name, 0)
		}
		if err != nil {
			return nil, nil, err
		}
		hops = append(hops, h)
	}
	t, err = x.typeAt(at, true, 0)
	if x.rust && err == nil {
		t = rustPassed(t)
	}
	return hops, t, err
}

// named returns the type at an offset, without names and qualifiers, and a reader that is at its children.
func (x *reader) named(at dwarf.Offset) (*dwarf.Entry, *dwarf.Reader, error) {
	for range maxNesting {
		r := x.d.Reader()
		r.Seek(at)
		e, err := r.Next()
		if err != nil {
			return nil, nil, err
		}
		if e == nil {
			return nil, nil, fmt.Errorf("no type at %#x", at)
		}
		switch e.Tag {
		case dwarf.TagTypedef, dwarf.TagConstType, dwarf.TagVolatileType, dwarf.TagRestrictType, dwarf.TagAtomicType:
			next, ok := e.Val(dwarf.AttrType).(dwarf.Offset)
			if !ok {
				return nil, nil, errors.New("nothing is known of its type")
			}
			at = next
		default:
			return e, r, nil
		}
	}
	return nil, nil, errors.New("its type has too many names")
}

// element is where an element of an array is, or of what a pointer points to.
func (x *reader) element(e *dwarf.Entry, at dwarf.Offset, n int, points bool) (dwarf.Offset, int, error) {
	if e.Tag == dwarf.TagArrayType {
		of, ok := e.Val(dwarf.AttrType).(dwarf.Offset)
		whole, err := x.typeAt(at, false, 0)
		if err != nil || !ok || whole.Kind == Array && whole.Elem != nil && whole.Elem.Kind == Array {
			return 0, 0, errors.New("elements of arrays of arrays have no number")
		}
		at = of
	} else if !points {
		return 0, 0, fmt.Errorf("[%d]: it is no array", n)
	}
	t, err := x.typeAt(at, false, 0)
	if err != nil {
		return 0, 0, err
	}
	if t.Size <= 0 || n > maxReach/t.Size {
		return 0, 0, fmt.Errorf("[%d]: nobody knows where that is", n)
	}
	return at, n * t.Size, nil
}

// maxReach bounds how far a member is from the beginning of a value.
const maxReach = 1 << 30

// memberOf finds a member of a struct or union, also one of its base classes and of members without a name, and returns
// its type and offset.
func (x *reader) memberOf(r *dwarf.Reader, e *dwarf.Entry, name string, depth int) (at dwarf.Offset, offset int, err error) {
	class, _ := e.Val(dwarf.AttrName).(string)
	switch e.Tag {
	case dwarf.TagStructType, dwarf.TagClassType, dwarf.TagUnionType:
	default:
		return 0, 0, fmt.Errorf("it is no struct: no member %q", name)
	}
	if declared, _ := e.Val(dwarf.AttrDeclaration).(bool); declared {
		return 0, 0, fmt.Errorf("the members of %s are not known here: it is only declared", class)
	}
	var inner []*dwarf.Entry
	found := false
	err = eachChild(r, e, func(c *dwarf.Entry) error {
		if c.Tag != dwarf.TagMember && c.Tag != dwarf.TagInheritance || found {
			return nil
		}
		called, _ := c.Val(dwarf.AttrName).(string)
		if called == "" {
			inner = append(inner, c)
		}
		if called != name || c.Tag != dwarf.TagMember {
			return nil
		}
		found = true
		if c.Val(dwarf.AttrBitSize) != nil {
			return fmt.Errorf("%s is a bit field", name)
		}
		var ok bool
		if at, offset, ok = placeOf(c); !ok {
			return fmt.Errorf("where %s is in %s only the program knows", name, class)
		}
		return nil
	})
	if found || err != nil {
		return at, offset, err
	}
	for _, c := range inner {
		of, base, ok := placeOf(c)
		if !ok || depth > maxNesting {
			continue
		}
		e, r, err := x.named(of)
		if err != nil {
			continue
		}
		if at, offset, err := x.memberOf(r, e, name, depth+1); err == nil {
			return at, base + offset, nil
		}
	}
	if class == "" {
		class = "it"
	}
	return 0, 0, fmt.Errorf("%s has no member %q", class, name)
}

// placeOf is a member's type and offset; false: it is none of an object, or where it is depends on the object.
func placeOf(e *dwarf.Entry) (at dwarf.Offset, offset int, ok bool) {
	if external, _ := e.Val(dwarf.AttrExternal).(bool); external {
		return 0, 0, false
	}
	at, ok = e.Val(dwarf.AttrType).(dwarf.Offset)
	switch n := e.Val(dwarf.AttrDataMemberLoc).(type) {
	case int64:
		offset = int(n)
		ok = ok && n >= 0 && n <= maxReach
	case nil:
	default:
		ok = false
	}
	return at, offset, ok
}
