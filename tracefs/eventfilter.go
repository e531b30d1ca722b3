//go:build linux

package tracefs

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// Filters of events: common_pid == 4711 && (fd > 2 || !(count & 0xff)), comm ~ "ng*", filename.ustring ~ "/etc/*".
//
// The language is that of the kernel's file filter, and what it says of an error are that file's own words
// (kernel/trace/trace_events_filter.c). One that cannot be understood stays to be read, with a mark at the place, and
// nothing is filtered.

// eventFilter is a filter. It is not changed once it is in use.
type eventFilter struct {
	text string
	keep func(*happened) bool // nil: everything
}

// filterError is what is wrong with a filter, and where.
type filterError struct {
	at  int
	why string
}

func (e *filterError) Error() string { return fmt.Sprintf("%d: %s", e.at, e.why) }

// What can be wrong.
const (
	whyOp         = "Invalid operator"
	whyOpen       = "Too many '('"
	whyClose      = "Too few '('"
	whyQuote      = "Missing matching quote"
	whyLong       = "Operand too long"
	whyDigit      = "Expecting numeric field"
	whyFieldOp    = "Illegal operation for field type"
	whyField      = "Field not found"
	whyNumber     = "Illegal integer value"
	whySystem     = "Couldn't find or set field in one of a subsystem's events"
	whyPredicates = "Too many terms in predicate expression"
	whyMeaning    = "Meaningless filter expression"
	whyValue      = "Invalid value (did you forget quotes)?"
	whyNone       = "No filter found"
)

// Bounds of a filter, and of a string in it.
const (
	mostFilter     = 4096
	mostPredicates = 256
	mostOperand    = 256
	mostDigits     = 24
)

// newFilter understands a filter of an event. If that is not possible, the filter is one to be read.
func newFilter(e *event, text string) (*eventFilter, *filterError) {
	p := filterParser{e: e, s: text}
	keep, err := p.parse()
	if err != nil {
		return &eventFilter{text: fmt.Sprintf("%s\n%*s^\nparse_error: %s", text, err.at, "", err.why)}, err
	}
	return &eventFilter{text: text, keep: keep}, nil
}

// filterParser reads a filter from the left to the right.
type filterParser struct {
	e     *event
	s     string
	at    int
	preds int
	depth int
}

type condition = func(*happened) bool

func (p *filterParser) fail(at int, why string) *filterError { return &filterError{at, why} }

// blank skips white space, and returns what comes then; 0 at the end.
func (p *filterParser) blank() byte {
	for p.at < len(p.s) && (p.s[p.at] == ' ' || p.s[p.at] >= '\t' && p.s[p.at] <= '\r') {
		p.at++
	}
	if p.at == len(p.s) {
		return 0
	}
	return p.s[p.at]
}

// is skips a text if that is what comes.
func (p *filterParser) is(text string) bool {
	if p.blank(); !strings.HasPrefix(p.s[p.at:], text) {
		return false
	}
	p.at += len(text)
	return true
}

func (p *filterParser) parse() (condition, *filterError) {
	if len(p.s) > mostFilter {
		return nil, p.fail(0, whyLong)
	}
	if p.blank() == 0 {
		return nil, p.fail(0, whyNone)
	}
	c, err := p.or()
	switch {
	case err != nil:
		return nil, err
	case p.blank() == ')':
		return nil, p.fail(p.at, whyClose)
	case p.blank() != 0:
		return nil, p.fail(p.at, whyOp)
	}
	return c, nil
}

// or reads conditions of which one must hold.
func (p *filterParser) or() (condition, *filterError) {
	return p.list("||", p.and, func(a, b condition) condition { return func(h *happened) bool { return a(h) || b(h) } })
}

// and reads conditions all of which must hold.
func (p *filterParser) and() (condition, *filterError) {
	return p.list("&&", p.not, func(a, b condition) condition { return func(h *happened) bool { return a(h) && b(h) } })
}

func (p *filterParser) list(
	op string, one func() (condition, *filterError), both func(a, b condition) condition,
) (condition, *filterError) {
	c, err := one()
	for err == nil && p.is(op) {
		var next condition
		if next, err = one(); err == nil {
			c = both(c, next)
		}
	}
	return c, err
}

// not reads a condition that can be turned round, or one in parentheses.
func (p *filterParser) not() (condition, *filterError) {
	turn := false
	for p.is("!") {
		turn = !turn
	}
	var c condition
	var err *filterError
	if at := p.at; p.is("(") {
		if p.depth++; p.depth > mostPredicates {
			return nil, p.fail(at, whyPredicates)
		}
		if c, err = p.or(); err == nil && !p.is(")") {
			err = p.fail(at, whyOpen)
		}
		p.depth--
	} else {
		c, err = p.predicate()
	}
	if err != nil || !turn {
		return c, err
	}
	return func(h *happened) bool { return !c(h) }, nil
}

