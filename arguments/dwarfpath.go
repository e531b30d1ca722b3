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
		if n := len(hops); n > 0 && hops[n-1].bits != 0 {
			return nil, nil, noMember{path[n-1].name + " is a bit field: it has no members"}
		}
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
			return nil, nil, noMember{"->" + st.name + ": it is no pointer"}
		}
		switch {
		case st.index:
			at, h.offset, err = x.element(e, at, st.number, points)
		case st.name == "":
			err = errors.New("numbers of bytes and names do not go together")
		default:
			var to memberPlace
			to, err = x.memberOf(r, e, st.name, 0)
			at, h.offset, h.bit, h.bits = to.at, to.offset, to.bit, to.bits
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

// A memberPlace is where a member is: its type, how many bytes from the beginning, and of a bit field which bits from there.
type memberPlace struct {
	at        dwarf.Offset
	offset    int
	bit, bits int
}

// noMember says why a value has no such member.
type noMember struct{ why string }

func (e noMember) Error() string { return e.why }

// Is makes it an [ErrNoArgument], too: conditions for all functions are for those that have what they compare.
func (e noMember) Is(target error) bool { return target == ErrNoArgument }

// memberOf finds a member of a struct or union, also one of its base classes and of members without a name.
func (x *reader) memberOf(r *dwarf.Reader, e *dwarf.Entry, name string, depth int) (to memberPlace, err error) {
	class, _ := e.Val(dwarf.AttrName).(string)
	switch e.Tag {
	case dwarf.TagStructType, dwarf.TagClassType, dwarf.TagUnionType:
	default:
		return to, noMember{fmt.Sprintf("it is no struct: no member %q", name)}
	}
	if declared, _ := e.Val(dwarf.AttrDeclaration).(bool); declared {
		return to, fmt.Errorf("the members of %s are not known here: it is only declared", class)
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
		var ok bool
		if to.at, to.offset, ok = placeOf(c); !ok {
			return fmt.Errorf("where %s is in %s only the program knows", name, class)
		}
		return x.bitField(c, &to)
	})
	if found || err != nil {
		return to, err
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
		if to, err := x.memberOf(r, e, name, depth+1); err == nil {
			to.offset += base
			return to, nil
		}
	}
	if class == "" {
		class = "it"
	}
	return to, noMember{fmt.Sprintf("%s has no member %q", class, name)}
}

// bitField says which bits a member has, if it is a bit field: from the byte in which they begin.
func (x *reader) bitField(e *dwarf.Entry, to *memberPlace) error {
	of, err := x.typeAt(to.at, false, 0)
	if err != nil {
		return err
	}
	bit, bits, ok := bitsOf(e, of, to.offset)
	if !ok {
		return nil
	}
	if bits <= 0 || bits > 64 || bit < 0 || bit/8 > maxReach {
		return errors.New("nobody knows which bits it has")
	}
	to.offset, to.bit, to.bits = int(bit/8), int(bit%8), int(bits)
	return nil
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
