package arguments

import "testing"

func TestConditions(t *testing.T) {
	c := &Capture{Params: []Value{
		{Name: "n", Type: tInt, Word: 0, Words: 1},
		{Name: "path", Type: &Type{Kind: String, Size: 8}, Word: 1, Words: 1},
		{Name: "mode", Type: &Type{Kind: Enum, Size: 4, Enum: []Enumerator{{"READ", 1}, {"WRITE", 2}}}, Word: 2, Words: 1},
		{Name: "f", Type: tDouble, Word: 3, Words: 1},
		{Name: "lost", Type: tInt},
		{Name: "p", Type: &Type{Kind: Pointer, Size: 8}, Word: 4, Words: 1},
		{Name: "r->len", Type: tInt, Word: 5, Words: 1, Indirect: true},
		{Name: "r->bits", Type: tInt, Word: 5, Words: 1, Indirect: true, Bit: 2, Bits: 3},
	}}
	words := []uint64{0xffffffff00000064, 0x1000, 3, 0x3ff8000000000000, 0, 0x2000}
	memory := Memory{{Address: 0x1000, Bytes: []byte("/etc/passwd"), Text: true}, {Address: 0x2000, Bytes: []byte{0x9c, 0, 0, 0}}}
	for text, want := range map[string]bool{
		"n > 99": true, "arg1>100": false, "n>=100": true, "n==0x64": true, "n = 100": true, "n!=100": false, "n<101": true, "n<=99": false,
		"path~/etc/*": true, "path ~ /etc/?asswd": true, "path~etc": false, "path!~/usr/*": true, `path=="/etc/passwd"`: true,
		"path==/etc/passwd": true, "path!=x": true, "path==NULL": false, "path!=NULL": true, "path>0": true,
		"mode==READ|WRITE": true, "mode==3": true, "mode~*WRITE": true, "mode==READ": false,
		"f>1.25": true, "f==1.5": true, "lost==0": false, "lost!=0": false, "none==1": false, "arg7==1": false, "p==NULL": true, "p==0": true,
		"r->len > 155": true, "r->len>156": false, "r->bits == -1": true, "r->none>1": false,
	} {
		cond, err := ParseCondition(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := cond.Holds(c, words, memory); got != want {
			t.Errorf("%s: %v", text, got)
		}
		again, err := ParseCondition(cond.String())
		if err != nil || again.Holds(c, words, memory) != want || again.String() != cond.String() {
			t.Errorf("%s is %s: %v, %v", text, cond, again, err)
		}
	}
	for _, text := range []string{"", "n", "n>", ">1", "n>x", "a b>1", "n!1", `n=="x`, "n>NaN", "path<abc", "errno==1", "retval>1", "fparg1>1", "%rdi>1", "a->b->>1"} {
		if cond, err := ParseCondition(text); err == nil {
			t.Errorf("%q: %+v", text, cond)
		}
	}
}

// FuzzCondition: a condition gives an error or an answer, whatever it is compared with.
func FuzzCondition(f *testing.F) {
	f.Add("arg1 > 100", uint64(7), []byte("x"))
	f.Add(`s ~ "/etc/*"`, uint64(0x1000), []byte("/etc/x"))
	c := &Capture{Params: []Value{{Name: "s", Type: &Type{Kind: String, Size: 8}, Words: 1}, {Name: "w", Type: tI128, Words: 2}}}
	f.Fuzz(func(t *testing.T, text string, w uint64, b []byte) {
		if cond, err := ParseCondition(text); err == nil {
			cond.Holds(c, []uint64{w, w}, Memory{{Address: w, Bytes: b, Text: true}})
		}
	})
}
