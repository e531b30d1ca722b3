package arguments

// Where arguments are. A calling convention hands out registers and the stack's words in the order of the parameters,
// so one parameter of which the type is unknown makes all behind it unknown, too. Both conventions are written down
// here as answers to one question: which registers, or words of the stack, hold the bytes of the next argument.

// A Machine is an instruction set with its calling convention.
type Machine uint8

// The machines.
const (
	AMD64 Machine = iota
	ARM64
)

// MachineOf returns a machine by the name that traces have for it, x86_64 or aarch64.
func MachineOf(name string) (m Machine, ok bool) {
	switch name {
	case "x86_64", "amd64":
		return AMD64, true
	case "aarch64", "arm64":
		return ARM64, true
	}
	return 0, false
}

// A piece is where some bytes of a value are: a general register, a floating-point register, or a word of the stack,
// counted from the first that a caller can pass an argument in.
type piece struct {
	at    place
	n     int // which
	bytes int // how many of the value's bytes it has, the next ones
}

type place uint8

const (
	inGeneral place = iota
	inFloat
	onStack
	inX87
	nowhere // padding, which is not passed at all
)

// A location is where a value is.
type location struct {
	pieces []piece
	// indirect: the pieces are the address of the value.
	indirect bool
	unknown  bool
}

// A callState is what is left of registers and stack.
type callState interface {
	// argument takes what a parameter needs.
	argument(t *Type) location
	// taken is how many general registers, floating-point registers and words of the stack arguments have taken.
	taken() (general, float, stack int)
	// result is where a result is when the function returns.
	result(t *Type) location
}

// callOf begins a call of a function with the result.
func (m Machine) callOf(result *Type) callState {
	if m == ARM64 {
		return &arm64Call{}
	}
	c := &amd64Call{}
	if result != nil && (result.ByReference || amd64Memory(result)) {
		c.general = 1 // the address of the result
	}
	return c
}

func unknownLocation() location { return location{unknown: true} }

// words returns pieces for n words of one kind from first on, for a value of so many bytes.
func words(at place, first, n, size int) location {
	var l location
	for i := range n {
		l.pieces = append(l.pieces, piece{at, first + i, min(8, size-8*i)})
	}
	return l
}

// stackWords is how many words of the stack a call's arguments have taken. Both calling conventions take them alike.
type stackWords int

// onStack takes words of the stack.
func (s *stackWords) onStack(t *Type) location {
	if t.align() >= 16 && *s%2 != 0 {
		*s++
	}
	n := (t.Size + 7) / 8
	l := words(onStack, int(*s), n, t.Size)
	*s += stackWords(n)
	return l
}

// leaves calls fn with every member of a type that is not made of others, and its offset. It returns false if something
// is unknown, or there are too many.
func leaves(t *Type, at int, fn func(t *Type, at int)) bool {
	room := maxLeaves
	return eachLeaf(t, at, 0, &room, fn)
}

// maxLeaves bounds the members of a type that is passed: only those of up to 64 bytes matter.
const maxLeaves = 256

// maxNesting bounds how deeply types are nested.
const maxNesting = 24

func eachLeaf(t *Type, at, depth int, room *int, fn func(t *Type, at int)) bool {
	if *room--; *room < 0 || depth > maxNesting || t == nil {
		return false
	}
	switch t.Kind {
	case Struct, Union:
		for i := range t.Fields {
			f := &t.Fields[i]
			switch {
			case f.Bits == 0:
				if !eachLeaf(f.Type, at+f.Offset, depth+1, room, fn) {
					return false
				}
			case f.Name != "":
				first, last := at+f.Bit/8, at+(f.Bit+f.Bits-1)/8
				for b := first; b <= last; b++ {
					fn(&Type{Kind: Uint, Size: 1}, b)
				}
			}
		}
	case Array:
		for i := range t.Count {
			if t.Elem == nil || !eachLeaf(t.Elem, at+i*t.Elem.Size, depth+1, room, fn) {
				return false
			}
		}
	case Span, Text:
		fn(&Type{Kind: Uint, Size: 8}, at)
		fn(&Type{Kind: Uint, Size: 8}, at+8)
	case Unknown:
		return false
	default:
		fn(t, at)
	}
	return true
}
