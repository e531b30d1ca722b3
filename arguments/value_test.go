package arguments

import (
	"encoding/json"
	"math"
	"math/big"
	"testing"
	"unicode/utf8"

	"github.com/fentry-dev/fentry/internal/safetext"
)

func TestValues(t *testing.T) {
	colour := &Type{Kind: Enum, Size: 4, Enum: []Enumerator{{"RED", 0}, {"GREEN", 1}, {"BLUE", 2}, {"BAD", -1}}}
	high := &Type{Kind: Enum, Size: 1, Unsigned: true, Enum: []Enumerator{{"HIGH", 200}}}
	flags := &Type{Kind: Enum, Size: 4, Enum: []Enumerator{{"NONE", 0}, {"A", 1}, {"B", 2}, {"C", 8}, {"AB", 3}}}
	text := &Type{Kind: String, Size: 8}
	memory := Memory{
		{Address: 0x1000, Bytes: []byte("abc\x1b\"\n"), Text: true},
		{Address: 0x2000, Bytes: []byte("long"), Text: true, Cut: true},
		{Address: 0x3000, Unreadable: true, Text: true},
		{Address: 0x4000, Bytes: []byte("\x00\x10\x00\x00\x00\x00\x00\x00\x03\x00\x00\x00\x00\x00\x00\x00")},
		{Address: 0x5000, Bytes: []byte{7, 0, 0, 0}},
		{Address: 0x6000, Text: true},
	}
	big := structOf(tLong, tLong, tLong)
	bitfield := &Type{Kind: Struct, Size: 4, Fields: []Field{
		{Name: "a", Type: tInt, Bit: 0, Bits: 3}, {Name: "b", Type: &Type{Kind: Uint, Size: 4}, Bit: 3, Bits: 5}}}
	for _, c := range []struct {
		v     Value
		words []uint64
		text  string
		json  string
	}{
		{Value{Type: tInt, Words: 1}, []uint64{0xdeadbeefffffffff}, "-1", "-1"}, // the upper half is anything
		{Value{Type: tInt, Words: 1, Format: "x"}, []uint64{0xff}, "0xff", `"0xff"`},
		{Value{Type: tChar, Words: 1}, []uint64{'\n'}, `'\n'`, `"\n"`},
		{Value{Type: &Type{Kind: Bool, Size: 1}, Words: 1}, []uint64{1}, "true", "true"},
		{Value{Type: &Type{Kind: Uint, Size: 8}, Words: 1}, []uint64{math.MaxUint64}, "18446744073709551615", "18446744073709551615"},
		{Value{Type: tI128, Words: 2}, []uint64{1, 1}, "0x10000000000000001", `"0x10000000000000001"`},
		{Value{Type: tI128, Words: 2}, []uint64{math.MaxUint64, math.MaxUint64}, "-1", "-1"},
		{Value{Type: colour, Words: 1}, []uint64{2}, "BLUE", `"BLUE"`},
		{Value{Type: high, Words: 1}, []uint64{200}, "HIGH", `"HIGH"`},
		{Value{Type: high, Words: 1}, []uint64{250}, "250", "250"},
		{Value{Type: colour, Words: 1}, []uint64{0xffffffff}, "BAD", `"BAD"`},
		{Value{Type: colour, Words: 1}, []uint64{7}, "7", "7"},
		{Value{Type: flags, Words: 1}, []uint64{0}, "NONE", `"NONE"`},
		{Value{Type: flags, Words: 1}, []uint64{9}, "A|C", `"A|C"`},
		{Value{Type: flags, Words: 1}, []uint64{0x13}, "AB|0x10", `"AB|0x10"`},
		{Value{Type: tDouble, Words: 1}, []uint64{math.Float64bits(1.5)}, "1.5", "1.5"},
		{Value{Type: tFloat, Words: 1}, []uint64{uint64(math.Float32bits(0.1))}, "0.1", "0.1"},
		{Value{Type: tDouble, Words: 1}, []uint64{math.Float64bits(math.NaN())}, "NaN", `"NaN"`},
		{Value{Type: tX87, Words: 2}, []uint64{0xc000000000000000, 0xc000}, "-3", "-3"},
		{Value{Type: tQuad, Words: 2}, []uint64{0, 0x3fff800000000000}, "1.5", "1.5"},
		{Value{Type: &Type{Kind: Float, Size: 2}, Words: 1}, []uint64{0x3e00}, "1.5", "1.5"},
		{Value{Type: text, Words: 1}, []uint64{0x1000}, `"abc\x1b\"\n"`, `"abc\u001b\"\n"`},
		{Value{Type: text, Words: 1}, []uint64{0x2000}, `"long"...`, `"long"`},
		{Value{Type: text, Words: 1}, []uint64{0x3000}, `<0x3000>`, `"\u003c0x3000\u003e"`},
		{Value{Type: text, Words: 1}, []uint64{0x6000}, `""`, `""`},
		{Value{Type: text, Words: 1}, []uint64{0}, `NULL`, `null`},
		{Value{Type: text, Words: 1}, []uint64{0x9999}, `<0x9999>`, `"\u003c0x9999\u003e"`},
		{Value{Type: tView, Words: 2}, []uint64{0x1000, 3}, `"abc"`, `"abc"`},
		{Value{Type: tView, Words: 2}, []uint64{0x1000, 0}, `""`, `""`},
		{Value{Type: &Type{Kind: Span, Size: 16, Swapped: true}, Words: 2}, []uint64{3, 0x1000}, `"abc"`, `"abc"`},
		{Value{Type: tString, Words: 1, Indirect: true}, []uint64{0x4000}, `"abc"`, `"abc"`},
		{Value{Type: &Type{Kind: Reference, Size: 8, Elem: tString}, Words: 1}, []uint64{0x4000}, `"abc"`, `"abc"`},
		{Value{Type: &Type{Kind: Reference, Size: 8, Elem: tInt}, Words: 1}, []uint64{0x5000}, "7", "7"},
		{Value{Type: &Type{Kind: Pointer, Size: 8}, Words: 1}, []uint64{0x5000}, "0x5000", `"0x5000"`},
		{Value{Type: structOf(tInt, tInt), Words: 1}, []uint64{2<<32 | 1}, "{a=1, b=2}", `{"a":1,"b":2}`},
		{Value{Type: structOf(tFloat, tFloat), Words: 2, Stride: 4}, []uint64{uint64(math.Float32bits(1)), uint64(math.Float32bits(2))},
			"{a=1, b=2}", `{"a":1,"b":2}`},
		{Value{Type: arrayInStruct(tInt, 2), Words: 1}, []uint64{2<<32 | 1}, "{a=[1, 2]}", `{"a":[1,2]}`},
		{Value{Type: arrayInStruct(tChar, 4), Words: 1}, []uint64{0x6968}, `{a="hi"}`, `{"a":"hi"}`},
		{Value{Type: bitfield, Words: 1}, []uint64{0xff}, "{a=-1, b=31}", `{"a":-1,"b":31}`},
		{Value{Type: big, Words: 1, Indirect: true}, []uint64{0x7000}, "<0x7000>", `"\u003c0x7000\u003e"`},
		{Value{Type: big}, nil, "<unknown>", "null"},
		{Value{Type: &Type{}, Words: 1}, []uint64{1}, "<unknown>", "null"},
		{Value{Type: &Type{Kind: Struct}}, nil, "{}", "{}"},
		{Value{Type: &Type{Kind: Complex, Size: 16}, Words: 2}, []uint64{math.Float64bits(1), math.Float64bits(-2)}, "1-2i", `"1-2i"`},
	} {
		if got := string(c.v.AppendText(nil, c.words, memory)); got != c.text {
			t.Errorf("%+v %x: %s, want %s", c.v.Type, c.words, got, c.text)
		}
		got := string(c.v.AppendJSON(nil, c.words, memory))
		if want := c.json; got != want && unquoted(t, got) != unquoted(t, want) {
			t.Errorf("%+v %x: %s, want %s", c.v.Type, c.words, got, want)
		}
	}
}

