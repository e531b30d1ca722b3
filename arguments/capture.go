package arguments

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/fentry-dev/fentry/internal/format"
)

// What is captured of a call is a list of words, from registers and the stack, and behind it pieces of memory to which
// some of them point. An operation makes one of either; who runs them writes the words to one record and each piece of
// memory to a record of its own, which says which word has led there. So a reader needs to know nothing of the
// operations: a Value says which words it has.

// An Op is one thing to capture.
type Op struct {
	Code Code
	// From is the register, the word of the stack, or for what is memory the captured word that points to it.
	From uint8
	// N is how many bytes of memory are captured at most.
	N uint16
}

// A Code says what an Op captures.
type Code uint8

// Codes of operations. Those up to OpDeref are words, which come first.
const (
	OpGeneral      Code = format.OpGeneral      // a general register: a word
	OpFloat        Code = format.OpFloat        // the low half of a floating-point register: a word
	OpVector       Code = format.OpVector       // all of one: two words
	OpStack        Code = format.OpStack        // a word of the stack, counted from the first that can be an argument
	OpX87          Code = format.OpX87          // the top of the x87's stack: two words
	OpNothing      Code = format.OpNothing      // a word of zeros
	OpErrno        Code = format.OpErrno        // the thread's errno: a word
	OpPlace        Code = format.OpPlace        // an address N bytes behind the captured word From: a word
	OpDeref        Code = format.OpDeref        // the word at such an address
	OpBytes        Code = format.OpBytes        // N bytes
	OpString       Code = format.OpString       // text up to a NUL
	OpSpan         Code = format.OpSpan         // bytes whose length is in the word behind the address
	OpSpanBefore   Code = format.OpSpanBefore   // ... in the word before it
	OpSpanAt       Code = format.OpSpanAt       // From points to an address and a length
	OpSpanAtBefore Code = format.OpSpanAtBefore // ... to a length and an address
	OpFormat       Code = format.OpFormat       // a format, and what it says that a variadic function is called with
)

// Limits of what is captured of one end of a call.
const (
	MaxOps   = 32
	MaxWords = 64
	maxBytes = 64 // of one value in memory
	maxText  = 64
	// formatWords is FORMAT_WORDS of stub/src/capture.c.
	formatWords = 143
)

// Encode returns operations as the runtime reads them, and how many words of the trace they take at most, headers of
// records included.
func Encode(ops []Op) (b []byte, most int) {
	words := 0
	b = make([]byte, format.CaptureSize)
	for _, op := range ops {
		switch {
		case op.Code == OpVector || op.Code == OpX87:
			words += 2
		case op.Code <= OpDeref:
			words++
		case op.Code == OpFormat:
			most += formatWords
		default:
			const pair = 1 + 2 + 2 // a record DATA of an address and a length
			most += pair + 1 + 2 + (int(op.N)+7)/8
		}
		var o [format.CaptureOpSize]byte
		o[format.CaptureOpOCode], o[format.CaptureOpOFrom] = byte(op.Code), op.From
		binary.LittleEndian.PutUint16(o[format.CaptureOpOMost:], op.N)
		b = append(b, o[:]...)
	}
	binary.LittleEndian.PutUint16(b[format.CaptureOOps:], uint16(len(ops)))
	binary.LittleEndian.PutUint16(b[format.CaptureOWords:], uint16(words))
	return b, most + 1 + words
}

// PlainEntry is how many general registers are captured, if these are all, in their order; else 0.
func PlainEntry(ops []Op) uint8 {
	for i, op := range ops {
		if op.Code != OpGeneral || int(op.From) != i {
			return 0
		}
	}
	if len(ops) > format.MostPlainArguments {
		return 0
	}
	return uint8(len(ops))
}

// PlainResult says which register a result is, as the runtime's table has it; 0: it is not just one.
func PlainResult(ops []Op) uint8 {
	switch {
	case len(ops) != 1 || ops[0].From != 0:
	case ops[0].Code == OpGeneral:
		return format.PlainGeneral
	case ops[0].Code == OpFloat:
		return format.PlainFloat
	}
	return 0
}

