package arguments

import (
	"strings"
	"testing"
)

func TestParseSpec(t *testing.T) {
	for in, want := range map[string]string{
		"f":                         "f:",
		"parse_*":                   "parse_*:",
		"f@arg1/s,arg2/x":           "f: arg1/s=0.0 arg2/x=0.1",
		"f@fparg1,fparg2/32":        "f: fparg1=v0 fparg2/f32=v1",
		"f@stack3,%rdi/i32":         "f: stack3=s2 %rdi/i32=r0",
		"f@arg1/i64%rsi":            "f: arg1/i64=r1",
		"f@arg3/u8%stack+2":         "f: arg3/u8=s1",
		"f@path,flags/x":            "f: path=p flags/x=p",
		"open@plt":                  "open@plt:",
		"open@plt@arg1/s":           "open@plt: arg1/s=0.0",
		"f@%xmm3":                   "f: %xmm3=v3",
		"f@retval/x32":              "f: retval/x32=result",
		"f@req->h.len,argv[2]/s":    "f: req->h.len=p argv[2]/s=p",
		"f@arg1->16/i32,a.b":        "f: arg1->16/i32=0.0 a.b=p",
		"f@retval->next->name":      "f: retval->next->name=result",
		"f@req->":                   "error",
		"f@req-len":                 "error",
		"f@argv[-1]":                "error",
		"f@argv[1":                  "error",
		"f@argv[99999999999]":       "error",
		"f@a.b.c.d.e.f.g.h.i.j":     "error",
		"f@arg1.16":                 "error",
		"":                          "error",
		"f@":                        "error",
		"f@arg0":                    "p", // a parameter's name
		"f@arg1/q":                  "error",
		"f@arg1/s8":                 "error",
		"f@arg1/f8":                 "error",
		"f@arg1/":                   "error",
		"f@arg1%rax":                "error",
		"f@arg1/x%":                 "f: arg1/x=0.0",
		"f@%rbx":                    "error",
		"f@a b":                     "error",
		"f@arg1,":                   "error",
		"f@" + repeat("arg1", 33):   "error",
		"f@arg1/i32%stack+99999999": "error",
	} {
		s, err := ParseSpec(in)
		got := describe(s)
		if err != nil {
			got = "error"
		}
		if want == "p" {
			want = "f: arg0=p"
		}
		if got != want {
			t.Errorf("%q: %s (%v), want %s", in, got, err, want)
		}
	}
}

func repeat(s string, n int) string { return strings.TrimSuffix(strings.Repeat(s+",", n), ",") }

func describe(s Spec) string {
	b := s.Pattern + ":"
	for _, it := range s.Items {
		b += " " + it.Name
		if it.Format != 0 {
			b += "/" + string(it.Format)
		}
		if it.Bits != 0 {
			b += map[int]string{8: "8", 16: "16", 32: "32", 64: "64", 80: "80"}[it.Bits]
		}
		n := string(rune('0' + it.n&0xff))
		b += "=" + map[itemKind]string{itemParam: "p", itemInteger: "0." + n, itemFloat: "v" + n, itemStack: "s" + n,
			itemRegister: "r" + n, itemVector: "v" + n, itemResult: "result"}[it.kind]
	}
	return b
}

// FuzzParseSpec: a spec gives an error or something that can be planned, on both machines.
func FuzzParseSpec(f *testing.F) {
	for _, s := range []string{"f@arg1/s,arg2/x,fparg1,stack3,%rdi/i32", "a@plt@x/f80", "@x", "f@arg64/S%stack+64,retval/f80"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		s, err := ParseSpec(in)
		if err != nil {
			return
		}
		for _, m := range []Machine{AMD64, ARM64} {
			fn := &Func{Params: []Param{{Name: "x", Type: tView}, {Name: "y", Type: tX87}}, Result: tString}
			c, err := Plan(fn, m, Entries|Exits, s.Items)
			if err != nil || c == nil {
				continue
			}
			for _, ops := range [][]Op{c.Entry, c.Exit} {
				if len(ops) > MaxOps {
					t.Fatalf("%q: %d operations", in, len(ops))
				}
			}
		}
	})
}
