package record

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

func TestFilterPatterns(t *testing.T) {
	tests := []struct {
		pattern string
		yes, no []string
	}{
		{"main", []string{"main"}, []string{"main2", "domain", ""}},
		{"parse_*", []string{"parse_", "parse_a", "parse_*"}, []string{"parse", "xparse_a"}},
		{"*_end", []string{"_end", "parse_end"}, []string{"parse_ends"}},
		{"*mid*", []string{"mid", "amid", "midst", "amidst"}, []string{"mi", "m_id"}},
		{"*", []string{"a", "", "anything at all"}, nil},
		{"**", []string{"a", ""}, nil},
		{"sch?dule", []string{"schedule", "schodule"}, []string{"schdule", "scheddule"}},
		{"sch?dule", []string{"schédule"}, nil},
		{"mutex*unl*", []string{"mutex_unlock", "mutexunl"}, []string{"mutex_lock"}},
		{"*pin*lock", []string{"spin_lock", "pinlock"}, []string{"spin_lock_irq"}},
		{"[Ss]y[Ss]_*", []string{"sys_read", "SyS_read"}, []string{"syx_read"}},
		{"f[0-9]", []string{"f0", "f9"}, []string{"fa", "f", "f10"}},
		{"f[!0-9]", []string{"fa"}, []string{"f0", "f"}},
		{"f[^0-9]", []string{"fa"}, []string{"f5"}},
		{"f[]a]", []string{"f]", "fa"}, []string{"f["}},
		{"f[a-]", []string{"fa", "f-"}, []string{"fb"}},
		{"f[b", []string{"f[b"}, []string{"fb"}},
		{"operator[]*", []string{"operator[]", "operator[](int)"}, []string{"operator"}},
		{`a\*b`, []string{"a*b"}, []string{"axb", `a\*b`}},
		{`\!x`, []string{"!x"}, []string{"x"}},
		{"a*b*c*d", []string{"abcd", "axbxcxd", "abcbcd", "aabbccdd"}, []string{"abdc", "abc"}},
		{"/^ab+$/", []string{"ab", "abbb"}, []string{"a", "xab"}},
		{"/mid/", []string{"amidst"}, []string{"MID"}},
		{"/mid/i", []string{"MID"}, []string{"m"}},
		{"/a/b/", []string{"xa/b"}, []string{"ab"}},
		{"f", []string{"f.constprop.0", "f.isra.0", "f.part.0.isra.3", "f.constprop.0.isra.0"}, []string{"f.cold", "f.x"}},
		{"f.isra.0", []string{"f.isra.0"}, []string{"f"}},
		{"net/http/...", []string{"net/http.(*conn).serve", "net/http.Get", "net/http/internal/ascii.Is", "net/http.F[...].func1"},
			[]string{"net/httpx.Get", "net.Dial", "x/net/http.Get", "type:.eq.net/http.conn", "net/http"}},
		{"example.org/v1.2/...", []string{"example.org/v1%2e2.F", "example.org/v1%2e2/b.(*T).M"}, []string{"example.org/v1.F"}},
		{"va(int, ...)", []string{"_Z2vaiz"}, []string{"va.f"}},
		{"own", []string{"own"}, []string{"main.main"}},
		// What it is called in the source, and what the linker calls it.
		{"ns::Foo::bar", []string{"_ZN2ns3Foo3barEi", "_ZN2ns3Foo3barEv"}, []string{"_ZN2ns3Foo3bazEi", "ns"}},
		// ns::S other::k<int>(int): what a template returns is no part of its name, but may be said.
		{"ns::*", []string{"_ZN2ns3Foo3barEi"}, []string{"_ZN5other1kIiEEN2ns1SET_"}},
		{"/^ns::/", []string{"_ZN2ns3Foo3barEi"}, []string{"_ZN5other1kIiEEN2ns1SET_"}},
		{"other::*", []string{"_ZN5other1kIiEEN2ns1SET_"}, nil},
		{"other::k<int>(int)", []string{"_ZN5other1kIiEEN2ns1SET_"}, []string{"_ZN5other1kIlEEN2ns1SET_"}},
		{"ns::S other::k<int>(int)", []string{"_ZN5other1kIiEEN2ns1SET_"}, []string{"_ZN5other1kIlEEN2ns1SET_"}},
		{"ns::Foo::*", []string{"_ZN2ns3Foo3barEi"}, []string{"_ZN2ns3Fox3barEi"}},
		{"ns::Foo::bar(int)", []string{"_ZN2ns3Foo3barEi"}, []string{"_ZN2ns3Foo3barEv"}},
		{"_ZN2ns3Foo3barEi", []string{"_ZN2ns3Foo3barEi"}, nil},
		{"foo", []string{"_Z3fooIiEvT_", "_Z3foov"}, []string{"_Z4foooIiEvT_"}},
		{"foo<int>", []string{"_Z3fooIiEvT_"}, []string{"_Z3fooIjEvT_"}},
		{"std::vector::push_back", []string{"_ZNSt6vectorIiSaIiEE9push_backEOi"}, nil},
		{"foo::example_function", []string{"_RNvCskwGfYPst2Cb_3foo16example_function"}, nil},
		{"std::mem::align_of", []string{"_RINvNtC3std3mem8align_ofjE"}, nil},
		{"core::str::Fooxy::bar", []string{"_ZN4core3str5Fooxy3bar17h0123456789abcdefE"}, nil},
	}
	for _, tt := range tests {
		f, err := NewFilter([]string{tt.pattern}, nil)
		if err != nil {
			t.Errorf("%s: %v", tt.pattern, err)
			continue
		}
		if un := f.Unmatched(); len(un) != 1 || un[0] != tt.pattern {
			t.Errorf("%s: before any match, unmatched = %q", tt.pattern, un)
		}
		for _, n := range tt.yes {
			if !f.Match(n) {
				t.Errorf("%s does not match %q", tt.pattern, n)
			}
		}
		for _, n := range tt.no {
			if f.Match(n) {
				t.Errorf("%s matches %q", tt.pattern, n)
			}
		}
		if un := f.Unmatched(); len(un) != 0 {
			t.Errorf("%s: after matches, unmatched = %q", tt.pattern, un)
		}
	}
}

