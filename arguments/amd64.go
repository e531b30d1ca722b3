package arguments

import "slices"

// System V psABI for x86-64, 3.2.3: each eight bytes of a value have a class, and a value whose classes do not all find
// a register is passed on the stack as a whole. What is odd: a class that a struct's members do not touch is passed
// nowhere; unaligned members and long doubles put a struct on the stack; long doubles are returned on the x87's stack.

type amd64Call struct {
	general int // registers taken, of 6
	float   int // of 8
	stackWords
}

type amd64Class uint8

const (
	classNone amd64Class = iota
	classInteger
	classSSE
	classUp // the upper half of a vector register
	classX87
	classX87Up
	classMemory
)

// amd64Classes returns the classes of a type's eightbytes: at most two, or classMemory alone. none: it is not known.
func amd64Classes(t *Type) (classes []amd64Class, ok bool) {
	memory := []amd64Class{classMemory}
	switch {
	case t.Size > 16 || t.Size < 0:
		return memory, t.Kind != Vector
	case t.Kind == Unknown:
		return nil, false
	case t.Size == 0 || t.Empty:
		return nil, true
	}
	c := make([]amd64Class, (t.Size+7)/8)
	unaligned := false
	ok = leaves(t, 0, func(m *Type, at int) {
		if m.Size > 0 && at%m.align() != 0 {
			unaligned = true
		}
		amd64Merge(c, m, at)
	})
	if !ok {
		return nil, false
	}
	for i, k := range c {
		if k == classMemory || k == classX87Up && (i == 0 || c[i-1] != classX87) {
			return memory, true
		}
		if k == classUp && (i == 0 || c[i-1] != classSSE) {
			c[i] = classSSE
		}
	}
	if unaligned {
		return memory, true
	}
	return c, true
}

// amd64Merge adds the classes of a member at an offset to those of the whole.
func amd64Merge(c []amd64Class, m *Type, at int) {
	put := func(i int, k amd64Class) {
		switch {
		case i >= len(c) || c[i] == k || c[i] == classMemory:
		case c[i] == classNone:
			c[i] = k
		case k == classMemory:
			c[i] = classMemory
		case k == classInteger || c[i] == classInteger:
			c[i] = classInteger
		case k == classX87 || k == classX87Up || c[i] == classX87 || c[i] == classX87Up:
			c[i] = classMemory
		default:
			c[i] = classSSE
		}
	}
	first := at / 8
	switch m.Kind {
	case LongDouble:
		put(first, classX87)
		put(first+1, classX87Up)
	case Float:
		put(first, classSSE)
		if m.Size > 8 {
			put(first+1, classUp)
		}
	case Complex:
		for i := first; i <= (at+m.Size-1)/8; i++ {
			put(i, classSSE)
		}
	case Vector:
		put(first, classSSE)
		if m.Size > 8 {
			put(first+1, classUp)
		}
	default:
		for i := first; i <= (at+max(1, m.Size)-1)/8; i++ {
			put(i, classInteger)
		}
	}
}

// amd64Memory reports whether a value is passed in memory.
func amd64Memory(t *Type) bool {
	if t.Kind == LongDouble || t.Kind == Complex {
		return false // as results they are not
	}
	c, ok := amd64Classes(t)
	return ok && len(c) > 0 && c[0] == classMemory
}

// amd64Pieces places eightbytes in registers from the given ones on. It returns the next ones, and false if a class is
// in none.
func amd64Pieces(t *Type, classes []amd64Class, general, float int) (l location, nextGeneral, nextFloat int, ok bool) {
	for i, k := range classes {
		p := piece{bytes: min(8, t.Size-8*i)}
		switch k {
		case classInteger:
			p.at, p.n = inGeneral, general
			general++
		case classSSE:
			p.at, p.n = inFloat, float
			float++
		case classUp:
			l.pieces[i-1].bytes += p.bytes
			continue
		case classNone:
			p.at = nowhere
		case classX87:
			p.at, p.bytes = inX87, 16
		case classX87Up:
			continue
		default:
			return l, 0, 0, false
		}
		l.pieces = append(l.pieces, p)
	}
	return l, general, float, true
}

func (s *amd64Call) argument(t *Type) location {
	if t.ByReference {
		l := s.argument(&Type{Kind: Uint, Size: 8})
		l.indirect = true
		return l
	}
	c, ok := amd64Classes(t)
	if !ok {
		return unknownLocation()
	}
	l, general, float, ok := amd64Pieces(t, c, s.general, s.float)
	if !ok || general > 6 || float > 8 || slices.Contains(c, classX87) {
		return s.onStack(t)
	}
	s.general, s.float = general, float
	return l
}

func (s *amd64Call) taken() (general, float, stack int) { return s.general, s.float, int(s.stackWords) }

func (s *amd64Call) result(t *Type) location {
	if t.ByReference || amd64Memory(t) {
		l := words(inGeneral, 0, 1, 8)
		l.indirect = true
		return l
	}
	c, ok := amd64Classes(t)
	if !ok {
		return unknownLocation()
	}
	l, _, _, ok := amd64Pieces(t, c, 0, 0)
	if !ok {
		return unknownLocation()
	}
	return l
}
