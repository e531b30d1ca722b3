package arguments

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Members. An item can go on behind an argument or the result: req->header.length, retval->next->name, argv[1], or, where
// there is no debug information, arg1->16. The way there is a list of steps, which types turn into places in memory and
// words to load; the runtime knows only these.

// A step leads from a value to a part of it, or of what it points to.
type step struct {
	deref  bool   // -> or, of a pointer, [N]
	name   string // of a member; "": a number of bytes, or an element
	number int
	index  bool // [N]
}

// maxSteps bounds how far an item goes.
const maxSteps = 8

// cutPath separates the name with which an item begins from the steps behind it, and these from what follows them.
func cutPath(text string) (name string, path []step, rest string, err error) {
	end := func(s string) int {
		for i := range len(s) {
			if strings.IndexByte(".[/%-", s[i]) >= 0 && i > 0 {
				return i
			}
		}
		return len(s)
	}
	n := end(text)
	name, rest = text[:n], text[n:]
	for rest != "" && rest[0] != '/' && rest[0] != '%' {
		var st step
		from := rest
		switch {
		case strings.HasPrefix(rest, "->"):
			st.deref, rest = true, rest[2:]
		case rest[0] == '.':
			rest = rest[1:]
		case rest[0] == '[':
			digits, behind, closed := strings.Cut(rest[1:], "]")
			if st.number, err = strconv.Atoi(digits); err != nil || !closed || st.number < 0 || st.number > math.MaxInt32 {
				return "", nil, "", fmt.Errorf("%q is not a [NUMBER]", from)
			}
			st.index = true
			rest = behind
		default:
			return "", nil, "", fmt.Errorf("%q in %q is neither ->MEMBER, .MEMBER nor [NUMBER]", from, text)
		}
		if !st.index {
			n := end(rest)
			st.name, rest = rest[:n], rest[n:]
			if v, err := strconv.ParseUint(st.name, 0, 31); err == nil && st.deref {
				st.name, st.number = "", int(v)
			} else if !isName(st.name) {
				return "", nil, "", fmt.Errorf("%q is no member's name in %q", st.name, text)
			}
		}
		if path = append(path, st); len(path) > maxSteps {
			return "", nil, "", fmt.Errorf("more than %d members in %q", maxSteps, text)
		}
	}
	return name, path, rest, nil
}

// A hop is a step of which the offset is known: bytes on, and before them, with deref, to where a pointer points.
type hop struct {
	deref     bool
	offset    int
	bit, bits int // of a bit field, which is the last: as in a Field, from the offset on; bits 0: it is none
}

// errNoTypes is returned for members of what nothing is known about.
var errNoTypes = errors.New("no debug information says where its members are")

// hops are the steps of an item behind a value of a type, and the type to which they lead: nil if that is only numbers.
func (x *reader) hops(at any, path []step) (hops []hop, t *Type, err error) {
	numbers := true
	for _, st := range path {
		numbers = numbers && st.name == "" && !st.index
	}
	if numbers {
		for _, st := range path {
			hops = append(hops, hop{deref: st.deref, offset: st.number})
		}
		return hops, nil, nil
	}
	if x == nil {
		return nil, nil, errNoTypes
	}
	return x.walk(at, path)
}

// member makes a value of what hops lead to from a location of a value of size bytes.
func (p *program) member(name string, t *Type, l location, hops []hop, format string) (Value, error) {
	if l.unknown {
		return Value{Name: name, Type: t, Format: format}, nil
	}
	before := *p
	v, err := p.tryMember(name, t, l, hops, format)
	if err == nil && (len(p.words)+len(p.memory) > MaxOps || p.n > MaxWords) {
		p.full = true
	}
	if err != nil || p.full {
		full := p.full
		*p = before
		p.full = full
		v.Words = 0
	}
	return v, err
}

func (p *program) tryMember(name string, t *Type, l location, hops []hop, format string) (Value, error) {
	v := Value{Name: name, Type: t, Format: format}
	if last := hops[len(hops)-1]; last.bits != 0 {
		v.Bit, v.Bits = last.bit, last.bits
	}
	at, offset, address := 0, 0, l.indirect
	if address {
		at = p.word(l.pieces[0].op())
	}
	for _, h := range hops {
		if h.deref && address {
			at = p.load(OpDeref, at, offset)
			offset = 0
		} else if h.deref {
			pc, ok := l.word(offset)
			if !ok {
				return v, errScattered
			}
			at, offset, address = p.word(pc.op()), 0, true
		}
		if offset += h.offset; offset > math.MaxInt32 {
			return v, errFar
		}
	}
	v.Words = 1
	switch {
	case !address:
		v.Offset, v.Word = offset, p.n
		for _, pc := range l.pieces {
			p.piece(pc)
		}
		v.Words = p.n - v.Word
		if l.stride() != 0 || offset%8 != 0 || v.Bits != 0 {
			v.Stride = l.stride()
			if t.Elem != nil || t.Kind == String {
				return v, errScattered
			}
			return v, nil
		}
		whole := v
		whole.Word += offset / 8
		p.follow(&whole)
		return v, nil
	case t.Kind == String || t.Elem != nil && (t.Kind == Pointer || t.Kind == Reference):
		v.Word = p.load(OpDeref, at, offset)
	case offset != 0:
		v.Word, v.Indirect = p.load(OpPlace, at, offset), true
	default:
		v.Word, v.Indirect = at, true
	}
	p.follow(&v)
	return v, nil
}

// Errors of members that cannot be reached.
var (
	errFar       = errors.New("it is too far from where a pointer points")
	errScattered = errors.New("a pointer on the way is in no register or word of its own")
)

// load captures a word that is reached from another, and returns which that is.
func (p *program) load(code Code, from, offset int) int {
	for offset > math.MaxUint16 && p.n <= MaxWords {
		from = p.word(Op{OpPlace, uint8(from), math.MaxUint16}, 1)
		offset -= math.MaxUint16
	}
	return p.word(Op{code, uint8(from), uint16(offset)}, 1)
}

// word captures what an operation makes n words of, unless there is one already, and returns the first of them.
func (p *program) word(op Op, n int) int {
	at := 0
	for _, have := range p.words {
		if have == op {
			return at
		}
		if at++; have.Code == OpVector || have.Code == OpX87 {
			at++
		}
	}
	p.words = append(p.words, op)
	p.n += n
	return at
}

// word is the piece that has the eight bytes at an offset of a value.
func (l *location) word(offset int) (piece, bool) {
	at := 0
	for _, pc := range l.pieces {
		if at == offset && pc.bytes == 8 && pc.at != nowhere {
			return pc, true
		}
		at += max(8, pc.bytes)
	}
	return piece{}, false
}

// stride is how many bytes each of a value's words has if that is not eight.
func (l *location) stride() int {
	if len(l.pieces) > 1 && l.pieces[0].at == inFloat && l.pieces[0].bytes < 8 {
		return l.pieces[0].bytes
	}
	return 0
}