func TestFilterSets(t *testing.T) {
	names := []string{"alloc", "parse_a", "parse_b", "parse_int", "main"}
	tests := []struct {
		include, exclude []string
		want             string
		unmatched        string
	}{
		{nil, nil, "alloc parse_a parse_b parse_int main", ""},
		{[]string{"parse_*"}, nil, "parse_a parse_b parse_int", ""},
		{[]string{"parse_*", "main"}, nil, "parse_a parse_b parse_int main", ""},
		{[]string{"parse_*", "!parse_b"}, nil, "parse_a parse_int", ""},
		{[]string{"parse_*", "!parse_?", "parse_b"}, nil, "parse_b parse_int", ""},
		{[]string{"!parse_*"}, nil, "alloc main", ""},
		{[]string{"!parse_*", "parse_b"}, nil, "alloc parse_b main", ""},
		{nil, []string{"parse_*"}, "alloc main", ""},
		{nil, []string{"parse_*", "!parse_a"}, "alloc parse_a main", ""},
		{[]string{"parse_*"}, []string{"*int"}, "parse_a parse_b", ""},
		{[]string{"nothing*", "main"}, []string{"zero", "al*"}, "main", "nothing* zero"},
		{[]string{"main", "main", "!main", "main"}, nil, "main", ""},
	}
	for _, tt := range tests {
		f, err := NewFilter(tt.include, tt.exclude)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, n := range names {
			if f.Match(n) {
				got = append(got, n)
			}
		}
		if s := strings.Join(got, " "); s != tt.want {
			t.Errorf("+%q -%q: got %q, want %q", tt.include, tt.exclude, s, tt.want)
		}
		if s := strings.Join(f.Unmatched(), " "); s != tt.unmatched {
			t.Errorf("+%q -%q: unmatched %q, want %q", tt.include, tt.exclude, s, tt.unmatched)
		}
	}
	var none *Filter
	if !none.Match("x") || none.Unmatched() != nil {
		t.Error("a nil filter takes all")
	}
}