func unquoted(t *testing.T, s string) string {
	var v any
	if err := json.Unmarshal([]byte(s), &v); err != nil {
		t.Errorf("%s: %v", s, err)
	}
	b, _ := json.Marshal(v)
	return string(b)
}

// FuzzBits: bits that a bit field has are those of what it is in; of one that is not inside of that nothing is known.
func FuzzBits(f *testing.F) {
	f.Add(3, 5, []byte{0xff, 1})
	f.Add(0, 64, []byte("12345678"))
	f.Add(10, 6, []byte("12"))
	f.Add(11, 6, []byte("12"))
	f.Add(math.MaxInt, 1, []byte("12345678"))
	f.Add(math.MaxInt-62, 64, []byte("12345678"))
	f.Add(1, math.MaxInt, []byte("12345678"))
	f.Add(-1, 2, []byte("12345678"))
	f.Add(1, -1, []byte("12345678"))
	f.Fuzz(func(t *testing.T, bit, bits int, b []byte) {
		if bits == 0 {
			return // no bit field
		}
		number := &Type{Kind: Uint, Size: 8}
		want := func(size int) string {
			n := new(big.Int)
			for at := 0; at < size; at++ {
				n.Or(n, new(big.Int).Lsh(big.NewInt(int64(b[at])), uint(8*at)))
			}
			if bit < 0 || bits < 0 || bits > 64 || bit > 8*size || bit+bits > 8*size {
				return "null"
			}
			mask := new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), uint(bits)), big.NewInt(1))
			return n.And(n.Rsh(n, uint(bit)), mask).String()
		}
		check := func(v Value, words []uint64, m Memory, want string) {
			if got := string(v.AppendJSON(nil, words, m)); got != want {
				t.Errorf("%+v: %s, want %s", v, got, want)
			}
			cond, err := ParseCondition("n>=0")
			if err != nil {
				t.Fatal(err)
			}
			v.Name = "n"
			if holds := cond.Holds(&Capture{Params: []Value{v}}, words, m); holds != (want != "null" && want[0] != '"') {
				t.Errorf("%+v >= 0: %v", v, holds)
			}
		}
		outside := func(text, otherwise string) string {
			if text == "null" {
				return otherwise
			}
			return text
		}
		m := Memory{{Address: 0x1000, Bytes: b}}
		check(Value{Type: number, Words: 1, Indirect: true, Bit: bit, Bits: bits}, []uint64{0x1000}, m, outside(want(len(b)), `"<0x1000>"`))
		if len(b) < 8 {
			return
		}
		word, _ := unsigned(b, 8)
		check(Value{Type: number, Words: 1, Bit: bit, Bits: bits}, []uint64{word}, nil, want(8))
		s := Value{Words: 1, Type: &Type{Kind: Struct, Size: 8, Fields: []Field{{Name: "f", Type: number, Bit: bit, Bits: bits}}}}
		if got, want := string(s.AppendJSON(nil, []uint64{word}, nil)), `{"f":`+want(8)+"}"; got != want {
			t.Errorf("%+v: %s, want %s", s.Type.Fields, got, want)
		}
	})
}