// A Capture is what is captured of the calls of a function, and how it is shown.
type Capture struct {
	Entry []Op `json:"-"` // at the beginning
	Exit  []Op `json:"-"` // at the end
	// Checks say which calls are recorded: those of which all hold.
	Checks []*Check `json:"-"`

	Params []Value `json:"p,omitempty"`
	Result *Value  `json:"r,omitempty"`
	Errno  *Value  `json:"e,omitempty"` // at the end

	// EntryWords and ExitWords are how many words are captured at the beginning and at the end.
	EntryWords int `json:"m,omitempty"`
	ExitWords  int `json:"n,omitempty"`
	// Others are other ways in which the function's calls were captured for a while, at one end or both (see [Capture.For]).
	Others []*Capture `json:"o,omitempty"`
}

// A Value is an argument or a result.
type Value struct {
	Name   string `json:"n,omitempty"`
	Type   *Type  `json:"t"`
	Format string `json:"f,omitempty"` // as in an Item
	Word   int    `json:"w,omitempty"` // the first of its words
	Words  int    `json:"c,omitempty"` // how many; 0: nothing is known
	Stride int    `json:"s,omitempty"` // how many bytes of each word it has, if not 8
	Offset int    `json:"o,omitempty"` // how many bytes of what its words have are before it
	// Of a bit field: which of the bits from there it has, as in a Field; Bits 0: it is none.
	Bit  int `json:"b,omitempty"`
	Bits int `json:"l,omitempty"`
	// Indirect: its word is where it is.
	Indirect bool `json:"i,omitempty"`
	// More: a variadic function's, of which only the words are known.
	More bool `json:"m,omitempty"`
}

// program collects operations.
type program struct {
	words  []Op
	memory []Op
	n      int // words that are captured
	full   bool
}

func (p *program) ops() []Op { return slices.Concat(p.words, p.memory) }

// take makes a value of what is at a location.
func (p *program) take(name string, t *Type, l location, format string) Value {
	v := Value{Name: name, Type: t, Word: p.n, Indirect: l.indirect, Format: format}
	if l.unknown || p.full {
		return v
	}
	before := *p
	for _, pc := range l.pieces {
		p.piece(pc)
	}
	v.Stride = l.stride()
	v.Words = p.n - v.Word
	p.follow(&v)
	if len(p.words)+len(p.memory) > MaxOps || p.n > MaxWords {
		*p = before
		p.full = true
		v.Words = 0
	}
	return v
}

func (p *program) piece(pc piece) {
	op, n := pc.op()
	p.words = append(p.words, op)
	p.n += n
}

// op is the operation that captures a piece, and how many words that makes.
func (pc piece) op() (op Op, n int) {
	op, n = Op{From: uint8(pc.n)}, 1
	switch pc.at {
	case inGeneral:
		op.Code = OpGeneral
	case inFloat:
		op.Code = OpFloat
		if pc.bytes > 8 {
			op.Code, n = OpVector, 2
		}
	case onStack:
		op.Code = OpStack
	case inX87:
		op.Code, n = OpX87, 2
	case nowhere:
		op.Code = OpNothing
	}
	return op, n
}

// follow adds the memory that a value is in, or points to.
func (p *program) follow(v *Value) {
	if v.Words == 0 {
		return
	}
	at, t := uint8(v.Word), v.Type
	add := func(c Code, n int) { p.memory = append(p.memory, Op{c, at, uint16(n)}) }
	spanAt := func(t *Type) {
		if t.Swapped {
			add(OpSpanAtBefore, maxText)
		} else {
			add(OpSpanAt, maxText)
		}
	}
	switch {
	case v.Indirect && (t.Kind == Span || t.Kind == Text):
		spanAt(t)
	case v.Bits != 0 && v.Indirect:
		add(OpBytes, (v.Bit+v.Bits+7)/8)
	case v.Bits != 0:
	case v.Indirect:
		add(OpBytes, min(t.Size, maxBytes))
	case t.Kind == String:
		add(OpString, maxText)
	case t.Kind == Span && t.Swapped:
		at++
		add(OpSpanBefore, maxText)
	case t.Kind == Span:
		add(OpSpan, maxText)
	case t.Elem != nil && (t.Kind == Pointer || t.Kind == Reference):
		if t.Elem.Kind == Span || t.Elem.Kind == Text {
			spanAt(t.Elem)
		} else {
			add(OpBytes, min(t.Elem.Size, maxBytes))
		}
	}
}

