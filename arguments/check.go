package arguments

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strings"

	"github.com/fentry-dev/fentry/internal/format"
)

// Conditions are looked at by readers, who know types, and by the runtime, which does not: for it a condition is a Check,
// a place, a size and a number or a text. What needs more than that, such as floating point, is for readers only.

// A Check is a Condition that the runtime looks at when a call begins.
type Check struct {
	op     Op
	hops   []uint64 // from that word to the one that is compared, each as the runtime reads it
	how    uint8    // a comparison of the runtime's
	skip   int      // lowest bits of the word that do not count
	size   int      // bits of the word behind them that do; of text: bytes at most
	signed bool
	value  uint64
	text   string
}

// Encode returns the check as the runtime reads it.
func (c *Check) Encode() []byte {
	b := make([]byte, format.ConditionSize)
	b[format.ConditionOCode], b[format.ConditionOFrom] = byte(c.op.Code), c.op.From
	b[format.ConditionOCompare], b[format.ConditionOSize] = c.how, byte(c.size)
	b[format.ConditionOSkip], b[format.ConditionOHops] = byte(c.skip), byte(len(c.hops))
	if c.signed {
		b[format.ConditionOIsSigned] = 1
	}
	b[format.ConditionOLength] = byte(len(c.text))
	binary.LittleEndian.PutUint64(b[format.ConditionOValue:], c.value)
	for _, h := range c.hops {
		b = binary.LittleEndian.AppendUint64(b, h)
	}
	return append(b, c.text...)
}

// hopTo makes a hop: what is offset bytes behind the address that a word is, size bytes of it; with size 0 that address.
func hopTo(offset, size int) uint64 { return uint64(offset) | uint64(size)<<32 }

// maxPattern bounds the text of a check: the runtime compares that many bytes at most.
const maxPattern = 128

// ErrNoArgument is returned by [PlanCheck] for a function that has no argument of the name, as far as is known.
var ErrNoArgument = errors.New("no such argument")

// PlanCheck says how the runtime looks at a condition when f is called. f is nil if nothing is known of it: then argN are
// the registers that integers are passed in.
func PlanCheck(f *Func, m Machine, cond *Condition) (*Check, error) {
	t, at, l, err := f.argument(m, &cond.item)
	if err != nil {
		return nil, err
	}
	c, err := cond.reach(f, t, at, l)
	if err != nil {
		return nil, fmt.Errorf("%s cannot be compared while the program runs: %w", cond.Name, err)
	}
	return c, nil
}

// argument finds an argument by its name, or as argN by its place: its type, nil if that is not known, with its place in
// debug information, and where it is.
func (f *Func) argument(m Machine, it *Item) (*Type, any, location, error) {
	if f == nil && it.kind == itemParam {
		return nil, nil, location{}, ErrNoArgument
	}
	if f == nil || it.kind == itemStack {
		l, err := it.location(m)
		return nil, nil, l, err
	}
	for i := range f.Params {
		if f.Params[i].Name == it.base || it.kind == itemInteger && it.n == i {
			p, l := f.at(m, i)
			return p.Type, p.at, l, nil
		}
	}
	return nil, nil, location{}, fmt.Errorf("%w%s", ErrNoArgument, f.others())
}

// errNotOneWord is returned for what the runtime has not in one place.
var errNotOneWord = errors.New("it is not in one register or word")

// reach compares what a condition's members lead to from an argument.
func (cond *Condition) reach(f *Func, t *Type, at any, l location) (*Check, error) {
	var hops []hop
	if path := cond.item.path; path != nil {
		var x *reader
		if f != nil {
			x = f.types
		}
		var err error
		if hops, t, err = x.hops(at, path); err != nil {
			return nil, err
		}
	}
	if l.unknown || len(l.pieces) == 0 {
		return nil, errNotOneWord
	}
	t = cond.item.shown(t)
	c, err := cond.check(t)
	if err != nil {
		return nil, err
	}
	if n := len(hops); n > 0 && hops[n-1].bits != 0 {
		c.skip, c.size, c.signed = hops[n-1].bit, hops[n-1].bits, !t.unsignedBits()
	}
	if err := c.walk(l, hops); err != nil {
		return nil, err
	}
	text := c.how >= format.CompareText
	switch n := len(c.hops); {
	case n == 0 && t.Kind == Array, text && c.skip != 0, !text && c.skip+c.size > 64:
		return nil, errNotOneWord
	case n == 0 || t.Kind == Array: // a text begins there
	case text:
		c.hops[n-1] |= hopTo(0, 8)
	default:
		c.hops[n-1] |= hopTo(0, (c.skip+c.size+7)/8)
	}
	return c, nil
}