// FuzzCapture: whatever a trace says was captured, and how it is to be shown, each value is a line of safe text, and
// JSON.
func FuzzCapture(f *testing.F) {
	c, err := Plan(&Func{Params: []Param{
		{Name: "s", Type: &Type{Kind: String, Size: 8}}, {Name: "v", Type: tView}, {Name: "b", Type: structOf(tLong, tX87)}, {Name: "q", Type: tQuad}},
		Result: tString, Variadic: true}, AMD64, Entries|Exits, nil)
	if err != nil {
		f.Fatal(err)
	}
	b, err := json.Marshal(c)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b, []byte("\x00\x10\x00\x00\x00\x00\x00\x00\x00\x10\x00\x00\x00\x00\x00\x00"), uint64(0x1000), []byte("text"))
	f.Add([]byte(`{"p":[{"t":{"k":"array","c":1000000000,"s":8,"e":{"k":"int","s":4}},"c":1}]}`), []byte("12345678"), uint64(0), []byte{})
	f.Fuzz(func(t *testing.T, description, words []byte, at uint64, mem []byte) {
		var c Capture
		if json.Unmarshal(description, &c) != nil || len(words) > 8*MaxWords {
			return
		}
		var w []uint64
		for ; len(words) >= 8; words = words[8:] {
			v, _ := unsigned(words, 8)
			w = append(w, v)
		}
		m := Memory{{Address: at, Bytes: mem, Text: len(mem)%2 == 0}}
		c = *c.For(len(w), len(w))
		text := c.AppendArguments(nil, w, m)
		if c.Result != nil {
			text = c.Result.AppendText(text, w, m)
		}
		for _, r := range string(text) {
			if !safetext.Safe(r) {
				t.Fatalf("%q", text)
			}
		}
		if b := c.AppendObject(nil, w, m); !json.Valid(b) || !utf8.Valid(text) {
			t.Fatalf("%s", b)
		}
		if limit := 1 << 20; len(text) > limit+8*len(description) {
			t.Fatalf("%d bytes of text", len(text))
		}
	})
}