// What says which ends of calls are captured.
type What uint8

// Ends of calls.
const (
	Entries What = 1 << iota
	Exits
)

// Plan says what is captured of a function's calls. f is nil if nothing is known of it: then specs say all there is to
// say. The result is nil if there is nothing to capture. Errors are those of items that do not fit the function or the
// machine; with a result, some values are left out, because there is no room for them.
func Plan(f *Func, m Machine, what What, items []Item) (*Capture, error) {
	c := &Capture{}
	var entry, exit program
	err := c.planItems(f, m, what, items, &entry, &exit)
	if err != nil && !errors.Is(err, errRoom) {
		return nil, err
	}
	if f != nil && what&Entries != 0 && c.Params == nil {
		c.planParams(f, m, &entry)
	}
	if f != nil && what&Exits != 0 && f.Result != nil && c.Result == nil {
		l := unknownLocation()
		if f.Why == "" {
			l = m.callOf(f.Result).result(f.Result)
		}
		v := exit.take("", f.Result, l, "")
		c.Result = &v
	}
	if c.Result == nil && c.Errno != nil {
		c.Errno, exit = nil, program{} // of a function without a result nobody knows whether it has failed
	}
	if c.Params == nil && c.Result == nil {
		return nil, err
	}
	c.Entry, c.Exit = entry.ops(), exit.ops()
	c.EntryWords, c.ExitWords = entry.n, exit.n
	return c, err
}

// planParams plans all parameters of a function.
func (c *Capture) planParams(f *Func, m Machine, entry *program) {
	c.Params = []Value{}
	lost := f.Why != ""
	call := m.callOf(f.Result)
	for _, p := range f.Params {
		l := unknownLocation()
		if !lost {
			l = call.argument(p.Type)
			lost = l.unknown
		}
		c.Params = append(c.Params, entry.take(p.Name, p.Type, l, p.Format))
	}
	if f.Variadic && !lost && f.takesFormat() && entry.formatted(&c.Params[len(c.Params)-1], call) {
		c.Params = append(c.Params, Value{Type: longDouble(m), More: true, Format: printfFormat})
		return
	}
	if f.Variadic && !lost {
		l := location{}
		for range maxMore {
			next := call.argument(&Type{Kind: Uint, Size: 8})
			l.pieces = append(l.pieces, next.pieces...)
		}
		v := entry.take("", &Type{Kind: Array, Elem: &Type{Kind: Uint, Size: 8}, Count: maxMore, Size: 8 * maxMore}, l, "x")
		v.More = true
		c.Params = append(c.Params, v)
	}
}

// maxMore is how many words are captured of what a variadic function is called with.
const maxMore = 4

// Words are items for all registers that integers are passed in, or for the result: all there is to show of a function
// of which nothing is known.
func Words(what What) (items []Item) {
	if what&Entries != 0 {
		for i := range generalNames[AMD64] {
			items = append(items, Item{Name: "arg" + strconv.Itoa(i+1), Format: 'x', kind: itemInteger, n: i})
		}
	}
	if what&Exits != 0 {
		items = append(items, Item{Name: "retval", Format: 'x', kind: itemResult})
	}
	return items
}

// planItems plans what a user has asked for, as far as it is at an end of calls that is captured.
func (c *Capture) planItems(f *Func, m Machine, what What, items []Item, entry, exit *program) (short error) {
	for i := range items {
		it := &items[i]
		if what&it.end() == 0 {
			continue
		}
		if it.kind == itemErrno {
			c.Errno = &Value{Type: &Type{Kind: Int, Size: 4}, Word: exit.word(Op{Code: OpErrno}, 1), Words: 1}
			continue
		}
		t, at, l, err := it.whole(f, m)
		if err != nil {
			return err
		}
		format := ""
		if it.Format != 0 {
			format = string(it.Format)
		}
		var v Value
		p := entry
		if it.kind == itemResult {
			p = exit
		}
		if it.path == nil {
			v = p.take(it.Name, it.shown(t), l, format)
		} else {
			var x *reader
			if f != nil {
				x = f.types
			}
			hops, t, err := x.hops(at, it.path)
			if err == nil {
				v, err = p.member(it.Name, it.shown(t), l, hops, format)
			}
			if err != nil {
				return fmt.Errorf("%s: %w", it.Name, err)
			}
		}
		if p.full && short == nil {
			short = fmt.Errorf("%s: %w", it.Name, errRoom)
		}
		if it.kind == itemResult {
			if it.path == nil {
				v.Name = ""
			}
			c.Result = &v
		} else {
			c.Params = append(c.Params, v)
		}
	}
	if c.Errno != nil && c.Result == nil && f == nil {
		v := exit.take("", &Type{Kind: Uint, Size: 8}, m.callOf(nil).result(&Type{Kind: Uint, Size: 8}), "x")
		c.Result = &v
	}
	return short
}

