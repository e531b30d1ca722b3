package arguments

import (
	"reflect"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/internal/format"
)

// TestPlanCheck: conditions that the runtime looks at, and what only readers can.
func TestPlanCheck(t *testing.T) {
	enum := &Type{Kind: Enum, Size: 4, Enum: []Enumerator{{"READ", 1}, {"WRITE", 2}}}
	param := func(name string, t *Type) Param { return Param{Name: name, Type: t} }
	f := &Func{Params: []Param{
		param("n", tInt), param("u", &Type{Kind: Uint, Size: 8}), param("path", &Type{Kind: String, Size: 8}),
		param("mode", enum), param("c", &Type{Kind: Char, Size: 1}), param("yes", &Type{Kind: Bool, Size: 1}),
		param("x", tDouble), param("deep", tInt),
		param("high", &Type{Kind: Enum, Size: 1, Unsigned: true, Enum: []Enumerator{{"HIGH", 200}}}),
	}}
	general := func(n uint8) Op { return Op{Code: OpGeneral, From: n} }
	for text, want := range map[string]Check{
		"n > -2":                  {op: general(0), how: format.CompareMore, size: 32, signed: true, value: 1<<64 - 2, text: ""},
		"arg2<=1":                 {op: general(1), how: format.CompareAtMost, size: 64, signed: false, value: 1, text: ""},
		"u != 0xffffffffffffffff": {op: general(1), how: format.CompareUnequal, size: 64, signed: false, value: 1<<64 - 1, text: ""},
		"path ~ /etc/*":           {op: general(2), how: format.CompareLike, size: 128, signed: false, value: 0, text: "/etc/*"},
		"path==/x":                {op: general(2), how: format.CompareText, size: 128, signed: false, value: 0, text: "/x"},
		"path!=NULL":              {op: general(2), how: format.CompareUnequal, size: 64, signed: false, value: 0, text: ""},
		"mode=READ|WRITE":         {op: general(3), how: format.CompareEqual, size: 32, signed: true, value: 3, text: ""},
		"c<x":                     {},
		"c==x":                    {op: general(4), how: format.CompareEqual, size: 8, signed: false, value: 'x', text: ""},
		"yes!=true":               {op: general(5), how: format.CompareUnequal, size: 8, signed: false, value: 1, text: ""},
		"high=HIGH":               {op: Op{Code: OpStack, From: 1}, how: format.CompareEqual, size: 8, signed: false, value: 200, text: ""},
		"deep>=1":                 {op: Op{Code: OpStack}, how: format.CompareAtLeast, size: 32, signed: true, value: 1, text: ""},
	} {
		cond, err := ParseCondition(text)
		if err != nil {
			if want.how != 0 {
				t.Errorf("%s: %v", text, err)
			}
			continue
		}
		got, err := PlanCheck(f, AMD64, &cond)
		if err != nil || !reflect.DeepEqual(*got, want) {
			t.Errorf("%s: %+v, %v, want %+v", text, got, err, want)
		}
		if b := got.Encode(); len(b) != format.ConditionSize+len(want.text) || string(b[format.ConditionSize:]) != want.text {
			t.Errorf("%s: % x", text, b)
		}
	}
	for text, want := range map[string]string{
		"x > 1": "it is a float", "n > 1.5": "no integer", "u > -1": "no value of its type", "n ~ 1*": "no C string",
		"mode == NONE": "none of its names", "nix == 1": "no such argument", "arg10 == 1": "no such argument",
		"path ~ " + strings.Repeat("x", 129): "more than 128 bytes",
	} {
		cond, err := ParseCondition(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got, err := PlanCheck(f, AMD64, &cond); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %+v, %v, want %s", text, got, err, want)
		}
	}
	for text, want := range map[string]Check{
		"arg1->8 > 5":         {op: general(0), hops: []uint64{hopTo(8, 8)}, how: format.CompareMore, size: 64, signed: true, value: 5},
		"arg1->8->16/u32 > 5": {op: general(0), hops: []uint64{hopTo(8, 8), hopTo(16, 4)}, how: format.CompareMore, size: 32, value: 5},
		"arg3->0/s == x":      {op: general(2), hops: []uint64{hopTo(0, 8)}, how: format.CompareText, size: maxPattern, text: "x"},
		"arg1/s ~ /etc/*":     {op: general(0), how: format.CompareLike, size: maxPattern, text: "/etc/*"},
	} {
		cond, err := ParseCondition(text)
		if err != nil {
			t.Fatal(err)
		}
		got, err := PlanCheck(nil, AMD64, &cond)
		if err != nil || !reflect.DeepEqual(*got, want) {
			t.Errorf("%s: %+v, %v, want %+v", text, got, err, want)
		}
		if b := got.Encode(); len(b) != format.ConditionSize+8*len(want.hops)+len(want.text) {
			t.Errorf("%s: % x", text, b)
		}
	}
	cond, _ := ParseCondition("arg2 > 5")
	if got, err := PlanCheck(nil, ARM64, &cond); err != nil || got.op != general(1) || !got.signed {
		t.Errorf("%+v, %v", got, err)
	}
}
