package names

import (
	"testing"

	"github.com/fentry-dev/fentry/internal/testtool"
)

// TestGoLines: the source lines of a Go program without debug information are those that debug information has.
func TestGoLines(t *testing.T) {
	open := func(path string) *Lines {
		l, err := FindLines(Image{Paths: []string{path}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		return l
	}
	path := testtool.Go(t, "amd64", "../testdata/gostress")
	full, stripped := open(path), open(testtool.Go(t, "amd64", "-ldflags=-w", "../testdata/gostress"))
	if full.golang != nil || stripped.golang == nil {
		t.Fatal("lines are not from where they should be")
	}
	funcs, err := GoFunctions(Image{Paths: []string{path}})
	if err != nil {
		t.Fatal(err)
	}
	same := 0
	for i := range funcs {
		want, ok, err := full.At(funcs[i].Addr)
		if err != nil || !ok || want.Line == 0 {
			continue // made by the linker
		}
		got, ok, err := stripped.At(funcs[i].Addr)
		if err != nil || !ok || got != want {
			t.Errorf("%s: %v, %v; debug information says %v", funcs[i].Name, got, err, want)
			continue
		}
		same++
	}
	if same < 1000 {
		t.Errorf("only %d functions have lines", same)
	}
}