// errRoom is returned with a capture of which some values are left out.
var errRoom = errors.New("there is no room for so many values of a call")

// whole is what an item begins with: the type of an argument, or of the result, nil if that is not known, with its place
// in debug information, and where it is.
func (it *Item) whole(f *Func, m Machine) (t *Type, at any, l location, err error) {
	switch {
	case it.kind == itemResult:
		if f != nil && f.Result != nil {
			t, at = f.Result, f.result
		}
		of := it.shown(t)
		if it.path != nil {
			if of = t; t == nil {
				of = &Type{Kind: Uint, Size: 8}
			}
		}
		return t, at, m.callOf(nil).result(of), nil
	case it.kind == itemParam:
		var p *Param
		if p, l, err = f.param(m, it.base); err == nil {
			t, at = p.Type, p.at
		}
		return t, at, l, err
	case it.kind == itemInteger && it.path != nil && f != nil && it.n < len(f.Params):
		p, l := f.at(m, it.n)
		return p.Type, p.at, l, nil
	}
	l, err = it.location(m)
	return nil, nil, l, err
}

// shown is the type as which a value of a type, nil if it is not known, is shown.
func (it *Item) shown(known *Type) *Type {
	t := it.typ()
	switch {
	case known == nil:
	case it.Format == 0:
		t = known
	case it.kind != itemResult && it.Bits == 0 && known.Size <= 8 && strings.IndexByte("csS", it.Format) < 0:
		t.Size = known.Size
	}
	return t
}

// param finds a parameter by its name, and where it is.
func (f *Func) param(m Machine, name string) (*Param, location, error) {
	if f == nil {
		return nil, location{}, fmt.Errorf("no debug information says where %q is", name)
	}
	for i := range f.Params {
		if f.Params[i].Name == name {
			p, l := f.at(m, i)
			return p, l, nil
		}
	}
	return nil, location{}, fmt.Errorf("%s has no parameter %q%s", f.Name, name, f.others())
}

// others says what a function has instead of a parameter that it has not.
func (f *Func) others() string {
	if len(f.Params) == 0 {
		return ", nor any other"
	}
	var names []string
	for i := range f.Params {
		if name := f.Params[i].Name; name != "" {
			names = append(names, name)
		}
	}
	if names == nil {
		return ""
	}
	return "; it has " + strings.Join(names, ", ")
}

// at returns a parameter and where it is.
func (f *Func) at(m Machine, n int) (*Param, location) {
	call, l := m.callOf(f.Result), unknownLocation()
	for i := 0; i <= n && f.Why == ""; i++ {
		if l = call.argument(f.Params[i].Type); l.unknown {
			break
		}
	}
	return &f.Params[n], l
}

// location is where an item says that its value is.
func (it *Item) location(m Machine) (location, error) {
	call := m.callOf(nil)
	word, float := &Type{Kind: Uint, Size: 8}, &Type{Kind: Float, Size: 8}
	one := func(p piece) (location, error) { return location{pieces: []piece{p}}, nil }
	switch it.kind {
	case itemInteger, itemFloat:
		t := word
		if it.kind == itemFloat {
			if t = float; it.Bits == 80 && m == AMD64 {
				t = it.typ()
			}
		}
		for range it.n {
			call.argument(t)
		}
		return call.argument(t), nil
	case itemStack:
		return one(piece{onStack, it.n, 8})
	case itemRegister, itemVector:
		if Machine(it.n>>8) != m {
			return location{}, fmt.Errorf("%s is a register of another machine", it.Name)
		}
		at := inGeneral
		if it.kind == itemVector {
			at = inFloat
		}
		return one(piece{at, it.n & 0xff, 8})
	}
	return location{}, nil
}
