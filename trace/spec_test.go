package trace

import (
	"go/format"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fentry-dev/fentry/trace/internal/spec"
)

// TestGenerated compares the files made from the format's table with the table.
func TestGenerated(t *testing.T) {
	src, err := format.Source([]byte(spec.GoConsts()))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"zformat.go":           string(src),
		"../stub/src/format.h": spec.CHeader(),
		"../docs/format.md":    spec.Markdown(),
	} {
		have, err := os.ReadFile(name)
		if err != nil {
			t.Error(err)
			continue
		}
		if d := cmp.Diff(want, string(have)); d != "" {
			t.Errorf("%s is not what the table says; run go generate ./trace\n%s", name, d)
		}
	}
}

// TestTable checks the table itself: fields do not overlap and lie where their
// types may lie.
func TestTable(t *testing.T) {
	for name, s := range map[string]struct {
		fields []spec.Field
		size   int
	}{
		"header":  {spec.Header, spec.StatesOff},
		"chunk":   {spec.Chunk, spec.ChunkHeader},
		"profile": {spec.Profile, spec.ProfileEntry},
	} {
		end := 0
		for _, f := range s.fields {
			n := spec.Size(f.Type)
			if f.Off < end || f.Off%min(n, 8) != 0 {
				t.Errorf("%s.%s at %d: overlaps or is not aligned", name, f.Name, f.Off)
			}
			end = f.Off + n
		}
		if end > s.size {
			t.Errorf("%s ends at %d, there is room for %d", name, end, s.size)
		}
	}
	for i, e := range spec.Events {
		if int(e.Code) != i {
			t.Errorf("event %s has code %d, want %d", e.Name, e.Code, i)
		}
	}
}

// TestInfoTable compares the table of info.json's members with the struct.
func TestInfoTable(t *testing.T) {
	var have []string
	var walk func(typ reflect.Type, prefix string)
	walk = func(typ reflect.Type, prefix string) {
		for i := range typ.NumField() {
			name, _, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
			have = append(have, prefix+name)
			switch ft := typ.Field(i).Type; {
			case ft.Kind() == reflect.Struct && ft.PkgPath() == typ.PkgPath():
				walk(ft, prefix+name+".")
			case ft.Kind() == reflect.Slice && ft.Elem().Kind() == reflect.Struct:
				walk(ft.Elem(), prefix+name+"[].")
			}
		}
	}
	walk(reflect.TypeFor[Info](), "")
	var want []string
	for _, m := range spec.Info {
		want = append(want, m.Name)
	}
	slices.Sort(have)
	slices.Sort(want)
	if d := cmp.Diff(want, have); d != "" {
		t.Errorf("spec.Info and type Info differ: %s", d)
	}
}
