package arguments_test

import (
	"debug/dwarf"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/arguments"
	"github.com/fentry-dev/fentry/internal/testtool"
	"github.com/fentry-dev/fentry/symbol"
)

const cSource = `
struct point { int x, y; };
struct bits { unsigned a : 3, b : 5; signed char c; };
enum colour { RED, GREEN = 5 };
union u { int i; double d; };
typedef unsigned long size;
typedef int vec __attribute__((vector_size(16)));
__attribute__((noinline)) int scalars(char c, const char *s, size n, double d, enum colour e, _Bool b) { return c + *s + n + d + e + b; }
__attribute__((noinline)) struct point structs(struct point p, struct bits b, union u u, vec v) { p.x += b.a + u.i + v[0]; return p; }
__attribute__((noinline)) long double wide(long double l, __int128 i, _Complex double z, int (*fn)(void)) { return l + i + z + (fn != 0); }
__attribute__((noinline)) int variadic(const char *f, ...) { return *f; }
int main(int argc, char **argv)
{
	struct point p = { 1, 2 }; struct bits b = { 0 }; union u u = { 0 }; vec v = { 0 };
	return scalars('c', argv[0], 1, 2, RED, 1) + structs(p, b, u, v).x + (int)wide(1, 2, 3, 0) + variadic("x", 1);
}
`

const cxxSource = `
#include <string>
#include <string_view>
struct base { int a; };
struct derived : base { int b; };
struct owner { int *p; owner() : p(0) {} owner(const owner &o) : p(o.p) {} ~owner() {} };
struct holder { owner o; };
struct none {};
enum class kind : unsigned char { ONE = 1, TWO };
namespace n {
__attribute__((noinline)) std::string text(const std::string &a, std::string b, std::string_view c) { return a + b + std::string(c); }
__attribute__((noinline)) int classes(derived d, owner o, holder h, none x, kind k, const int &r) { return d.a + (o.p != 0) + (h.o.p != 0) + (int)k + r; }
}
int main(int argc, char **argv) { derived d; d.a = d.b = argc; return n::text(argv[0], "b", "c").size() + n::classes(d, owner(), holder(), none(), kind::TWO, argc); }
`

// TestFunctions: types as compilers describe them.
func TestFunctions(t *testing.T) {
	for _, c := range []struct{ compiler, source, want string }{
		{"gcc", cSource, `
scalars(c char1, s string8, n uint8, d float8, e enum4[2], b bool1) int4
structs(p struct8{x int4, y int4}, b struct4{a uint4:3, b uint4:5, c int1}, u union8{i int4, d float8}, v vector16) struct8{x int4, y int4}
variadic(f string8, ...) int4
wide(l longdouble16, i int16, z complex16, fn pointer8) longdouble16`},
		{"g++", cxxSource, `
classes(d struct8{base struct4{a int4}, b int4}, o struct8&{p pointer8}, h struct8&{o struct8&{p pointer8}}, x struct1!{}, k enum1[2], r reference8->int4) int4
text(a reference8->text32&, b text32&, c span16~) text32&`},
	} {
		for _, level := range []string{"-O0", "-O2"} {
			t.Run(c.compiler+level, func(t *testing.T) {
				testtool.Need(t, c.compiler)
				dir := t.TempDir()
				source, program := filepath.Join(dir, "a.c"), filepath.Join(dir, "a")
				if c.compiler == "g++" {
					source += "c"
				}
				if err := os.WriteFile(source, []byte(c.source), 0o666); err != nil {
					t.Fatal(err)
				}
				testtool.Output(t, c.compiler, "-g", level, "-std="+map[string]string{"gcc": "gnu17", "g++": "gnu++17"}[c.compiler],
					"-o", program, source)
				var lines []string
				for _, f := range functionsOf(t, program) {
					if f.Name != "main" && strings.Contains(c.want, f.Name+"(") {
						lines = append(lines, describe(f))
					}
				}
				if got := sorted(lines); got != strings.TrimSpace(c.want) {
					t.Errorf("got\n%s", got)
				}
			})
		}
	}
}

