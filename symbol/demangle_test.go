package symbol

import (
	"cmp"
	"slices"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/internal/cost"
	"github.com/ianlancetaylor/demangle"
)

func TestDemangle(t *testing.T) {
	tests := []struct{ raw, simple, full string }{
		{"main", "main", "main"},
		{"", "", ""},
		{"_start", "_start", "_start"},
		{"_ZN2ns3Foo3barEi", "ns::Foo::bar", "ns::Foo::bar(int)"},
		{"_ZN2ns3Foo3barEi@@VERS_1.0", "ns::Foo::bar", "ns::Foo::bar(int)"},
		{"memcpy@GLIBC_2.14", "memcpy", "memcpy"},
		{"memcpy@plt", "memcpy@plt", "memcpy@plt"},
		{"_ZN2ns3Foo3barEi@plt", "ns::Foo::bar@plt", "ns::Foo::bar(int)@plt"},
		{"@plt", "@plt", "@plt"},
		{"_Z5twiceIiET_S0_", "twice<int>", "int twice<int>(int)"},
		{"_ZN2ns3Foo3barEi.isra.0", "ns::Foo::bar", "ns::Foo::bar(int) [clone .isra.0]"},
		{"_ZZ4mainENKUlvE_clEv", "main::{lambda()#1}::operator()", "main::{lambda()#1}::operator()() const"},
		{"_ZN4core3str5Fooxy3bar17h0123456789abcdefE", "core::str::Fooxy::bar", "core::str::Fooxy::bar"},
		{"_RNvCskwGfYPst2Cb_3foo16example_function", "foo::example_function", "foo::example_function"},
		{"camlStdlib__List__iter_261", "Stdlib.List.iter", "Stdlib.List.iter_261"},
		{"camlStdlib__List.iter_261", "Stdlib.List.iter", "Stdlib.List.iter_261"},
		{"camlStdlib__fun_854", "Stdlib.fun_854", "Stdlib.fun_854"},
		{"camlStdlib__$5e_140", "Stdlib.^", "Stdlib.^_140"},
		{"camlDune__exe__Coqc_bin__entry", "Dune.exe.Coqc_bin.entry", "Dune.exe.Coqc_bin.entry"},
		{"camlA__$00b_1", "A.$00b", "A.$00b_1"},
		{"camlA__", "camlA__", "camlA__"},
		{"camlA__b_", "A.b_", "A.b_"},
		{"camlA___1", "A._1", "A._1"},
		{"camlA.", "camlA.", "camlA."},
		{"camlAbc", "camlAbc", "camlAbc"},
		{"caml_alloc", "caml_alloc", "caml_alloc"},
		{"_Z", "_Z", "_Z"},
		{"_ZZZZZZZ", "_ZZZZZZZ", "_ZZZZZZZ"},
		{"_Rnonsense", "_Rnonsense", "_Rnonsense"},
	}
	for _, tt := range tests {
		if got := Demangle(tt.raw, Simple); got != tt.simple {
			t.Errorf("%s: simple %q, want %q", tt.raw, got, tt.simple)
		}
		if got := Demangle(tt.raw, Full); got != tt.full {
			t.Errorf("%s: full %q, want %q", tt.raw, got, tt.full)
		}
		if got := Demangle(tt.raw, No); got != BaseName(tt.raw) && got != tt.raw {
			t.Errorf("%s: raw %q", tt.raw, got)
		}
	}
	for _, s := range []Style{Simple, Full, No} {
		if got, err := ParseStyle(s.String()); err != nil || got != s {
			t.Errorf("%v: %v %v", s, got, err)
		}
	}
	if _, err := ParseStyle("some"); err == nil {
		t.Error("unknown style accepted")
	}
}

// TestDemangleForms compares the forms, made from one parse, with the demangler's own options on the symbols of the
// standard library.
func TestDemangleForms(t *testing.T) {
	tab, err := Open("/usr/lib/x86_64-linux-gnu/libstdc++.so.6", Options{DebugDirs: []string{}})
	if err != nil {
		t.Skipf("no C++ library (Debian package libstdc++6): %v", err)
	}
	defer tab.Close()
	n, differ := 0, 0
	for _, s := range tab.DynamicSymbols() {
		name := BaseName(s.Name)
		if !strings.HasPrefix(name, "_Z") {
			continue
		}
		forms, typed := DemangleForms(name)
		want, err := demangle.ToString(name)
		if err != nil {
			continue
		}
		n++
		if len(forms) == 0 || cmp.Or(typed, forms[0]) != want || typed != "" && !strings.HasSuffix(typed, " "+forms[0]) {
			t.Errorf("%s: %q, %q, want %q", name, typed, forms, want)
			continue
		}
		if simple := Demangle(name, Simple); !slices.Contains(forms, simple) {
			if differ++; differ < 10 {
				t.Errorf("%s: %q is not among %q", name, simple, forms)
			}
		}
		for _, f := range forms[1:] {
			if len(f) > len(forms[0]) {
				t.Errorf("%s: %q is longer than %q", name, f, forms[0])
			}
		}
	}
	if n < 1000 {
		t.Errorf("only %d names", n)
	}
}

// Names made to grow when they are read must not take the machine down.
func TestDemangleHostile(t *testing.T) {
	cost.Time(t, func() {
		for _, name := range []string{
			"_Z1f" + strings.Repeat("P", 16000) + "i",
			"_Z1fIJ" + strings.Repeat("S_", 10000) + "EEvv",
			"_Z1f" + strings.Repeat("DpT_", 5000),
			"_ZN" + strings.Repeat("1aI", 5000),
			"_Z" + strings.Repeat("x", 1<<20),
			"_RINvC1a1b" + strings.Repeat("B_", 10000) + "E",
			"_Z1aSt" + strings.Repeat("IS0_S0_E", 40),
		} {
			if got := Demangle(name, Full); len(got) > 1<<20 && got != name {
				t.Errorf("%d bytes for a name of %d", len(got), len(name))
			}
			DemangleForms(name)
		}
	})
}