// walk goes from a location to what a member is a part of. The last of its hops ends at its place, or none: it is in the
// word itself, c.skip bits from the lowest.
func (c *Check) walk(l location, hops []hop) error {
	offset := 0
	take := func(pc piece) (err error) {
		var words int
		if c.op, words = pc.op(); words != 1 {
			err = errNotOneWord
		}
		return err
	}
	address := l.indirect
	if address {
		if err := take(l.pieces[0]); err != nil {
			return err
		}
	}
	for _, h := range hops {
		switch {
		case h.deref && address:
			c.hops = append(c.hops, hopTo(offset, 8))
		case h.deref:
			pc, ok := l.word(offset)
			if !ok {
				return errScattered
			}
			if err := take(pc); err != nil {
				return err
			}
		}
		if h.deref {
			offset, address = 0, true
		}
		if offset += h.offset; offset > math.MaxInt32 {
			return errFar
		}
	}
	if address {
		c.hops = append(c.hops, hopTo(offset, 0))
		return nil
	}
	word := offset / 8
	if l.stride() != 0 || word >= len(l.pieces) || len(hops) == 0 && len(l.pieces) != 1 {
		return errNotOneWord
	}
	c.skip += offset % 8 * 8
	return take(l.pieces[word])
}

// comparisons are the runtime's for numbers and for text.
var comparisons = map[string]struct{ number, text uint8 }{
	"=": {format.CompareEqual, format.CompareText}, "==": {format.CompareEqual, format.CompareText},
	"!=": {format.CompareUnequal, format.CompareNoText},
	"<":  {format.CompareLess, 0}, "<=": {format.CompareAtMost, 0},
	">": {format.CompareMore, 0}, ">=": {format.CompareAtLeast, 0},
	"~": {0, format.CompareLike}, "!~": {0, format.CompareUnlike},
}

// check compares a value of a type.
func (cond *Condition) check(t *Type) (*Check, error) {
	how := comparisons[cond.op]
	if t.Kind == String && (how.number == 0 || cond.exact == nil) {
		if len(cond.value) > maxPattern {
			return nil, fmt.Errorf("a text of more than %d bytes", maxPattern)
		}
		return &Check{how: how.text, size: maxPattern, text: cond.value}, nil
	}
	if t.Kind == Array && t.Elem != nil && t.Elem.Kind == Char && t.Count > 0 && how.text != 0 {
		if len(cond.value) > maxPattern {
			return nil, fmt.Errorf("a text of more than %d bytes", maxPattern)
		}
		return &Check{how: how.text, size: min(t.Count, maxPattern), text: cond.value}, nil
	}
	if how.number == 0 {
		return nil, errors.New("it is no C string")
	}
	c := &Check{how: how.number, size: 8 * t.Size, signed: t.hasSign()}
	switch t.Kind {
	case Bool, Char, Int, Uint, Enum, Pointer, Reference, String:
	default:
		return nil, fmt.Errorf("it is a %s", t.Kind)
	}
	if t.Size < 1 || t.Size > 8 {
		return nil, fmt.Errorf("it has %d bytes", t.Size)
	}
	n, err := cond.constant(t)
	if err != nil {
		return nil, err
	}
	low, high := big.NewInt(math.MinInt64), big.NewInt(math.MaxInt64)
	if t.Size == 8 && !c.signed {
		low, high = new(big.Int), new(big.Int).SetUint64(math.MaxUint64)
	}
	if n.Cmp(low) < 0 || n.Cmp(high) > 0 {
		return nil, fmt.Errorf("%s is no value of its type", cond.value)
	}
	c.value = n.Uint64()
	if n.Sign() < 0 {
		c.value = uint64(n.Int64())
	}
	return c, nil
}

// constant is what a number is compared with.
func (cond *Condition) constant(t *Type) (*big.Int, error) {
	if cond.exact != nil {
		n, accuracy := cond.exact.Int(nil)
		if accuracy != big.Exact {
			return nil, fmt.Errorf("%s is no integer", cond.value)
		}
		return n, nil
	}
	switch {
	case t.Kind == Bool && (cond.value == "true" || cond.value == "false"):
		return big.NewInt(int64(strings.Index("ft", cond.value[:1]))), nil
	case t.Kind == Char && len(cond.value) == 1:
		return big.NewInt(int64(cond.value[0])), nil
	case t.Kind == Enum:
		var sum int64
		for name := range strings.SplitSeq(cond.value, "|") {
			i := slices.IndexFunc(t.Enum, func(e Enumerator) bool { return e.Name == name })
			if i < 0 {
				return nil, fmt.Errorf("%q is none of its names", name)
			}
			sum |= t.Enum[i].Value
		}
		return big.NewInt(sum), nil
	}
	return nil, fmt.Errorf("%s is no number", cond.value)
}
