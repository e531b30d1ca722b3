//go:build linux

package tracefs

import (
	"regexp"
	"strings"
	"testing"
)

// The first are those of the kernel's own test (lib/globtest.c).
func TestMatch(t *testing.T) {
	for _, c := range []struct {
		want    bool
		pattern string
		strings string // separated by blanks; "" is one, too
	}{
		{true, "a", "a"}, {false, "a", "b aa"}, {false, "a", ""}, {true, "", ""}, {false, "", "a"},
		{true, "[a]", "a"}, {false, "[a]", "b"}, {false, "[!a]", "a"}, {true, "[!a]", "b"}, {true, "[ab]", "a b"},
		{false, "[ab]", "c"}, {true, "[!ab]", "c"}, {true, "[a-c]", "b"}, {false, "[a-c]", "d"},
		{true, "[a-c-e-g]", "-"}, {false, "[a-c-e-g]", "d"}, {true, "[a-c-e-g]", "f"},
		{true, "[]a-ceg-ik[]", "a ] [ h"}, {false, "[]a-ceg-ik[]", "f"}, {false, "[!]a-ceg-ik[]", "h ]"},
		{true, "[!]a-ceg-ik[]", "f"},
		{true, "?", "a"}, {false, "?", "aa"}, {false, "??", "a"}, {true, "?x?", "axb"}, {false, "?x?", "abx xab"},
		{false, "*??", "a"}, {true, "*??", "ab abc abcd"}, {false, "??*", "a"}, {true, "??*", "ab abc abcd"},
		{false, "?*?", "a"}, {true, "?*?", "ab abc abcd"}, {true, "*b", "b ab aab"}, {false, "*b", "ba"},
		{true, "*ab*", "ab abc cab"}, {true, "*ac*", "ac acb aac aaac"}, {false, "*ac*", "adc acac4a"[:3]},
		{true, "*ab*cd", "abcd abcabcabcabcdefcd"[0:4]}, {false, "*bcd*abcdef*", "abcabcabcabcdefg"},
		{true, "abcd*abcdef*", "abcdabcdabcdefg"[:15]}, {true, "a*b*c", "abc aXbXc abcbc"},
		{true, "[", "["}, {true, "[a", "[a"}, {true, "x[]", "x[]"}, {true, `\*`, "*"}, {false, `\*`, "a"},
		{true, `\a\b`, "ab"}, {false, `a\`, "a"}, {true, "[a-]", "- a"},
		{false, strings.Repeat("a*", 50) + "b", strings.Repeat("a", 500)},
	} {
		for _, s := range strings.Split(c.strings, " ") {
			if got := match(c.pattern, s); got != c.want {
				t.Errorf("match(%q, %q) = %v", c.pattern, s, got)
			}
		}
	}
}

// FuzzMatch compares patterns without classes and escapes with regular expressions.
func FuzzMatch(f *testing.F) {
	f.Add("a*b?c", "aXXbYc")
	f.Add("[a-z]*", "x")
	f.Add(`\`, "")
	f.Add("*a*", "bab")
	f.Fuzz(func(t *testing.T, pattern, s string) {
		if len(pattern) > 64 || len(s) > 256 {
			return
		}
		got := match(pattern, s)
		if strings.ContainsAny(pattern, `[\`) {
			return
		}
		for _, c := range []byte(pattern + s) {
			if c >= 0x80 {
				return // regular expressions are about characters
			}
		}
		re := regexp.QuoteMeta(pattern)
		re = strings.ReplaceAll(strings.ReplaceAll(re, `\*`, ".*"), `\?`, ".")
		if want := regexp.MustCompile("(?s)^" + re + "$").MatchString(s); got != want {
			t.Errorf("match(%q, %q) = %v", pattern, s, got)
		}
	})
}

// FuzzFilter writes to filters in pieces: what comes of it does not depend on where it was cut.
func FuzzFilter(f *testing.F) {
	f.Add([]byte("alpha !beta\n*a:mod:lib "), uint8(3))
	f.Add([]byte("2 !:mod:none gamma:mod:\x00[a"), uint8(1))
	fns := &functions{all: []Function{{Name: "alpha"}, {Name: "beta", Module: "lib"}, {Name: "gamma"}}}
	f.Fuzz(func(t *testing.T, b []byte, at uint8) {
		run := func(pieces ...[]byte) (*set, string) {
			s, w, errs := &set{}, words{}, ""
			word := func(word string) error {
				if err := fns.apply(s, word); err != nil {
					errs += word + " "
				}
				return nil
			}
			for _, p := range pieces {
				if err := w.write(p, word); err != nil {
					return nil, "too long"
				}
			}
			if err := w.end(word); err != nil {
				t.Fatal(err)
			}
			return s, errs
		}
		one, oneErr := run(b)
		cut := min(int(at), len(b))
		two, twoErr := run(b[:cut], b[cut:])
		if oneErr != twoErr || one != nil && string(fns.list(one, "")) != string(fns.list(two, "")) {
			t.Errorf("%q cut at %d: %v %q, %v %q", b, cut, one, oneErr, two, twoErr)
		}
	})
}

// TestModules: functions by the module that they are in.
func TestModules(t *testing.T) {
	f := functions{all: []Function{{Name: "main"}, {Name: "inflate", Module: "libz.so.1"}, {Name: "crc32", Module: "libz.so.1"},
		{Name: "crc32", Module: "liblzma.so.5"}}}
	for word, want := range map[string]string{
		":mod:libz.so.1":      "inflate [libz.so.1]\ncrc32 [libz.so.1]\n",
		"crc*:mod:lib*":       "crc32 [libz.so.1]\ncrc32 [liblzma.so.5]\n",
		"*:mod:!libz.so.1":    "main\ncrc32 [liblzma.so.5]\n",
		"*:mod:!*":            "main\n",
		"crc32:mod:":          "crc32 [libz.so.1]\ncrc32 [liblzma.so.5]\n",
		"crc32:mod:libnone.*": "crc32:mod:libnone.*\n",
		"nosuch:mod:libz*":    "",
	} {
		s := &set{}
		err := f.apply(s, word)
		if got := string(f.list(s, "")); err == nil && got != want || (err != nil) != (want == "") {
			t.Errorf("%s: %q, %v", word, got, err)
		}
	}
}
