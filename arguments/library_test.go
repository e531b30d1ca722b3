package arguments

import (
	"strings"
	"testing"
)

// TestLibrary: each line of the text is a prototype of known types, in which nothing is lost.
func TestLibrary(t *testing.T) {
	n := 0
	for line := range strings.Lines(libcText) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		n++
		f := prototype(line)
		params := strings.Count(line, ",") + 1
		if strings.HasSuffix(line, "(void)") {
			params = 0
		}
		have := len(f.Params)
		if f.Variadic {
			have++
		}
		if !isName(f.Name) || have != params || (f.Result == nil) != strings.HasPrefix(line, "void ") {
			t.Errorf("%s: %+v", line, f)
		}
		for _, p := range f.Params {
			if !isName(p.Name) {
				t.Errorf("%s: %+v", line, p)
			}
		}
	}
	if n < 100 || len(library()) != n {
		t.Errorf("%d lines, %d functions", n, len(library()))
	}
	c, err := Plan(Library("open"), AMD64, Entries|Exits, nil)
	if err != nil {
		t.Fatal(err)
	}
	text := string(c.AppendArguments(nil, []uint64{0x1000, 0x241, 0o644}, Memory{{Address: 0x1000, Bytes: []byte("/tmp"), Text: true}}))
	if text != `"/tmp", 0x241, 0644` {
		t.Error(text)
	}
}
