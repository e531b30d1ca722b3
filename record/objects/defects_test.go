package objects_test

import (
	"bytes"
	"debug/elf"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/record/objects"
)

// Each of these is an object recordmcount treats wrongly; the name says what it does.

func offsets(list []objects.Site) (out []string) {
	for _, s := range list {
		out = append(out, fmt.Sprintf("%#x/%d", s.Off, s.Len))
	}
	return out
}

func TestSectionOfWeakFunctionsOnly(t *testing.T) {
	b := assemble(t, "gcc", "__attribute__((weak)) void w(void) {}\n", "-O2", "-pg", "-mfentry", "-fno-pie", "-fno-asynchronous-unwind-tables", "-ffunction-sections")
	for _, o := range []objects.Options{{}, {Compat: true}} {
		f, err := elf.NewFile(bytes.NewReader(record(t, b, o)))
		if err != nil {
			t.Fatal(err)
		}
		syms, err := f.Symbols()
		if err != nil {
			t.Fatal(err)
		}
		var local, names []string
		for _, s := range syms {
			names = append(names, s.Name)
			if elf.ST_BIND(s.Info) == elf.STB_LOCAL && int(s.Section) < len(f.Sections) && f.Sections[s.Section].Name == ".text.w" {
				local = append(local, s.Name)
			}
		}
		if len(local) != 1 || !slices.Contains(names, "w") || !slices.Contains(names, "__fentry__") {
			t.Errorf("symbols %q, local ones of .text.w %q", names, local)
		}
	}
}

func TestEveryProfilingSymbolOfASectionCounts(t *testing.T) {
	b := assemble(t, "gcc", "\t.text\nf:\tcall mcount\n\tret\ng:\tcall __fentry__\n\tret\nh:\tcall mcount\n\tret\n")
	if got := offsets(sites(t, b, objects.Options{})); !slices.Equal(got, []string{"0x0/5", "0x6/5", "0xc/5"}) {
		t.Errorf("sites %v", got)
	}
	record(t, b, objects.Options{})
}

func TestAddressesTakenAreNotSites(t *testing.T) {
	b := assemble(t, "gcc", "\t.text\nf:\tcall __fentry__\n\tlea __fentry__(%rip), %rax\n\tjmp __fentry__\n\tmov __fentry__@GOTPCREL(%rip), %rax\n\t.quad __fentry__\n")
	var calls, taken int
	for _, s := range sites(t, b, objects.Options{}) {
		if s.Form == objects.FormAddress {
			taken++
		} else {
			calls++
		}
	}
	if calls != 1 || taken != 4 {
		t.Errorf("%d calls and %d addresses, want 1 and 4", calls, taken)
	}
	record(t, b, objects.Options{})
}