func TestFilterFile(t *testing.T) {
	dir := t.TempDir()
	inner, outer := filepath.Join(dir, "inner"), filepath.Join(dir, "outer")
	write := func(path, text string) {
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	write(inner, "a\n\n# none\n  b*  \n!bad\nmissing\n")
	write(outer, "@"+inner+"\nz")
	f, err := NewFilter([]string{"@" + outer}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"a": true, "bee": true, "bad": false, "z": true, "# none": false, "c": false} {
		if f.Match(name) != want {
			t.Errorf("%q: got %v", name, !want)
		}
	}
	if got, want := f.Unmatched(), []string{"missing (" + inner + ":6)"}; !slices.Equal(got, want) {
		t.Errorf("unmatched %q, want %q", got, want)
	}
	write(inner, "@"+outer+"\n")
	if _, err := NewFilter([]string{"@" + outer}, nil); err == nil || !strings.Contains(err.Error(), "deep") {
		t.Errorf("lists that name each other: %v", err)
	}
	write(inner, "ok\n/(/\n")
	if _, err := NewFilter(nil, []string{"@" + inner}); err == nil || !strings.Contains(err.Error(), inner+":2") {
		t.Errorf("error without its line: %v", err)
	}
}

func TestFilterErrors(t *testing.T) {
	for _, p := range []string{"", "!", "/", "/x", "/(/", "/x/g", `x\`, "@/does/not/exist"} {
		if _, err := NewFilter([]string{p}, nil); err == nil {
			t.Errorf("%q: no error", p)
		}
	}
}

// A list of names is a map look-up, not a comparison with each.
func TestFilterLongList(t *testing.T) {
	const n = 200000
	pats := make([]string, n)
	for i := range pats {
		pats[i] = "function_" + string(rune('a'+i%26)) + strings.Repeat("x", i%7) + strconv.Itoa(i)
	}
	f, err := NewFilter(pats, nil)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for g := range 2 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := g; i < n; i += 2 {
				if !f.Match(pats[i]) {
					t.Errorf("%s not matched", pats[i])
					return
				}
			}
		}()
	}
	wg.Wait()
	if un := f.Unmatched(); len(un) != 0 {
		t.Errorf("%d unmatched", len(un))
	}
}

// slowGlob tries every length for every star.
func slowGlob(p, s string) bool {
	if p == "" {
		return s == ""
	}
	if p[0] == '*' {
		for i := 0; i <= len(s); i++ {
			if slowGlob(p[1:], s[i:]) {
				return true
			}
		}
		return false
	}
	if s == "" {
		return false
	}
	i, k, ok := globOne(p, 0, s, 0)
	return ok && slowGlob(p[i:], s[k:])
}

// TestBareNames: what need not be demangled for identifiers must not have matched them.
func TestBareNames(t *testing.T) {
	names := []string{"main", "_Z4mainv", "_ZL4maini", "_ZN4main17h0123456789abcdefE", "_RNvCs1234_7mycrate4main",
		"_RC4main", "_ZN3foo4mainEv",
		"main.constprop.0", "_Z4mainIiEvT_", "_Z5otherv", "_ZdlPv", "_ZNSsC1Ev", "_ZSt4endlv",
		"_Z4mainB5cxx11v", "other", "", "_Z", "_ZN4mainC1Ev"}
	patterns := []string{"main", "other", "string", "std", "operator", "endl", "delete", "foo", "mycrate", "f"}
	for _, p := range patterns {
		fast, err := NewFilter([]string{p}, nil)
		if err != nil {
			t.Fatal(err)
		}
		// A set of characters is another class of pattern, which is compared with all forms.
		slow, err := NewFilter([]string{"[" + p[:1] + "]" + p[1:]}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if fast.include.bare == nil || slow.include.bare != nil {
			t.Fatalf("%s: %v, %v", p, fast.include.bare, slow.include.bare)
		}
		for _, n := range names {
			if got, want := fast.Match(n), slow.Match(n); got != want {
				t.Errorf("%s: %q matches: %v, want %v", p, n, got, want)
			}
		}
	}
}

// TestImagePatterns: an image and a colon before a pattern restrict it to functions of that image.
func TestImagePatterns(t *testing.T) {
	const libz, prog = "/usr/lib/x86_64-linux-gnu/libz.so.1.2.13", "/usr/bin/prog"
	for _, tt := range []struct {
		pattern  string
		name     string
		libz, is bool // whether it matches there, and in prog
	}{
		{"libz.so.1.2.13:inflate", "inflate", true, false},
		{"libz.so:inf*", "inflate", true, false},
		{"libz.so.1:inflate", "inflate", true, false},
		{"libz:inflate", "inflate", true, false},
		{"libz:inflate", "deflate", false, false},
		{"lib*:/^in/", "inflate", true, false},
		{"lib:inflate", "inflate", false, false},
		{"libz.s:inflate", "inflate", false, false},
		{"*/libz.so.1.2.13:inflate", "inflate", true, false},
		{"/usr/lib/*:inflate", "inflate", true, false},
		{"prog:main", "main", false, true},
		{"*:main", "main", true, true},
		{"libz:ns::Foo::bar", "_ZN2ns3Foo3barEi", true, false},
		{"ns::Foo::bar", "_ZN2ns3Foo3barEi", true, true},
		{"::f", "::f", true, true},
		{"libz:::f", "::f", true, false},
		{`f\[abi:cxx11]`, "f[abi:cxx11]", true, true},
		{"f[a:]", "f:", true, true},
		{`a\:b`, "a:b", true, true},
		{"/a:b/", "xa:b", true, true},
		{"libz:strlen@plt", "strlen@plt", true, false},
	} {
		f, err := NewFilter([]string{tt.pattern}, nil)
		if err != nil {
			t.Errorf("%s: %v", tt.pattern, err)
			continue
		}
		if in, is := f.In(libz).Match(tt.name), f.In(prog).Match(tt.name); in != tt.libz || is != tt.is {
			t.Errorf("%s, %s: %v in the library, %v in the program", tt.pattern, tt.name, in, is)
		}
		image, _, _ := cutImage(tt.pattern)
		if got := f.Match(tt.name); got != (image == "" && tt.libz) {
			t.Errorf("%s, %s: %v without an image", tt.pattern, tt.name, got)
		}
		if un := len(f.Unmatched()) > 0; un == (tt.libz || tt.is) {
			t.Errorf("%s, %s: unmatched %v", tt.pattern, tt.name, un)
		}
	}
	for _, p := range []string{":f", "libz:", "!libz:", "libz:/(/"} {
		if _, err := NewFilter([]string{p}, nil); err == nil {
			t.Errorf("%s: no error", p)
		}
	}
}

// TestImageSets: patterns are tried in their order, in any image; names with an image do not imply anything for others.
func TestImageSets(t *testing.T) {
	f, err := NewFilter([]string{"*", "!libz:*", "libz.so:inflate"}, []string{"prog:secret"})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		image, name string
		want        bool
	}{
		{"/lib/libz.so.1", "deflate", false}, {"/lib/libz.so.1", "inflate", true}, {"/lib/libz.so.1", "secret", false},
		{"prog", "deflate", true}, {"prog", "secret", false}, {"", "secret", true},
	} {
		if got := f.In(tt.image).Match(tt.name); got != tt.want {
			t.Errorf("%s:%s: %v", tt.image, tt.name, got)
		}
	}
	if f, err = NewFilter([]string{"libz:inflate"}, nil); err != nil {
		t.Fatal(err)
	}
	if f.In("prog").Names("inflate") || !f.In("libz.so").Names("inflate") {
		t.Error("the name of a library's function is one of the program's")
	}
	if again := f.In("libz.so"); again != f.In("libz.so") {
		t.Error("In makes a filter each time")
	}
}

// What patterns have matched can be told to a filter with the same ones, and one apart knows nothing of it.
func TestFilterHits(t *testing.T) {
	include := []string{"a*", "!ab", "c", "libz:d", "e", "f", "g", "h"}
	filter := func() *Filter {
		f, err := NewFilter(include, []string{"none", "ax"})
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	f := filter()
	apart := f.Apart()
	for _, tt := range []struct {
		image, name string
		want        bool
	}{{"", "aa", true}, {"", "ab", false}, {"", "ax", false}, {"", "h", true}, {"libz.so", "d", true}, {"", "d", false}} {
		if got := apart.In(tt.image).Match(tt.name); got != tt.want {
			t.Errorf("%s:%s: %v", tt.image, tt.name, got)
		}
	}
	want := []string{"c", "e", "f", "g", "none"}
	if got := apart.Unmatched(); !slices.Equal(got, want) {
		t.Errorf("unmatched %q, want %q", got, want)
	}
	if got := f.Unmatched(); len(got) != len(include)+2 {
		t.Errorf("that of which it is a copy: unmatched %q", got)
	}
	hits := apart.Hits()
	f.Hit(hits)
	if got := f.Unmatched(); !slices.Equal(got, want) || f.Key() != apart.Key() {
		t.Errorf("told: unmatched %q, want %q", got, want)
	}
	other := filter()
	other.Hit(hits[:1])
	other.Hit(append(slices.Clone(hits), 255))
	if got := other.Unmatched(); !slices.Equal(got, want) {
		t.Errorf("told less and more: unmatched %q, want %q", got, want)
	}
	var none *Filter
	if none.Hit(hits); none.Hits() != nil || none.Apart() != nil {
		t.Error("no filter has matched something")
	}
}
