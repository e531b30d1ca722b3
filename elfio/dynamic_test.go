package elfio

import (
	"slices"
	"testing"

	"github.com/fentry-dev/fentry/elfio/internal/elftest"
)

// Without section headers the number of dynamic symbols comes from the hash tables.
func TestDynamicSymbolsSectionless(t *testing.T) {
	for _, name := range []string{"pie", "pie-now", "static-pie", "gold-pie", "lld-pie", "musl-dyn"} {
		for _, x := range elftest.Fixtures {
			if x.Name != name {
				continue
			}
			t.Run(name, func(t *testing.T) {
				raw := elftest.Compile(t, name+"-rdynamic", ".c", elftest.FixtureC, x.Tool,
					append([]string{"-O1", "-w", "-rdynamic"}, x.Args...)...)
				f, err := Parse(raw)
				if err != nil {
					t.Fatal(err)
				}
				bare, err := Parse(elftest.DropSections(t, raw))
				if err != nil {
					t.Fatal(err)
				}
				compareSectionless(t, f, bare)
			})
		}
	}
}

// compareSectionless checks that what the program headers lead to is what the section headers say.
func compareSectionless(t *testing.T, f, bare *File) {
	t.Helper()
	a, err := f.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	b, err := bare.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(a, b) {
		t.Errorf("dynamic symbols: %v, without sections %v", a, b)
	}
	ra, err := f.DynamicRelocs()
	if err != nil {
		t.Fatal(err)
	}
	rb, err := bare.DynamicRelocs()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(ra, rb) {
		t.Errorf("dynamic relocations: %v, without sections %v", ra, rb)
	}
}
