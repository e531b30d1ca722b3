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
	how    uint8 // a comparison of the runtime's
	size   int   // bytes of the word that count
	signed bool
	value  uint64
	text   string
}

// Encode returns the check as the runtime reads it.
func (c *Check) Encode() []byte {
	b := make([]byte, format.ConditionSize)
	b[format.ConditionOCode], b[format.ConditionOFrom] = byte(c.op.Code), c.op.From
	b[format.ConditionOCompare], b[format.ConditionOSize] = c.how, byte(c.size)
	if c.signed {
		b[format.ConditionOIsSigned] = 1
	}
	binary.LittleEndian.PutUint16(b[format.ConditionOLength:], uint16(len(c.text)))
	binary.LittleEndian.PutUint64(b[format.ConditionOValue:], c.value)
	return append(b, c.text...)
}

// maxPattern bounds the text of a check: the runtime compares that many bytes at most.
const maxPattern = 128

// ErrNoArgument is returned by [PlanCheck] for a function that has no argument of the name, as far as is known.
var ErrNoArgument = errors.New("no such argument")

// PlanCheck says how the runtime looks at a condition when f is called. f is nil if nothing is known of it: then argN are
// the registers that integers are passed in.
func PlanCheck(f *Func, m Machine, cond *Condition) (*Check, error) {
	t, l, err := f.argument(m, cond.Name)
	if err != nil {
		return nil, err
	}
	c, err := cond.check(t)
	if err == nil && (l.unknown || l.indirect || len(l.pieces) != 1) {
		err = errors.New("it is not in one register or word")
	}
	if err == nil {
		var words int
		if c.op, words = l.pieces[0].op(); words != 1 {
			err = errors.New("it is not in one register or word")
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%s cannot be compared while the program runs: %w", cond.Name, err)
	}
	return c, nil
}

// argument finds an argument by its name, or as argN by its place.
func (f *Func) argument(m Machine, name string) (*Type, location, error) {
	it, err := parseItem(name)
	if err != nil {
		return nil, location{}, err
	}
	if f == nil {
		if it.kind == itemParam {
			return nil, location{}, ErrNoArgument
		}
		l, err := it.location(m)
		return it.typ(), l, err
	}
	for i := range f.Params {
		if f.Params[i].Name != name && (it.kind != itemInteger || it.n != i) {
			continue
		}
		p, l := f.at(m, i)
		return p.Type, l, nil
	}
	return nil, location{}, ErrNoArgument
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
		return &Check{how: how.text, size: 8, text: cond.value}, nil
	}
	if how.number == 0 {
		return nil, errors.New("it is no C string")
	}
	c := &Check{how: how.number, size: t.Size, signed: t.Kind == Int || t.Kind == Enum}
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
