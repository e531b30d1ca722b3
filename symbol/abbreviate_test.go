package symbol

import (
	"strings"
	"testing"

	"github.com/ianlancetaylor/demangle"
)

func TestAbbreviate(t *testing.T) {
	const str = "std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >"
	for in, want := range map[string]string{
		"main":                  "main",
		str + "::basic_string":  "std::string::basic_string",
		"f<" + str + " const&>": "f<std::string const&>",
		"std::__1::vector<int, std::__1::allocator<int> >::size":                                                                                        "std::vector<int>::size",
		"std::vector<" + str + ", std::allocator<" + str + " > >::push_back":                                                                            "std::vector<std::string>::push_back",
		"std::vector<int, my::allocator<int> >::size":                                                                                                   "std::vector<int, my::allocator<int>>::size",
		"std::vector<int, std::allocator<long> >::size":                                                                                                 "std::vector<int, std::allocator<long>>::size",
		"my::vector<int, std::allocator<int> >::size":                                                                                                   "my::vector<int, std::allocator<int>>::size",
		"std::map<int, " + str + ", std::less<int>, std::allocator<std::pair<int const, " + str + " > > >::find":                                        "std::map<int, std::string>::find",
		"std::map<int, int, std::greater<int>, std::allocator<std::pair<int const, int> > >::find":                                                      "std::map<int, int, std::greater<int>>::find",
		"std::unordered_map<char const*, X, std::hash<char const*>, std::equal_to<char const*>, std::allocator<std::pair<char const* const, X> > >::at": "std::unordered_map<char const*, X>::at",
		"std::unique_ptr<A::B, std::default_delete<A::B> >::~unique_ptr":                                                                                "std::unique_ptr<A::B>::~unique_ptr",
		"std::basic_ostream<wchar_t, std::char_traits<wchar_t> >::put":                                                                                  "std::wostream::put",
		"std::basic_ostream<char, std::char_traits<char> >& std::operator<< <std::char_traits<char> >":                                                  "std::ostream& std::operator<< <std::char_traits<char>>",
		"bool std::operator< <int, std::allocator<int> >":                                                                                               "bool std::operator< <int, std::allocator<int>>",
		"std::function<void (std::vector<int, std::allocator<int> >, int)>::operator()":                                                                 "std::function<void (std::vector<int>, int)>::operator()",
		"main::{lambda(std::vector<int, std::allocator<int> >)#1}::operator()<int> const":                                                               "main::{lambda(std::vector<int>)#1}::operator()<int> const",
		"std::enable_if<((1)<(2)), std::vector<int, std::allocator<int> > >::type f":                                                                    "std::enable_if<((1)<(2)), std::vector<int>>::type f",
		"X::operator-><std::vector<int, std::allocator<int> > >":                                                                                        "X::operator-><std::vector<int>>",
		"decltype (a->b) std::f<int>":                                                                                                                   "decltype (a->b) std::f<int>",
		"std::f<int":                                                                                                                                    "std::f<int",
		"std::f>int":                                                                                                                                    "std::f>int",
		"std::f(int":                                                                                                                                    "std::f(int",
		"(anonymous namespace)::std::__1::f":                                                                                                            "(anonymous namespace)::std::__1::f",
		"mystd::__1::f<std::vector<int, std::allocator<int> >>":                                                                                         "mystd::__1::f<std::vector<int>>",
	} {
		if got := abbreviate(in); got != want {
			t.Errorf("%s\n got %s\nwant %s", in, got, want)
		}
	}
	deep := strings.Repeat("std::f<", 10000) + strings.Repeat(">", 10000)
	if got := abbreviate(deep); got != deep {
		t.Error("deep nesting was followed")
	}
}

// TestAbbreviateLibrary: what the standard library's own symbols become is shorter, and two functions that had different
// names still have.
func TestAbbreviateLibrary(t *testing.T) {
	tab, err := Open("/usr/lib/x86_64-linux-gnu/libstdc++.so.6", Options{DebugDirs: []string{}})
	if err != nil {
		t.Skipf("no C++ library (Debian package libstdc++6): %v", err)
	}
	defer tab.Close()
	names, before, after, strings_ := map[string]string{}, 0, 0, 0
	for _, s := range tab.DynamicSymbols() {
		full, err := demangle.ToString(BaseName(s.Name))
		if err != nil {
			continue
		}
		short := abbreviate(full)
		before += len(full)
		after += len(short)
		if strings.Contains(short, "std::string") {
			strings_++
		}
		if strings.Contains(short, "basic_string<char,") || strings.Contains(short, "> >") {
			t.Errorf("%s: %s", full, short)
		}
		// With and without the namespace, the old and the new string are two, which only the library itself has.
		key := strings.ReplaceAll(full, "std::__cxx11::", "std::")
		if other, ok := names[short]; ok && other != key && !strings.Contains(key, "std::string") && !strings.Contains(other, "std::string") {
			t.Errorf("%s and %s are both %s", other, key, short)
		}
		names[short] = key
	}
	if strings_ < 300 || after > before*3/4 {
		t.Errorf("%d bytes of %d, %d strings", after, before, strings_)
	}
	t.Logf("%d bytes of %d", after, before)
}

func FuzzAbbreviate(f *testing.F) {
	f.Add("std::vector<int, std::allocator<int> >::size")
	f.Add("std::operator<< <char>(std::ostream&)")
	f.Add("std::f<(a)>(b)>{}[]->")
	f.Fuzz(func(t *testing.T, s string) {
		if len(s) > 4096 {
			return
		}
		short := abbreviate(s)
		if len(short) > len(s)+strings.Count(s, ",") { // a blank behind each
			t.Fatalf("%q: %q is longer", s, short)
		}
	})
}
