package syscalls

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/fentry-dev/fentry/internal/safetext"
)

// A Value is an argument with its meaning: a number, bytes, or what else strace shows of it.
type Value struct {
	Name   string
	Number int64  // if Kind is ValueNumber
	Bytes  []byte // if Kind is ValueBytes: a string, or as much of a buffer as was recorded
	Text   string // if Kind is ValueText: constants by name, structures, addresses
	Kind   ValueKind
}

// A ValueKind says what a Value has.
type ValueKind uint8

// Kinds of value.
const (
	ValueNumber ValueKind = iota + 1
	ValueBytes
	ValueText
)

// Values returns a call's arguments, as many as strace shows. What the kernel fills in is there if the call has ended.
func (c *Made) Values() []Value {
	call := c.Machine.Call(c.Number)
	if call == nil || c.Unknown || c.NoArgs {
		return nil
	}
	var list []Value
	p := printer{Made: c, call: call}
	for i := range call.Args {
		p.b = p.b[:0]
		more := p.argument(i)
		text := strings.TrimPrefix(string(p.b), ", ")
		if text != "" {
			list = append(list, c.value(&call.Args[i], i, text))
		}
		if !more {
			break
		}
	}
	return list
}

// value makes a value of an argument whose text is known.
func (c *Made) value(a *Arg, i int, text string) Value {
	v := c.Args[i]
	switch a.kind {
	case "d", "fd", "pid", "uid", "dirfd":
		return Value{Name: a.Name, Kind: ValueNumber, Number: int64(int32(v))}
	case "ld":
		return Value{Name: a.Name, Kind: ValueNumber, Number: int64(v)}
	case "u":
		return Value{Name: a.Name, Kind: ValueNumber, Number: int64(uint32(v))}
	case "lu":
		if int64(v) >= 0 {
			return Value{Name: a.Name, Kind: ValueNumber, Number: int64(v)}
		}
	case "path", "str", "cwd", "buf":
		if text[0] != '"' {
			break
		}
		mem := c.In
		if a.sign == '>' {
			mem = c.Out
		}
		b, _ := mem.at(v)
		if a.kind != "buf" {
			b, _, _ = bytes.Cut(b, []byte{0})
		}
		return Value{Name: a.Name, Kind: ValueBytes, Bytes: b}
	}
	return Value{Name: a.Name, Kind: ValueText, Text: text}
}

// AppendText appends the value as text: numbers are decimal, bytes are quoted.
func (v *Value) AppendText(b []byte) []byte {
	switch v.Kind {
	case ValueNumber:
		return strconv.AppendInt(b, v.Number, 10)
	case ValueBytes:
		return strconv.AppendQuote(b, string(v.Bytes))
	}
	return append(b, v.Text...)
}

// AppendJSON appends the value as JSON, whose text is safe to print.
func (v *Value) AppendJSON(b []byte) []byte {
	switch v.Kind {
	case ValueNumber:
		return strconv.AppendInt(b, v.Number, 10)
	case ValueBytes:
		return safetext.AppendJSON(b, string(v.Bytes))
	}
	return safetext.AppendJSON(b, v.Text)
}
