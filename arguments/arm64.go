package arguments

// AAPCS64, 6.8.2: an aggregate of one to four members of one floating-point type has a register for each of them;
// others are passed in general registers if they have 16 bytes at most, else by the address of a copy. Once an
// argument of a kind has gone to the stack, so do all that follow. A result in memory is written to where x8 said at
// the entry, which nobody tells at the exit.

type arm64Call struct {
	general int // registers taken, of 8
	float   int // of 8
	stackWords
}

// homogeneous returns the type of the floating-point members that are all that an aggregate has, and how many.
func homogeneous(t *Type) (of *Type, n int) {
	if !t.aggregate() && t.Kind != Complex {
		return nil, 0
	}
	ends := map[int]bool{}
	same := true
	ok := leaves(t, 0, func(m *Type, at int) {
		parts := 1
		if m.Kind == Complex {
			m = &Type{Kind: Float, Size: m.Size / 2}
			parts = 2
		}
		if m.Kind != Float && m.Kind != Vector || of != nil && (of.Size != m.Size || of.Kind != m.Kind) {
			same = false
			return
		}
		of = m
		for i := range parts {
			ends[at+i*m.Size] = true // a union's members share theirs
		}
	})
	if !ok || !same || of == nil || len(ends) > 4 || len(ends)*of.Size != t.Size {
		return nil, 0
	}
	return of, len(ends)
}

func (s *arm64Call) argument(t *Type) location {
	switch {
	case t.ByReference || t.aggregate() && t.Size > 16:
		if of, n := homogeneous(t); n > 0 && !t.ByReference {
			return s.floats(t, of.Size, n)
		}
		if !t.ByReference && !leaves(t, 0, func(*Type, int) {}) {
			return unknownLocation()
		}
		l := s.argument(&Type{Kind: Uint, Size: 8})
		l.indirect = true
		return l
	case t.Kind == Unknown || t.Kind == Vector && t.Size > 16:
		return unknownLocation()
	case t.Size == 0:
		return location{}
	case t.Kind == Float || t.Kind == Vector:
		return s.floats(t, t.Size, 1)
	}
	if of, n := homogeneous(t); n > 0 {
		return s.floats(t, of.Size, n)
	}
	if !leaves(t, 0, func(*Type, int) {}) {
		return unknownLocation()
	}
	n := (t.Size + 7) / 8
	if t.align() >= 16 {
		s.general += s.general % 2
	}
	if s.general+n <= 8 {
		l := words(inGeneral, s.general, n, t.Size)
		s.general += n
		return l
	}
	s.general = 8
	return s.onStack(t)
}

// floats takes n registers for members of so many bytes.
func (s *arm64Call) floats(t *Type, size, n int) location {
	if s.float+n > 8 {
		s.float = 8
		return s.onStack(t)
	}
	l := floatPieces(s.float, size, n)
	s.float += n
	return l
}

func floatPieces(first, size, n int) (l location) {
	for i := range n {
		l.pieces = append(l.pieces, piece{inFloat, first + i, size})
	}
	return l
}

func (s *arm64Call) taken() (general, float, stack int) { return s.general, s.float, int(s.stackWords) }

func (s *arm64Call) result(t *Type) location {
	var c arm64Call
	if l := c.argument(t); !l.indirect {
		return l
	}
	return unknownLocation()
}
