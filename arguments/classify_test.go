package arguments

import (
	"fmt"
	"strings"
	"testing"
)

var (
	tInt    = &Type{Kind: Int, Size: 4}
	tLong   = &Type{Kind: Int, Size: 8}
	tChar   = &Type{Kind: Char, Size: 1}
	tFloat  = &Type{Kind: Float, Size: 4}
	tDouble = &Type{Kind: Float, Size: 8}
	tX87    = &Type{Kind: LongDouble, Size: 16}
	tQuad   = &Type{Kind: Float, Size: 16}
	tI128   = &Type{Kind: Int, Size: 16}
	tEmpty  = &Type{Kind: Struct, Size: 1, Empty: true}
	tString = &Type{Kind: Text, Size: 32, ByReference: true}
	tView   = &Type{Kind: Span, Size: 16}
)

// structOf makes a struct as a C compiler lays it out.
func structOf(types ...*Type) *Type {
	t := &Type{Kind: Struct}
	for i, m := range types {
		a := m.align()
		t.Size = (t.Size + a - 1) / a * a
		t.Fields = append(t.Fields, Field{Name: string(rune('a' + i)), Type: m, Offset: t.Size})
		t.Size += m.Size
	}
	a := t.align()
	t.Size = (t.Size + a - 1) / a * a
	return t
}

func arrayOf(t *Type, n int) *Type { return &Type{Kind: Array, Elem: t, Count: n, Size: n * t.Size} }

// where writes a location in the machine's words.
func where(m Machine, l location) string {
	if l.unknown {
		return "?"
	}
	var out []string
	for _, p := range l.pieces {
		s := ""
		switch p.at {
		case inGeneral:
			s = generalNames[m][p.n]
		case inFloat:
			s = fmt.Sprintf("v%d", p.n)
		case onStack:
			s = fmt.Sprintf("s%d", p.n)
		case inX87:
			s = "st"
		case nowhere:
			s = "-"
		}
		if p.bytes != 8 {
			s += fmt.Sprintf(":%d", p.bytes)
		}
		out = append(out, s)
	}
	s := strings.Join(out, "+")
	if l.indirect {
		s = "*" + s
	}
	return s
}

// TestConventions: where arguments and results are, as both machines' documents say.
func TestConventions(t *testing.T) {
	packed := &Type{Kind: Struct, Size: 5, Align: 1, Fields: []Field{{Name: "c", Type: tChar}, {Name: "i", Type: tInt, Offset: 1}}}
	big := structOf(tLong, tLong, tLong)
	for _, c := range []struct {
		result *Type
		params []*Type
		amd64  string
		arm64  string
	}{
		{nil, []*Type{tInt, tDouble, tLong}, "rdi:4 v0 rsi", "x0:4 v0 x1"},
		{nil, []*Type{tLong, tLong, tLong, tLong, tLong, tLong, tLong, tLong, tLong}, "rdi rsi rdx rcx r8 r9 s0 s1 s2",
			"x0 x1 x2 x3 x4 x5 x6 x7 s0"},
		{nil, []*Type{structOf(tInt, tInt), structOf(tLong, tDouble)}, "rdi rsi+v0", "x0 x1+x2"},
		{nil, []*Type{structOf(tFloat, tFloat, tFloat)}, "v0+v1:4", "v0:4+v1:4+v2:4"},
		{nil, []*Type{structOf(tDouble, tDouble, tDouble, tDouble)}, "s0+s1+s2+s3", "v0+v1+v2+v3"},
		{nil, []*Type{structOf(tFloat, tInt)}, "rdi", "x0"},
		{nil, []*Type{big, tInt}, "s0+s1+s2 rdi:4", "*x0 x1:4"},
		// Eight bytes that do not fit leave the register for those that do, on x86-64; on arm64 they end it.
		{nil, []*Type{tLong, tLong, tLong, tLong, tLong, structOf(tLong, tLong), tInt}, "rdi rsi rdx rcx r8 s0+s1 r9:4",
			"x0 x1 x2 x3 x4 x5+x6 x7:4"},
		{nil, []*Type{tLong, tLong, tLong, tLong, tLong, tLong, tLong, structOf(tLong, tLong), tInt},
			"rdi rsi rdx rcx r8 r9 s0 s1+s2 s3:4", "x0 x1 x2 x3 x4 x5 x6 s0+s1 s2:4"},
		{nil, []*Type{tInt, tI128}, "rdi:4 rsi+rdx", "x0:4 x2+x3"},
		{nil, []*Type{packed}, "s0:5", "x0:5"},
		{nil, []*Type{tEmpty, tInt}, " rdi:4", "x0:1 x1:4"},
		{nil, []*Type{tString, tView}, "*rdi rsi+rdx", "*x0 x1+x2"},
		{nil, []*Type{arrayInStruct(tChar, 3), arrayInStruct(tFloat, 2)}, "rdi:3 v0", "x0:3 v0:4+v1:4"},
		{big, []*Type{tInt}, "rsi:4 -> *rdi", "x0:4 -> ?"},
		{tString, []*Type{tInt}, "rsi:4 -> *rdi", "x0:4 -> ?"},
		{structOf(tLong, tDouble), nil, " -> rdi+v0", " -> x0+x1"},
		{structOf(tInt), nil, " -> rdi:4", " -> x0:4"},
		{tFloat, nil, " -> v0:4", " -> v0:4"},
		{nil, []*Type{{Kind: Unknown, Name: "?"}, tInt}, "? rdi:4", "? x0:4"},
	} {
		for m, want := range []string{c.amd64, c.arm64} {
			call := Machine(m).callOf(c.result)
			var got []string
			for _, p := range c.params {
				got = append(got, where(Machine(m), call.argument(p)))
			}
			s := strings.Join(got, " ")
			if c.result != nil {
				s += " -> " + where(Machine(m), call.result(c.result))
			}
			if s != want {
				t.Errorf("machine %d: %v\n got %q\nwant %q", m, c.params, s, want)
			}
		}
	}
	// What only one machine has.
	call := AMD64.callOf(tX87)
	if got := where(AMD64, call.argument(tInt)) + " " + where(AMD64, call.argument(tX87)) + " " + where(AMD64, call.argument(tQuad)) +
		" " + where(AMD64, call.result(tX87)); got != "rdi:4 s0+s1 v0:16 st:16" {
		t.Errorf("long double: %s", got)
	}
	if got := where(ARM64, ARM64.callOf(nil).argument(tQuad)); got != "v0:16" {
		t.Errorf("quadruple precision: %s", got)
	}
}

func arrayInStruct(t *Type, n int) *Type { return structOf(arrayOf(t, n)) }

// TestClassifyBounded: types that nest or repeat without end give an answer.
func TestClassifyBounded(t *testing.T) {
	round := &Type{Kind: Struct, Size: 16}
	round.Fields = []Field{{Name: "self", Type: round}, {Name: "again", Type: round}}
	wide := arrayOf(arrayOf(&Type{Kind: Struct, Size: 0}, 1<<20), 1<<20)
	wide.Size = 8
	for _, m := range []Machine{AMD64, ARM64} {
		for _, p := range []*Type{round, wide} {
			if l := m.callOf(p).argument(p); !l.unknown {
				t.Errorf("machine %d: %v", m, l)
			}
		}
	}
}