// TestEnumerations: values of enumerations have the sign that the program gives them.
func TestEnumerations(t *testing.T) {
	const source = `
enum class tiny : unsigned char { LOW = 1, HIGH = 200 };
enum class wide : unsigned { HIGH = 0x80000001u };
enum all { NONE, ALL = 0xffffffffu };
enum class below : signed char { MINUS = -3 };
enum mixed { NEGATIVE = -1, POSITIVE };
#define KEEP __attribute__((noinline))
KEEP int unsigneds(tiny t, wide w, all a) { return (int)t + (int)w + (int)a; }
KEEP int signeds(below b, mixed m) { return (int)b + (int)m; }
int main(int argc, char **) { return unsigneds((tiny)argc, (wide)argc, (all)argc) + signeds((below)argc, (mixed)argc); }
`
	for _, compiler := range []string{"g++", "clang++"} {
		t.Run(compiler, func(t *testing.T) {
			testtool.Need(t, compiler)
			file, program := filepath.Join(t.TempDir(), "a.cc"), filepath.Join(t.TempDir(), "a")
			if err := os.WriteFile(file, []byte(source), 0o666); err != nil {
				t.Fatal(err)
			}
			testtool.Output(t, compiler, "-g", "-O1", "-o", program, file)
			want := map[string]map[string]int64{
				"t": {"LOW": 1, "HIGH": 200}, "w": {"HIGH": 0x80000001}, "a": {"NONE": 0, "ALL": 1<<32 - 1},
				"b": {"MINUS": -3}, "m": {"NEGATIVE": -1, "POSITIVE": 0},
			}
			seen := 0
			for _, f := range functionsOf(t, program) {
				for _, p := range f.Params {
					values := want[p.Name]
					if values == nil || p.Type.Kind != arguments.Enum {
						continue
					}
					seen++
					got := map[string]int64{}
					for _, e := range p.Type.Enum {
						got[e.Name] = e.Value
					}
					if !maps.Equal(got, values) || p.Type.Unsigned != strings.Contains("twa", p.Name) {
						t.Errorf("%s: %v, unsigned: %v", p.Name, got, p.Type.Unsigned)
					}
				}
			}
			if seen != len(want) {
				t.Errorf("%d of %d arguments", seen, len(want))
			}
		})
	}
}

// functionsOf reads the functions of a program by their symbols.
func functionsOf(t *testing.T, program string) map[uint64]*arguments.Func {
	tab, err := symbol.Open(program, symbol.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer tab.Close()
	d, err := tab.DWARF()
	if err != nil {
		t.Fatal(err)
	}
	addrs := map[uint64]bool{}
	names := map[uint64]string{}
	for _, fn := range tab.Funcs() {
		addrs[fn.Addr], names[fn.Addr] = true, fn.Name
	}
	fs, err := arguments.Functions(d, arguments.AMD64, addrs, func(a uint64) string { return names[a] })
	if err != nil {
		t.Fatal(err)
	}
	return fs
}

func sorted(lines []string) string {
	for i := range lines {
		for j := i; j > 0 && lines[j] < lines[j-1]; j-- {
			lines[j], lines[j-1] = lines[j-1], lines[j]
		}
	}
	return strings.Join(lines, "\n")
}

func describe(f *arguments.Func) string {
	var params []string
	for _, p := range f.Params {
		params = append(params, p.Name+" "+typeText(p.Type))
	}
	if f.Variadic {
		params = append(params, "...")
	}
	s := f.Name + "(" + strings.Join(params, ", ") + ")"
	if f.Result != nil {
		s += " " + typeText(f.Result)
	}
	return s
}

func typeText(t *arguments.Type) string {
	s := fmt.Sprintf("%v%d", t.Kind, t.Size)
	if t.ByReference {
		s += "&"
	}
	if t.Empty {
		s += "!"
	}
	if t.Swapped {
		s += "~"
	}
	switch {
	case t.Kind == arguments.Struct || t.Kind == arguments.Union:
		var fields []string
		for _, f := range t.Fields {
			bits := ""
			if f.Bits != 0 {
				bits = fmt.Sprintf(":%d", f.Bits)
			}
			fields = append(fields, f.Name+" "+typeText(f.Type)+bits)
		}
		s += "{" + strings.Join(fields, ", ") + "}"
	case t.Kind == arguments.Enum:
		s += fmt.Sprintf("[%d]", len(t.Enum))
	case t.Elem != nil && t.Kind == arguments.Reference:
		s += "->" + typeText(t.Elem)
	}
	return s
}

// TestFunctionsMalformed: debug information that is not gives an error, not a panic.
func TestFunctionsMalformed(t *testing.T) {
	for _, d := range []*dwarf.Data{{}} {
		if fs, err := arguments.Functions(d, arguments.AMD64, map[uint64]bool{1: true}, func(uint64) string { return "" }); err == nil && len(fs) > 0 {
			t.Errorf("%v", fs)
		}
	}
}
