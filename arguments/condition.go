package arguments

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/big"
	"regexp"
	"strconv"
	"strings"
)

// A Condition compares an argument, or a member of what it points to, with a constant: arg1 > 100, path ~ /etc/*,
// mode == READ|WRITE, req->len > 100.
type Condition struct {
	Name  string // a parameter's name, or argN, with members behind it as in an Item
	item  Item
	op    string
	value string
	glob  *regexp.Regexp // with ~ and !~
	exact *big.Float     // value, if it is a number
}

// conditionSigns are what operators are made of.
const conditionSigns = "!=<>~"

// isCondition reports whether a value of a spec is a condition.
func isCondition(text string) bool {
	return strings.ContainsAny(strings.ReplaceAll(text, "->", ""), conditionSigns)
}

// operators are those of conditions, longer ones first.
var operators = []string{"!~", "==", "!=", ">=", "<=", "~", "=", ">", "<"}

// ParseCondition parses a Condition. ~ and !~ take a glob of * and ?, which covers all of a string.
func ParseCondition(s string) (Condition, error) {
	i := strings.IndexAny(strings.ReplaceAll(s, "->", ".."), conditionSigns)
	if i < 0 {
		return Condition{}, fmt.Errorf("%q compares nothing: want NAME, one of %s, and a value", s,
			strings.Join(operators, " "))
	}
	c, err := parseCompared(strings.TrimSpace(s[:i]))
	if err != nil {
		return Condition{}, fmt.Errorf("%q is not NAME, one of %s, and a value: %w", s, strings.Join(operators, " "), err)
	}
	for _, op := range operators {
		if rest, ok := strings.CutPrefix(s[i:], op); ok && c.op == "" {
			c.op, c.value = op, strings.TrimSpace(rest)
		}
	}
	if c.op == "" || c.value == "" {
		return Condition{}, fmt.Errorf("%q is not NAME, one of %s, and a value", s, strings.Join(operators, " "))
	}
	if len(c.value) >= 2 && c.value[0] == '"' {
		text, err := strconv.Unquote(c.value)
		if err != nil {
			return Condition{}, fmt.Errorf("%q: %s is not a string", s, c.value)
		}
		c.value = text
	} else if c.value == "NULL" {
		c.exact = new(big.Float)
	} else if n, err := strconv.ParseInt(c.value, 0, 64); err == nil {
		c.exact = new(big.Float).SetInt64(n)
	} else if n, err := strconv.ParseUint(c.value, 0, 64); err == nil {
		c.exact = new(big.Float).SetUint64(n)
	} else if f, err := strconv.ParseFloat(c.value, 64); err == nil && f-f == 0 {
		c.exact = big.NewFloat(f)
	}
	switch c.op {
	case "~", "!~":
		r := strings.NewReplacer(`\*`, ".*", `\?`, ".")
		var err error
		if c.glob, err = regexp.Compile("(?s)^" + r.Replace(regexp.QuoteMeta(c.value)) + "$"); err != nil {
			return Condition{}, fmt.Errorf("%q: %w", s, err)
		}
	case "<", ">", "<=", ">=":
		if c.exact == nil {
			return Condition{}, fmt.Errorf("%q: %s is not a number", s, c.value)
		}
	}
	return c, nil
}

// String is the condition in the form that ParseCondition parses. It differs between conditions that differ.
func (c Condition) String() string {
	value := c.value
	if c.exact == nil && c.glob == nil {
		value = strconv.Quote(value)
	}
	return c.Name + c.op + value
}

// parseCompared parses what a condition compares.
func parseCompared(name string) (c Condition, err error) {
	if c.item, err = parseItem(name); err != nil {
		return c, err
	}
	switch c.item.kind {
	case itemParam, itemInteger, itemStack:
	default:
		return c, fmt.Errorf("%q is not known when a call begins, or no integer", name)
	}
	if c.item.base[0] == '%' || strings.ContainsRune(name, '%') {
		return c, fmt.Errorf("%q is no argument", name)
	}
	c.Name = c.item.Name
	return c, nil
}

// Param returns a captured parameter by its name, or as argN by its place; nil: there is none.
func (c *Capture) Param(name string) *Value {
	for i := range c.Params {
		if c.Params[i].Name == name {
			return &c.Params[i]
		}
	}
	digits, ok := strings.CutPrefix(name, "arg")
	if n, err := strconv.Atoi(digits); ok && err == nil && n >= 1 && n <= len(c.Params) {
		return &c.Params[n-1]
	}
	return nil
}

// Holds reports whether the condition is true of a call. It is false if the argument is not known.
func (cond *Condition) Holds(c *Capture, words []uint64, m Memory) bool {
	v := c.Param(cond.Name)
	if v == nil {
		return false
	}
	text, known := v.plain(words, m)
	if !known {
		return false
	}
	if cond.glob != nil {
		return cond.glob.MatchString(text) == (cond.op == "~")
	}
	if n := v.number(words, m); n != nil && cond.exact != nil {
		switch d := n.Cmp(cond.exact); cond.op {
		case "=", "==":
			return d == 0
		case "!=":
			return d != 0
		case "<":
			return d < 0
		case "<=":
			return d <= 0
		case ">":
			return d > 0
		default:
			return d >= 0
		}
	}
	switch cond.op {
	case "=", "==":
		return text == cond.value
	case "!=":
		return text != cond.value
	}
	return false
}

// plain is what a value is compared as: text without quotes, others as they are shown.
func (v *Value) plain(words []uint64, m Memory) (text string, known bool) {
	b := v.AppendJSON(nil, words, m)
	if len(b) > 0 && b[0] == '"' {
		err := json.Unmarshal(b, &text)
		return text, err == nil
	}
	return string(b), string(b) != "null" || v.number(words, m) != nil
}

// content is what a value consists of, wherever it is.
func (v *Value) content(words []uint64, m Memory) ([]byte, bool) {
	b, ok := v.bytes(words)
	if ok && v.Indirect {
		if ok = len(b) >= 8; ok {
			r := m.at(binary.LittleEndian.Uint64(b))
			if ok = r != nil; ok {
				b = r.Bytes
			}
		}
	}
	if ok && v.Bits != 0 {
		return v.bitField().extract(b)
	}
	return b, ok
}

// number is a value as a number; nil: it is none.
func (v *Value) number(words []uint64, m Memory) *big.Float {
	b, ok := v.content(words, m)
	if !ok || v.Type == nil {
		return nil
	}
	switch t := v.Type; t.Kind {
	case Float, LongDouble:
		if f, ok := float(t, b); ok && f-f == 0 {
			return big.NewFloat(f)
		}
	case Bool, Char, Int, Uint, Enum, Pointer, Reference, String:
		u, ok := unsigned(b, t.Size)
		switch {
		case !ok:
		case t.hasSign():
			shift := 64 - 8*t.Size
			return new(big.Float).SetInt64(int64(u<<shift) >> shift)
		default:
			return new(big.Float).SetUint64(u)
		}
		if ok := len(b) >= 16 && t.Size == 16; ok {
			high := new(big.Int).SetUint64(binary.LittleEndian.Uint64(b[8:]))
			if t.Kind == Int {
				high.SetInt64(int64(binary.LittleEndian.Uint64(b[8:])))
			}
			n := high.Add(high.Lsh(high, 64), new(big.Int).SetUint64(binary.LittleEndian.Uint64(b)))
			return new(big.Float).SetInt(n)
		}
	}
	return nil
}
