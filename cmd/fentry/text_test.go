package main

import (
	"bufio"
	"bytes"
	"testing"

	"github.com/fentry-dev/fentry/trace"
)

func TestNumbers(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{grouped(0), "0"},
		{grouped(999), "999"},
		{grouped(1000), "1,000"},
		{grouped(1234567), "1,234,567"},
		{grouped(18446744073709551615), "18,446,744,073,709,551,615"},
		{plural(1, "event", "events"), "1 event"},
		{plural(2000, "event", "events"), "2,000 events"},
		{duration(0), "0.000 us"},
		{duration(2047), "2.047 us"},
		{duration(999_999), "999.999 us"},
		{duration(1_000_000), "1.000 ms"},
		{duration(999_999_499), "999.999 ms"},
		{duration(999_999_500), "1.000 s"},
		{duration(90_061_500_000_000), "90061.500 s"},
		{durationCell(1_000_000_000), "1.000 s "},
		{durationCell(-5), "0.000 us"},
		{size(0), "0 B"},
		{size(1023), "1023 B"},
		{size(1024), "1.0 KiB"},
		{size(1048524), "1023.9 KiB"},
		{size(1048525), "1.0 MiB"},
		{size(1 << 62), "4096.0 PiB"},
		{percent(1, 3), "33.33"},
		{percent(1, 0), "-"},
		{oneLine("a\nb\r\nc\x1b[2J"), "a; b; c?[2J"},
		{printable("a\x00\u009b\x7fä\t"), "a???ä?"},
		{trace.QuoteArgs([]string{"a", "", "b c", "it's"}), `a '' 'b c' 'it'\''s'`},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
}

func TestParseDuration(t *testing.T) {
	for _, c := range []struct {
		text string
		ns   int64 // -1: an error
	}{
		{"10us", 10_000},
		{"10", -1},
		{"1.5ms", 1_500_000},
		{"2s", 2_000_000_000},
		{"0", 0},
		{"0.5", -1},
		{"-1", -1},
		{"-1us", -1},
		{"1e300", -1},
		{"NaN", -1},
		{"soon", -1},
		{"", -1},
	} {
		d, err := parseDuration(c.text)
		switch {
		case c.ns < 0 && err == nil:
			t.Errorf("%q: %v, want an error", c.text, d)
		case c.ns >= 0 && (err != nil || int64(d) != c.ns):
			t.Errorf("%q: %v, %v, want %d ns", c.text, d, err, c.ns)
		}
	}
}

func TestSplitWords(t *testing.T) {
	for _, c := range []struct {
		text string
		want []string
		bad  bool
	}{
		{text: "", want: nil},
		{text: "  -q   --color=never\t-v ", want: []string{"-q", "--color=never", "-v"}},
		{text: `-F 'a b' -F "c d" -F e\ f`, want: []string{"-F", "a b", "-F", "c d", "-F", "e f"}},
		{text: `'' "" x`, want: []string{"", "", "x"}},
		{text: `'a\b' "a\"b"`, want: []string{`a\b`, `a"b`}},
		{text: `'a`, bad: true},
		{text: `a\`, bad: true},
	} {
		got, err := splitWords(c.text)
		if (err != nil) != c.bad {
			t.Errorf("%q: error %v", c.text, err)
			continue
		}
		if len(got) != len(c.want) {
			t.Errorf("%q: %q, want %q", c.text, got, c.want)
			continue
		}
		for i := range got {
			if got[i] != c.want[i] {
				t.Errorf("%q: %q, want %q", c.text, got, c.want)
			}
		}
	}
}

// Tables have room in a terminal: names are cut at their beginnings, the widest first, numbers never.
func TestTableFits(t *testing.T) {
	var tab table
	tab.column("CALLS", true)
	tab.column("THREAD", false)
	tab.column("FUNCTION", false)
	tab.row("1,234,567", "a thread of a program", "ns::Class<std::vector<int>>::a_method_with_a_long_name")
	tab.row("1", "main", "ünï::code")
	for width, want := range map[int]string{
		0: "    CALLS  THREAD                 FUNCTION\n" +
			"1,234,567  a thread of a program  ns::Class<std::vector<int>>::a_method_with_a_long_name\n" +
			"        1  main                   ünï::code\n",
		60: "    CALLS  THREAD                 FUNCTION\n" +
			"1,234,567  a thread of a program  …a_method_with_a_long_name\n" +
			"        1  main                   ünï::code\n",
		20: "    CALLS  THREAD            FUNCTION\n" +
			"1,234,567  …ad of a program  …ith_a_long_name\n" +
			"        1  main              ünï::code\n",
	} {
		var b bytes.Buffer
		out := &output{Writer: bufio.NewWriter(&b), width: width}
		if err := tab.write(out, false); err != nil {
			t.Fatal(err)
		}
		out.Flush()
		if b.String() != want {
			t.Errorf("width %d:\n%s\nwant\n%s", width, b.String(), want)
		}
	}
	for _, c := range []struct {
		s    string
		n    int
		want string
	}{{"", 0, ""}, {"abc", 3, "abc"}, {"abc", 2, "…c"}, {"äöü", 2, "…ü"}, {"abc", 0, "abc"}} {
		if got := keepEnd(c.s, c.n); got != c.want {
			t.Errorf("%q to %d: %q, want %q", c.s, c.n, got, c.want)
		}
	}
}