// isName tells whether a byte can be one of a name or of a number.
func isName(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// name reads a name.
func (p *filterParser) name() string {
	p.blank()
	start := p.at
	for p.at < len(p.s) && (isName(p.s[p.at]) || p.s[p.at] == '.') {
		p.at++
	}
	return p.s[start:p.at]
}

// filterOps are the operators, those first that begin with another one.
var filterOps = []string{"==", "!=", "<=", ">=", "<", ">", "&", "~"}

// predicate reads a field, an operator and a value.
func (p *filterParser) predicate() (condition, *filterError) {
	p.blank()
	start := p.at
	name := p.name()
	if name == "" {
		return nil, p.fail(start, whyMeaning)
	}
	if p.preds++; p.preds > mostPredicates {
		return nil, p.fail(start, whyPredicates)
	}
	name, ustring := strings.CutSuffix(name, ".ustring")
	f := p.field(name)
	if f == nil {
		return nil, p.fail(start, whyField)
	}
	p.blank()
	at := p.at
	i := slices.IndexFunc(filterOps, p.is)
	if i < 0 {
		return nil, p.fail(at, whyOp)
	}
	p.blank()
	if f.name == fieldComm || ustring && f.text {
		return p.text(f, filterOps[i], at)
	}
	if ustring || f.get == nil {
		return nil, p.fail(start, whyFieldOp)
	}
	return p.number(f, filterOps[i], at)
}

const fieldComm = "comm"

// field returns a field by its name; nil: there is none.
func (p *filterParser) field(name string) *field {
	switch name {
	case fieldComm, "COMM":
		return &field{name: fieldComm}
	case "cpu", "CPU":
		return &field{name: name, signed: true, get: func(h *happened) int64 { return int64(h.cpu) }}
	}
	for _, fields := range [][]field{common, p.e.fields} {
		for i := range fields {
			if fields[i].name == name {
				return &fields[i]
			}
		}
	}
	return nil
}

// text reads what a string is compared with.
func (p *filterParser) text(f *field, op string, at int) (condition, *filterError) {
	if op != "==" && op != "!=" && op != "~" {
		return nil, p.fail(at, whyFieldOp)
	}
	quote := p.blank()
	if quote != '"' && quote != '\'' {
		return nil, p.fail(p.at, whyValue)
	}
	n := strings.IndexByte(p.s[p.at+1:], quote)
	switch {
	case n < 0:
		return nil, p.fail(p.at, whyQuote)
	case n >= mostOperand:
		return nil, p.fail(p.at, whyLong)
	}
	want := p.s[p.at+1 : p.at+1+n]
	p.at += n + 2
	of := func(h *happened) (string, bool) { return h.ev.Comm, true }
	if f.name != fieldComm {
		of = func(h *happened) (string, bool) { return h.text(f) }
	}
	return func(h *happened) bool {
		is, ok := of(h)
		switch {
		case !ok:
			return false
		case op == "~":
			return match(want, is)
		}
		return (is == want) == (op == "==")
	}, nil
}

// text is the string that a field points to; false: it is not known.
func (h *happened) text(f *field) (string, bool) {
	at := uint64(f.get(h))
	for _, s := range h.made().In {
		if s.Address == at {
			text, _, _ := strings.Cut(string(s.Bytes), "\x00")
			return text, true
		}
	}
	return "", false
}

// number reads what a number is compared with.
func (p *filterParser) number(f *field, op string, at int) (condition, *filterError) {
	start := p.at
	if c := p.blank(); op == "~" {
		return nil, p.fail(at, whyFieldOp)
	} else if c == '"' || c == '\'' {
		return nil, p.fail(start, whyDigit)
	}
	if p.at < len(p.s) && p.s[p.at] == '-' {
		p.at++
	}
	for p.at < len(p.s) && isName(p.s[p.at]) && p.s[p.at] != '_' {
		p.at++
	}
	digits := p.s[start:p.at]
	switch {
	case digits == "" || strings.Trim(digits[:1], "-0123456789") != "":
		return nil, p.fail(start, whyValue)
	case len(digits) >= mostDigits:
		return nil, p.fail(p.at, whyLong)
	}
	want, err := parseInt(digits)
	if !f.signed {
		var u uint64
		u, err = parseUint(digits, 0)
		want = int64(u)
	}
	if err != nil {
		return nil, p.fail(start, whyNumber)
	}
	turn := int64(0)
	if !f.signed {
		turn = math.MinInt64 // compares as numbers without a sign do
	}
	return func(h *happened) bool {
		is := f.get(h)
		switch op {
		case "==":
			return is == want
		case "!=":
			return is != want
		case "<":
			return is^turn < want^turn
		case "<=":
			return is^turn <= want^turn
		case ">":
			return is^turn > want^turn
		case ">=":
			return is^turn >= want^turn
		}
		return is&want != 0
	}, nil
}
