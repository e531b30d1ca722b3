package record

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/internal/cost"
)

// FuzzFind changes bytes of small images. Whatever is found must lie in the file's code and hold the bytes it says.
func FuzzFind(f *testing.F) {
	imgs := prebuilt(f)
	bases := make([][]byte, len(imgs))
	for i, img := range imgs {
		b, err := os.ReadFile(img)
		if err != nil {
			f.Fatal(err)
		}
		bases[i] = b
		f.Add(uint8(i), []byte{})
		f.Add(uint8(i), []byte{0x20, 0, 0xff, 0x40, 1, 0})
	}
	f.Fuzz(func(t *testing.T, which uint8, patch []byte) {
		b := append([]byte(nil), bases[int(which)%len(bases)]...)
		for ; len(patch) >= 3; patch = patch[3:] {
			b[(int(patch[0])|int(patch[1])<<8)%len(b)] = patch[2]
		}
		img, err := elfio.Parse(b)
		if err != nil {
			return
		}
		var sites []Site
		cost.Check(t, len(b), 256, func() { sites, err = Find(img, Options{XRayExits: true, Plain: PlainAll}) })
		if err != nil {
			return
		}
		for i, s := range sites {
			if i > 0 && compareSites(sites[i-1], s) > 0 {
				t.Fatalf("site %d is out of order", i)
			}
			least := 4
			if s.Via != 0 {
				least = 2 // a short jump
			}
			if s.Traceable() && (s.Len < least || s.Kind == KindNone || s.Ret == RetNone) {
				t.Fatalf("traceable without a site: %+v", s)
			}
			if len(s.Bytes) != s.Len {
				t.Fatalf("%d bytes for a site of %d", len(s.Bytes), s.Len)
			}
			if s.Len > 0 {
				if got, err := img.Bytes(s.Addr, s.Len); err != nil || string(got) != string(s.Bytes) {
					t.Fatalf("site at %#x: % x, the image has % x (%v)", s.Addr, s.Bytes, got, err)
				}
			}
		}
	})
}

func FuzzFilter(f *testing.F) {
	for _, s := range []string{"a*b", "[a-z]?", `\[`, "/re/i", "!x", "[", "*a*b*c*", "[!]-]", "é?"} {
		f.Add(s, "abc")
		f.Add(s, "ns::f(int)")
	}
	f.Fuzz(func(t *testing.T, pattern, name string) {
		if strings.HasPrefix(pattern, "@") || strings.HasPrefix(pattern, "!") {
			return
		}
		flt, err := NewFilter([]string{pattern}, nil)
		if err != nil {
			return
		}
		var got bool
		cost.Check(t, len(pattern)+len(name), 1<<10, func() { got = flt.Match(name) })
		if got != (len(flt.Unmatched()) == 0) {
			t.Fatalf("%q on %q: match %v, unmatched %q", pattern, name, got, flt.Unmatched())
		}
		neg, err := NewFilter([]string{"*", "!" + pattern}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if neg.Match(name) == got {
			t.Fatalf("%q on %q: the negation says the same", pattern, name)
		}
		// Against the textbook definition; of what has an image in front it is none.
		if m, err := newMatcher(pattern); err == nil && m.class != classRegexp && len(pattern) < 12 && len(name) < 12 {
			if want := slowGlob(pattern, name); m.match(name) != want {
				t.Fatalf("%q on %q: got %v, want %v", pattern, name, !want, want)
			}
		}
	})
}

// FuzzList: a list in a file means what its lines mean one after another.
func FuzzList(f *testing.F) {
	dir := f.TempDir()
	file := filepath.Join(dir, "list")
	f.Add([]byte("# comment\n\n parse_* \r\n!parse_x\n/re/i\n"), "parse_x", "parse_y", true)
	f.Add([]byte("!a\nb"), "a", "b", false)
	f.Add([]byte("@other\n\\"), "a", "_ZN2ns3Foo3barEi", false)
	f.Fuzz(func(t *testing.T, list []byte, one, two string, exclude bool) {
		// Lists of lists are files that somebody has.
		var lines []string
		for _, line := range strings.Split(string(list), "\n") {
			line = strings.TrimSpace(line)
			if strings.HasPrefix(line, "@") {
				return
			}
			if line != "" && line[0] != '#' {
				lines = append(lines, line)
			}
		}
		if err := os.WriteFile(file, list, 0o666); err != nil {
			t.Fatal(err)
		}
		both := func(patterns []string) (flt *Filter, err error) {
			cost.Check(t, len(list), 1<<10, func() {
				if exclude {
					flt, err = NewFilter(nil, patterns)
				} else {
					flt, err = NewFilter(patterns, nil)
				}
			})
			return flt, err
		}
		want, wantErr := both(lines)
		got, err := both([]string{"@" + file})
		if (err != nil) != (wantErr != nil) {
			t.Fatalf("%q: %v, its lines: %v", list, err, wantErr)
		}
		if err != nil {
			return
		}
		for _, name := range []string{one, two, "parse_x"} {
			if got.Match(name) != want.Match(name) {
				t.Errorf("%q on %q: %v, its lines say otherwise", list, name, got.Match(name))
			}
		}
		a, b := got.Unmatched(), want.Unmatched()
		if len(a) != len(b) {
			t.Fatalf("%q: unmatched %q, of its lines %q", list, a, b)
		}
		for i, text := range a {
			where, n := strings.TrimPrefix(text, b[i]), 0
			if _, err := fmt.Sscanf(where, " ("+file+":%d)", &n); err != nil ||
				strings.TrimSpace(strings.Split(string(list), "\n")[n-1]) != b[i] {
				t.Errorf("%q: unmatched %q", list, text)
			}
		}
	})
}
