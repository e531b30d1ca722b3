package arguments

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// A Spec says what of a function's calls is captured: PATTERN, which is everything that is known of its parameters, or
// PATTERN@ITEM,ITEM... An item is
//
//	argN fpargN    the Nth integer or pointer argument, the Nth of floating point, from 1
//	stackN         the Nth word that a caller can pass on the stack, from 1
//	%rdi           a register that arguments are passed in
//	retval         the result
//	errno          the C library's errno behind the call, of calls that return -1 or NULL
//	NAME           a parameter of the function, by the name that debug information has for it
//	NAME->MEMBER   a member of what it points to, which MEMBER.MEMBER, MEMBER[3] and so on can follow; of a retval, too
//	argN->16       what is 16 bytes behind where it points, without debug information
//	NAME>100       a condition: only calls are recorded of which it is true, see [Condition]
//
// with /FORMAT behind it: d, u, x, o, i (decimal if it is small), c, s (text), S (std::string), p or f, and how many
// bits there are: i32, u8, f64; and, as uftrace has it, with %REGISTER or %stack+N, which say where the argument is.
type Spec struct {
	Pattern string // of functions
	Items   []Item // empty: all parameters, or the result
	// Conditions say which calls are recorded: those that meet all.
	Conditions []Condition
}

// What returns the ends of calls at which its items are; 0: it has none.
func (s *Spec) What() (what What) {
	for i := range s.Items {
		what |= s.Items[i].end()
	}
	return what
}

// Errno reports whether errno is among its items.
func (s *Spec) Errno() bool {
	return slices.ContainsFunc(s.Items, func(it Item) bool { return it.kind == itemErrno })
}

// ErrnoFunction is the C library's that tells where errno is. The runtime calls it where errno is captured, so calls of it
// are not recorded then.
const ErrnoFunction = "__errno_location"

// end is where an item is captured.
func (it *Item) end() What {
	if it.kind == itemResult || it.kind == itemErrno {
		return Exits
	}
	return Entries
}

// An Item is one value of a Spec.
type Item struct {
	Name   string // as the user has written it
	Format byte   // a letter; 0: as its type says
	Bits   int    // 0: as the format says
	base   string // what it begins with
	kind   itemKind
	n      int    // argument, word of the stack, or register
	path   []step // from there to the value
}

type itemKind uint8

const (
	itemParam itemKind = iota // by name
	itemInteger
	itemFloat
	itemStack
	itemRegister
	itemVector
	itemResult
	itemErrno
)

// maxItem bounds the numbers of arguments.
const maxItem = 64

// ParseSpec parses a Spec. Errors quote what is wrong with it.
func ParseSpec(s string) (Spec, error) {
	pattern, items := cutSpec(s)
	if pattern == "" {
		return Spec{}, fmt.Errorf("%q names no function", s)
	}
	spec := Spec{Pattern: pattern}
	if items == nil {
		return spec, nil
	}
	for _, text := range items {
		if isCondition(text) {
			c, err := ParseCondition(text)
			if err != nil {
				return Spec{}, fmt.Errorf("%q: %w", s, err)
			}
			spec.Conditions = append(spec.Conditions, c)
			continue
		}
		it, err := parseItem(text)
		if err != nil {
			return Spec{}, fmt.Errorf("%q: %w", s, err)
		}
		spec.Items = append(spec.Items, it)
	}
	if len(spec.Items)+len(spec.Conditions) > MaxOps {
		return Spec{}, fmt.Errorf("%q: more than %d values", s, MaxOps)
	}
	return spec, nil
}

// cutSpec separates the pattern from the items. A @ at the beginning is a file's, and one before plt part of a name.
func cutSpec(s string) (pattern string, items []string) {
	for i := 1; i < len(s); i++ {
		if s[i] != '@' {
			continue
		}
		if rest := s[i+1:]; rest == "plt" || strings.HasPrefix(rest, "plt@") {
			continue
		}
		return s[:i], strings.Split(s[i+1:], ",")
	}
	return s, nil
}

