package arguments

import (
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
	}}
	general := func(n uint8) Op { return Op{Code: OpGeneral, From: n} }
	for text, want := range map[string]Check{
		"n > -2":                  {general(0), format.CompareMore, 4, true, 1<<64 - 2, ""},
		"arg2<=1":                 {general(1), format.CompareAtMost, 8, false, 1, ""},
		"u != 0xffffffffffffffff": {general(1), format.CompareUnequal, 8, false, 1<<64 - 1, ""},
		"path ~ /etc/*":           {general(2), format.CompareLike, 8, false, 0, "/etc/*"},
		"path==/x":                {general(2), format.CompareText, 8, false, 0, "/x"},
		"path!=NULL":              {general(2), format.CompareUnequal, 8, false, 0, ""},
		"mode=READ|WRITE":         {general(3), format.CompareEqual, 4, true, 3, ""},
		"c<x":                     {},
		"c==x":                    {general(4), format.CompareEqual, 1, false, 'x', ""},
		"yes!=true":               {general(5), format.CompareUnequal, 1, false, 1, ""},
		"deep>=1":                 {Op{Code: OpStack}, format.CompareAtLeast, 4, true, 1, ""},
	} {
		cond, err := ParseCondition(text)
		if err != nil {
			if want != (Check{}) {
				t.Errorf("%s: %v", text, err)
			}
			continue
		}
		got, err := PlanCheck(f, AMD64, &cond)
		if err != nil || *got != want {
			t.Errorf("%s: %+v, %v, want %+v", text, got, err, want)
		}
		if b := got.Encode(); len(b) != format.ConditionSize+len(want.text) || string(b[format.ConditionSize:]) != want.text {
			t.Errorf("%s: % x", text, b)
		}
	}
	for text, want := range map[string]string{
		"x > 1": "it is a float", "n > 1.5": "no integer", "u > -1": "no value of its type", "n ~ 1*": "no C string",
		"mode == NONE": "none of its names", "nix == 1": "no such argument", "arg9 == 1": "no such argument",
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
	cond, _ := ParseCondition("arg2 > 5")
	if got, err := PlanCheck(nil, ARM64, &cond); err != nil || got.op != general(1) || !got.signed {
		t.Errorf("%+v, %v", got, err)
	}
}
