package trace

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fentry-dev/fentry/internal/spec"
)

// TestInfoTable compares the table of info.json's members with the struct.
func TestInfoTable(t *testing.T) {
	var have []string
	var walk func(typ reflect.Type, prefix string)
	walk = func(typ reflect.Type, prefix string) {
		for i := range typ.NumField() {
			name, _, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
			if name == "-" {
				continue
			}
			have = append(have, prefix+name)
			ft := typ.Field(i).Type
			if ft.Kind() == reflect.Pointer {
				ft = ft.Elem()
			}
			switch {
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