func parseItem(text string) (it Item, err error) {
	rest, place := text, ""
	if i := strings.LastIndexByte(text, '%'); i > 0 {
		rest, place = text[:i], text[i+1:]
	}
	name, path, behind, err := cutPath(rest)
	if err != nil {
		return it, err
	}
	format, formatted := strings.CutPrefix(behind, "/")
	it.Name, it.base, it.path = rest[:len(rest)-len(behind)], name, path
	number := func(prefix string, kind itemKind) bool {
		digits, ok := strings.CutPrefix(name, prefix)
		n, e := strconv.Atoi(digits)
		if !ok || e != nil || n < 1 || n > maxItem || digits[0] == '+' {
			return false
		}
		it.kind, it.n = kind, n-1
		return true
	}
	switch {
	case name == "":
		return it, fmt.Errorf("an empty value in %q", text)
	case name == "retval":
		it.kind = itemResult
	case name == "errno":
		if it.kind = itemErrno; behind != "" || path != nil {
			err = errors.New("errno has no members and no other format")
		}
	case number("arg", itemInteger), number("fparg", itemFloat), number("stack", itemStack):
	case name[0] == '%':
		it.kind, it.n, err = register(name[1:])
	case !isName(name):
		err = fmt.Errorf("%q is neither a parameter's name nor argN, fpargN, stackN, %%REGISTER or retval", name)
	}
	if err == nil && formatted {
		err = it.parseFormat(format)
	}
	if err == nil && place != "" {
		err = it.parsePlace(place)
	}
	return it, err
}

func isName(s string) bool {
	for i, c := range s {
		if c != '_' && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && c < 0x80 && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return s != ""
}

func (it *Item) parseFormat(s string) error {
	bits := strings.TrimLeft(s, "duxoicsSpf")
	letters := s[:len(s)-len(bits)]
	switch {
	case len(letters) > 1, s == "":
		return fmt.Errorf("unknown format %q", s)
	case letters != "":
		it.Format = letters[0]
	case it.kind == itemFloat:
		it.Format = 'f'
	default:
		return fmt.Errorf("unknown format %q", s)
	}
	if bits == "" {
		return nil
	}
	n, err := strconv.Atoi(bits)
	ok := n == 8 || n == 16 || n == 32 || n == 64 || it.Format == 'f' && n == 80
	if err != nil || !ok || it.Format == 'f' && n < 32 || strings.IndexByte("sSp", it.Format) >= 0 && n != 64 {
		return fmt.Errorf("unknown format %q", s)
	}
	it.Bits = n
	return nil
}

// parsePlace takes where the argument is, as uftrace has it.
func (it *Item) parsePlace(s string) (err error) {
	if digits, ok := strings.CutPrefix(s, "stack"); ok {
		n, err := strconv.Atoi(strings.TrimPrefix(digits, "+"))
		if err != nil || n < 1 || n > maxItem {
			return fmt.Errorf("unknown place %%%s", s)
		}
		it.kind, it.n = itemStack, n-1
		return nil
	}
	it.kind, it.n, err = register(s)
	return err
}

var generalNames = [machines][]string{
	{"rdi", "rsi", "rdx", "rcx", "r8", "r9"},
	{"x0", "x1", "x2", "x3", "x4", "x5", "x6", "x7"},
}

const machines = 2

// register finds a register that arguments are passed in, of any machine: [Plan] knows which it is.
func register(name string) (itemKind, int, error) {
	for m, names := range generalNames {
		for n, r := range names {
			if r == name {
				return itemRegister, m<<8 | n, nil
			}
		}
	}
	for m, prefix := range [machines]string{"xmm", "d"} {
		if n, err := strconv.Atoi(strings.TrimPrefix(name, prefix)); err == nil && n >= 0 && n < 8 &&
			name == prefix+strconv.Itoa(n) {
			return itemVector, m<<8 | n, nil
		}
	}
	return 0, 0, fmt.Errorf("%%%s is no register that arguments are passed in", name)
}

// typ is the type that a format gives a value without one.
func (it *Item) typ() *Type {
	size := 8
	if it.Bits != 0 {
		size = it.Bits / 8
	}
	switch it.Format {
	case 's':
		return &Type{Kind: String, Size: 8}
	case 'S':
		return &Type{Kind: Pointer, Size: 8, Elem: &Type{Kind: Text, Size: 32}}
	case 'c':
		return &Type{Kind: Char, Size: 1}
	case 'p':
		return &Type{Kind: Pointer, Size: 8}
	case 'f':
		if it.Bits == 80 {
			return &Type{Kind: LongDouble, Size: 16}
		}
		return &Type{Kind: Float, Size: size}
	case 'u', 'x', 'o':
		return &Type{Kind: Uint, Size: size}
	case 0:
		if it.kind == itemFloat || it.kind == itemVector {
			return &Type{Kind: Float, Size: 8}
		}
	}
	return &Type{Kind: Int, Size: size}
}
