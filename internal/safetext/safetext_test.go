package safetext

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// hostile is what must not be shown as it is.
var hostile = []string{
	"\x00", "\a", "\b", "\t", "\n", "\r", "\x1b[2J", "\x7f", "\u0085", "\u009b31m", "\x9b", "\xff", // controls
	"\u200e", "\u202a", "\u202e", "\u2066", "\u2069", "\u061c", // directions
	"\u200b", "\u200d", "\u2060", "\ufeff", "\u00ad", "\u034f", "\u115f", "\u3164", "\uffa0", "\U000e0041", // invisible
	"\ufe0f", "\U000e0100", "\u180e", // variants
	"\u2028", "\u2029", // lines
}

func TestLine(t *testing.T) {
	for _, s := range hostile {
		got := Line("a" + s + "b")
		if !strings.HasPrefix(got, "a?") && !strings.HasPrefix(got, "a\ufffd") || !utf8.ValidString(got) || !strings.HasSuffix(got, "b") || strings.ContainsFunc(got, func(r rune) bool { return !Safe(r) }) {
			t.Errorf("%q: %q", s, got)
		}
	}
	for _, s := range []string{"", "main", "operator<", "ünïcødé", "漢字", "e\u0301", "🙂", "std::vector<int>", "a\u00a0b"} {
		if got := Line(s); got != s {
			t.Errorf("%q: %q", s, got)
		}
	}
	if got := Message("one\ntwo\r\nthree\x1b"); got != "one; two; three?" {
		t.Errorf("%q", got)
	}
}

func TestJSON(t *testing.T) {
	for _, s := range append([]string{"main", `qu"ote\`, "ünïcødé 漢字 🙂", "<&>"}, hostile...) {
		std, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		var text bytes.Buffer
		enc := json.NewEncoder(JSONWriter(&text))
		if err := enc.Encode(s); err != nil {
			t.Fatal(err)
		}
		for _, b := range [][]byte{AppendJSON(nil, s), JSON(std), bytes.TrimSuffix(text.Bytes(), []byte("\n"))} {
			checkJSON(t, b, s)
		}
	}
}

// checkJSON checks that b is s, safe to print.
func checkJSON(t *testing.T, b []byte, s string) {
	t.Helper()
	var got string
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatalf("%q: %s: %v", s, b, err)
	}
	want := string([]rune(s)) // as JSON has it: bytes that are not UTF-8 are U+FFFD
	if got != want {
		t.Errorf("%q: %s", s, b)
	}
	for _, r := range string(b) {
		if !Safe(r) {
			t.Errorf("%q: %s has %U", s, b, r)
		}
	}
}

// What is safe is shown by one of the classes that people see; all that package unicode calls graphic and visible is.
func TestSafe(t *testing.T) {
	for r := rune(0); r <= unicode.MaxRune; r++ {
		if !utf8.ValidRune(r) || !Safe(r) {
			continue
		}
		if unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp) {
			t.Errorf("%U is safe", r)
		}
	}
	for _, r := range "azAZ09~ é漢🙂−×" {
		if !Safe(r) {
			t.Errorf("%U is not safe", r)
		}
	}
}

func FuzzText(f *testing.F) {
	for _, s := range hostile {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for _, line := range []string{Line(s), Message(s)} {
			for _, r := range line {
				if !Safe(r) {
					t.Fatalf("%q: %q", s, line)
				}
			}
			if !utf8.ValidString(line) {
				t.Fatalf("%q: %q", s, line)
			}
		}
		if again := Line(Line(s)); again != Line(s) {
			t.Errorf("%q: %q", s, again)
		}
		checkJSON(t, AppendJSON(nil, s), s)
		if std, err := json.Marshal(s); err == nil {
			checkJSON(t, JSON(std), s)
		}
	})
}