func TestUnlistedSectionsAlone(t *testing.T) {
	b := assemble(t, "gcc", "__attribute__((section(\".exit.text\"))) void e(void) {}\n", "-O2", "-pg", "-fno-pie")
	ob, err := objects.Parse(b, objects.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if got := ob.Unrecorded(); !slices.Equal(got, []string{".exit.text"}) {
		t.Errorf("Unrecorded %q", got)
	}
	out := record(t, b, objects.Options{})
	if !bytes.Contains(out, []byte{0x0f, 0x1f, 0x44, 0, 0}) || len(sites(t, out, objects.Options{})) != 0 {
		t.Error("the call in .exit.text has not become a nop")
	}
	compat := record(t, b, objects.Options{Compat: true})
	if len(compat) != len(b) {
		t.Errorf("only nops, but %d bytes became %d", len(b), len(compat))
	}
}

func TestX32(t *testing.T) {
	b := assemble(t, "gcc", "void f(void) {}\n", "-mx32", "-O2", "-pg", "-mfentry", "-fno-pie")
	f, err := elf.NewFile(bytes.NewReader(record(t, b, objects.Options{})))
	if err != nil {
		t.Fatal(err)
	}
	s := f.Section("__mcount_loc")
	r, err := f.Section(".rela__mcount_loc").Data()
	if err != nil || s.Size != 4 || f.ByteOrder.Uint32(r[4:])&0xff != uint32(elf.R_X86_64_32) {
		t.Errorf("table of %d bytes, relocation % x (%v)", s.Size, r, err)
	}
}

func TestFilesDoNotInfluenceEachOther(t *testing.T) {
	arm := synthetic(elf.EM_AARCH64, false, true, []uint32{0x94000000}, uint32(elf.R_AARCH64_CALL26), "_mcount")
	ppc := synthetic(elf.EM_PPC64, true, true, []uint32{0x48000001}, uint32(elf.R_PPC64_REL24), "_mcount")
	want := map[string]string{}
	for _, round := range [][]int{{0, 1}, {1, 0}, {0, 1, 0, 1}} {
		for _, i := range round {
			name, b := "arm64", arm
			if i == 1 {
				name, b = "ppc64", ppc
			}
			got := strings.Join(offsets(sites(t, b, objects.Options{})), " ")
			if want[name] == "" {
				want[name] = got
			}
			if got != want[name] || got != "0x0/4" {
				t.Errorf("%s: %q, before %q", name, got, want[name])
			}
		}
	}
}

func TestManySections(t *testing.T) {
	var s strings.Builder
	const n = 33000 // 66,000 sections with their relocations
	for i := range n {
		fmt.Fprintf(&s, "\t.section .text.f%d,\"ax\"\n\t.weak f%d\nf%d:\tcall mcount\n\tret\n", i, i, i)
	}
	src := "\t.text\n" + s.String()
	b := assemble(t, "gcc", src)
	for _, o := range []objects.Options{{}, {Compat: true}} {
		out := record(t, b, o)
		ob, err := objects.Parse(out, o)
		if err != nil {
			t.Fatal(err)
		}
		tabled := 0
		for s := range ob.Sites() {
			if s.Tabled && s.Off == 0 {
				tabled++
			}
		}
		if tabled != n {
			t.Errorf("%d of %d sites are in a table", tabled, n)
		}
	}
}

const comdat = `
template <class T> struct S { static T f(T x) { return x + 1; } };
template <class T> __attribute__((noinline)) T dup(T x) { return S<T>::f(x) * 2; }
int NAME(int x) { return dup(x) + dup((long)x); }
`

const checker = `
#include <stdio.h>
extern "C" { extern unsigned char *__start___mcount_loc[], *__stop___mcount_loc[]; void __fentry__(); }
__asm__(".text\n.globl __fentry__\n.hidden __fentry__\n__fentry__: ret");
int one(int), two(int);
__attribute__((no_instrument_function)) int main() {
	int n = 0, bad = 0;
	for (unsigned char **p = __start___mcount_loc; p < __stop___mcount_loc; p++) {
		unsigned char *c = *p;
		if (!c) continue;
		n++;
		if (!(c[0] == 0xe8 || (c[0] == 0xff && c[1] == 0x15) || ((c[0] == 0x67 || c[0] == 0x90) && c[1] == 0xe8))) bad++;
	}
	printf("%d %d %d\n", n, bad, one(1) + two(2));
	return 0;
}
`

// Objects that share COMDAT groups are linked by every linker there is, in every form, with and without garbage
// collection; then the program looks at its table.
func TestLinkers(t *testing.T) {
	need(t, "g++")
	for _, form := range []string{"-fno-pie -no-pie", "-fPIE -pie -Wl,-z,text"} {
		for _, gc := range []string{"", "-ffunction-sections -Wl,--gc-sections"} {
			flags := strings.Fields("-O1 -pg -mfentry " + form + " " + gc)
			dir := t.TempDir()
			objs := map[bool][]string{}
			for _, compat := range []bool{false, true} {
				for name, src := range map[string]string{"one": strings.ReplaceAll(comdat, "NAME", "one"), "two": strings.ReplaceAll(comdat, "NAME", "two"), "main": checker} {
					b := assemble(t, "g++", src, flags...)
					p := filepath.Join(dir, fmt.Sprintf("%s-%v.o", name, compat))
					write(t, p, record(t, b, objects.Options{Compat: compat}))
					objs[compat] = append(objs[compat], p)
				}
			}
			for _, ld := range []string{"bfd", "gold", "lld", "mold"} {
				for _, compat := range []bool{false, true} {
					if compat && strings.Contains(form, "-pie ") {
						continue // a read-only table: recordmcount's layout cannot be linked with -z text
					}
					t.Run(fmt.Sprintf("%s %s %s compat=%v", ld, form, gc, compat), func(t *testing.T) {
						need(t, strings.Replace("ld."+ld, "ld.mold", "mold", 1))
						prog := filepath.Join(t.TempDir(), "prog")
						command(t, append(append([]string{"g++", "-fuse-ld=" + ld}, flags...), append(objs[compat], "-o", prog)...)...)
						// one, two and both instances of dup, once each; S<T>::f is inlined.
						if got := strings.TrimSpace(command(t, prog)); got != "4 0 20" {
							t.Errorf("entries, bad ones, result: %q", got)
						}
					})
				}
			}
		}
	}
}

func TestTablesOfOthersAreLeftAlone(t *testing.T) {
	for _, flags := range []string{"-pg -mfentry -mrecord-mcount -fno-pie", "-pg -mfentry -mrecord-mcount -mnop-mcount -fno-pie", "-fpatchable-function-entry=5"} {
		b := assemble(t, "gcc", threeFunctions, append(strings.Fields(flags), "-O2")...)
		ob, err := objects.Parse(b, objects.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if res, err := ob.Output(); err != nil || res.Output != nil {
			t.Errorf("%s: changed (%v)", flags, err)
		}
		if bad := ob.Check(); len(bad) > 0 {
			t.Errorf("%s: %q", flags, bad)
		}
		if strings.Contains(flags, "patchable") {
			n := 0
			for s, err := range ob.Patchable() {
				if err != nil || s.Form != objects.FormPatchable {
					t.Errorf("%+v, %v", s, err)
				}
				n++
			}
			if n != 6 {
				t.Errorf("%d entries of __patchable_function_entries, want 6", n)
			}
		}
	}
}

// ld -r of an object with a table and one without: the sites without an entry get one.
func TestHalfATableIsCompleted(t *testing.T) {
	need(t, "ld")
	dir := t.TempDir()
	a, b, c := filepath.Join(dir, "a.o"), filepath.Join(dir, "b.o"), filepath.Join(dir, "c.o")
	write(t, a, record(t, assemble(t, "gcc", "void a(void) {}\n", "-O2", "-pg", "-fno-pie"), objects.Options{Compat: true}))
	write(t, b, assemble(t, "gcc", "void b(void) {}\n", "-O2", "-pg", "-fno-pie"))
	command(t, "ld", "-r", "-o", c, a, b)
	out := record2(t, read(t, c))
	for _, s := range sites(t, out, objects.Options{}) {
		if !s.Tabled {
			t.Errorf("site at %#x has no entry", s.Off)
		}
	}
}

// record2 is record for an object whose original has a table.
func record2(t *testing.T, b []byte) []byte {
	t.Helper()
	ob, err := objects.Parse(b, objects.Options{})
	if err != nil {
		t.Fatal(err)
	}
	res, err := ob.Output()
	if err != nil || res.Output == nil {
		t.Fatalf("nothing to add (%v)", err)
	}
	out := res.Output.Bytes()
	if again, err := objects.Parse(out, objects.Options{}); err != nil || len(again.Check()) > 0 {
		t.Errorf("%v %q", err, again.Check())
	}
	if orig, err := objects.Strip(out); err != nil || !bytes.Equal(orig, b) {
		t.Errorf("Strip: %v", err)
	}
	return out
}
