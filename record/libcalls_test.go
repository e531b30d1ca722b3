package record

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/internal/testtool"
)

const calling = `
#define _GNU_SOURCE
#include <dlfcn.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
jmp_buf env;
int compare(const void *a, const void *b) { return *(const char *)a - *(const char *)b; }
int main(int argc, char **argv)
{
	char *s = strdup(argv[0]);
	qsort(s, strlen(s), 1, compare);
	if (!setjmp(env) && argc > 9)
		longjmp(env, 1);
	if (argc > 8 && !vfork())
		_exit(dlsym(RTLD_NEXT, "f") != 0);
	puts(s);
	exit((int)strlen(s) == 0);
}
`

// stubLink is a way to link a program, which decides what its stubs look like.
type stubLink struct {
	name, tool, args string
	on               *target // nil: x86-64
}

// machine is what the program is for.
func (l *stubLink) machine() *target {
	if l.on == nil {
		return onAMD64
	}
	return l.on
}

var stubLinks = []stubLink{
	{name: "lazy", tool: "gcc", args: "-Wl,-z,lazy"},
	{name: "now", tool: "gcc", args: "-Wl,-z,now"},
	{name: "lazy, no PIE", tool: "gcc", args: "-Wl,-z,lazy -no-pie"},
	{name: "IBT", tool: "gcc", args: "-fcf-protection -Wl,-z,ibtplt,-z,lazy"},
	{name: "IBT, bnd", tool: "gcc", args: "-fcf-protection -Wl,-z,bndplt,-z,now"},
	{name: "gold", tool: "ld.gold", args: "-fuse-ld=gold"},
	{name: "lld", tool: "ld.lld", args: "-fuse-ld=lld"},
	{name: "lld, now, no PIE", tool: "ld.lld", args: "-fuse-ld=lld -Wl,-z,now -no-pie"},
	{name: "mold", tool: "ld.mold", args: "-fuse-ld=mold"},
	{name: "musl", tool: "musl-gcc"},
	{name: "arm64, lazy", args: "-Wl,-z,lazy", on: onARM64},
	{name: "arm64, now", args: "-Wl,-z,now", on: onARM64},
	{name: "arm64, no PIE", args: "-Wl,-z,lazy -no-pie", on: onARM64},
	{name: "arm64, BTI", args: "-mbranch-protection=bti -Wl,-z,force-bti", on: onARM64},
	{name: "arm64, PAC", args: "-Wl,-z,pac-plt", on: onARM64},
}

// link compiles the program that calls.
func (l *stubLink) link(t *testing.T) string {
	t.Helper()
	cc := l.machine().cc("gcc")[0]
	testtool.Need(t, cc)
	if l.tool != "" {
		testtool.Need(t, l.tool)
	}
	if l.tool == "musl-gcc" {
		cc = l.tool
	}
	dir := t.TempDir()
	src, out := filepath.Join(dir, "calling.c"), filepath.Join(dir, "calling")
	if err := os.WriteFile(src, []byte(calling), 0o666); err != nil {
		t.Fatal(err)
	}
	run(t, cc, append(strings.Fields(l.args), "-O1", "-fno-builtin", "-o", out, src, "-ldl")...)
	run(t, l.machine().binutils+"strip", out)
	return out
}

// TestLibraryCalls compares the stubs of programs with objdump's names for them, for all linkers and forms of stubs, and
// says which calls are left alone.
func TestLibraryCalls(t *testing.T) {
	testtool.Need(t, "objdump")
	for _, l := range stubLinks {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			img := l.link(t)
			var got []string
			reasons := map[string]Reason{}
			f := open(t, img)
			for _, s := range findWith(t, img, Options{Plain: PlainNone, LibraryCalls: true}) {
				if s.Kind != KindLibCall || s.Len == 0 { // the start-up code calls __libc_start_main without a stub
					continue
				}
				reasons[s.Name] = s.Reason
				got = append(got, s.Name+" "+strconv.FormatUint(s.Func, 16))
				if b, err := f.Bytes(s.Addr, s.Len); err != nil || string(b) != string(s.Bytes) || s.Moved != s.Len || s.Ret != l.machine().ret {
					t.Errorf("%+v: %x, %v", s, b, err)
				}
			}
			want := objdumpStubs(t, l.machine(), img)
			if l.tool == "ld.mold" { // for whose stubs in .plt objdump has no names
				want = append(want, moldStubs(t, img)...)
			}
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Errorf("got\n%s\nobjdump\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
			for name, reason := range map[string]Reason{
				"strlen@plt": "", "qsort@plt": "", "exit@plt": "", "longjmp@plt": "",
				"vfork@plt": ReasonReturnsTwice, "dlsym@plt": ReasonLooksAtCaller,
			} {
				if r, ok := reasons[name]; !ok || r != reason {
					t.Errorf("%s: %v %q, want %q", name, ok, r, reason)
				}
			}
			if reasons["_setjmp@plt"]+reasons["setjmp@plt"] != ReasonReturnsTwice {
				t.Errorf("setjmp: %q", reasons["_setjmp@plt"]+reasons["setjmp@plt"])
			}
		})
	}
}

var stubLabel = regexp.MustCompile(`(?m)^0*([0-9a-f]+) <([^>@]+)@plt>:$`)

// objdumpStubs are objdump's names for stubs, except those of .plt that have others in .plt.sec.
func objdumpStubs(t *testing.T, on *target, img string) (out []string) {
	objdump := on.binutils + "objdump"
	sections := run(t, objdump, "-h", img)
	for _, name := range []string{".plt", ".plt.got", ".plt.sec", ".plt.bnd"} {
		if !strings.Contains(sections, " "+name+" ") || name == ".plt" && strings.Contains(sections, " .plt.sec ") {
			continue
		}
		for _, m := range stubLabel.FindAllStringSubmatch(run(t, objdump, "-d", "-j", name, img), -1) {
			out = append(out, m[2]+"@plt "+m[1])
		}
	}
	return out
}

// moldStubs are the stubs in mold's .plt: behind a header of 32 bytes, 16 bytes each, in the order of the relocations.
func moldStubs(t *testing.T, img string) (out []string) {
	f := open(t, img)
	plt := f.Sections[f.SectionIndex(".plt")].Addr
	for i, m := range regexp.MustCompile(`R_X86_64_JUMP_SLO.* (\S+) \+ 0`).FindAllStringSubmatch(run(t, "readelf", "-rW", img), -1) {
		name, _, _ := strings.Cut(m[1], "@")
		out = append(out, name+"@plt "+strconv.FormatUint(plt+32+16*uint64(i), 16))
	}
	return out
}

// TestCallsWithoutStubs compares the calls in a program compiled with -fno-plt with objdump's.
func TestCallsWithoutStubs(t *testing.T) {
	testtool.Need(t, "objdump")
	for _, args := range []string{"-fno-plt", "-fno-plt -no-pie -fcf-protection", "-fno-plt -O2", "-fno-plt -Wl,-z,lazy"} {
		l := stubLink{name: args, tool: "gcc", args: args}
		img := l.link(t)
		got := map[uint64]string{}
		for _, s := range findWith(t, img, Options{LibraryCalls: true}) {
			for _, c := range s.Calls {
				got[c] = strings.TrimSuffix(s.Name, "@plt")
			}
		}
		want := map[uint64]string{}
		names := map[string]string{} // of words
		slot := regexp.MustCompile(`(?m)^0*([0-9a-f]+) .*(?:GLOB_DAT|JUMP_SLO).* (\w+)(?:@\S+)? \+ 0$`)
		for _, m := range slot.FindAllStringSubmatch(run(t, "readelf", "-rW", img), -1) {
			names[m[1]] = m[2]
		}
		call := regexp.MustCompile(`(?m)^ +([0-9a-f]+):.*(?:call|jmp) +\*0x[0-9a-f]+\(%rip\) +# (?:0x)?([0-9a-f]+)`)
		for _, m := range call.FindAllStringSubmatch(run(t, "objdump", "-dw", "-j", ".text", img), -1) {
			addr, err := strconv.ParseUint(m[1], 16, 64)
			if err != nil {
				t.Fatal(err)
			}
			want[addr] = names[m[2]]
		}
		if len(want) < 8 || !maps.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", args, got, want)
		}
	}
}

// TestLibraryCallsByName: a pattern for calls asks for them, others do not.
func TestLibraryCallsByName(t *testing.T) {
	img := stubLinks[0].link(t)
	for pattern, want := range map[string]bool{
		"strlen@plt": true, "*@plt": true, "str*@plt": true, "!*@plt": false, "strlen": false, "*": false,
	} {
		f, err := NewFilter([]string{pattern}, nil)
		if err != nil {
			t.Fatal(err)
		}
		sites := findWith(t, img, Options{Named: f})
		if got := slices.ContainsFunc(sites, func(s Site) bool { return s.Name == "strlen@plt" }); got != want {
			t.Errorf("%s: %v, want %v", pattern, got, want)
		}
	}
}

// TestStubShapes: what is between a stub's first byte and its jump must be known, and only words of other images'
// functions count.
func TestStubShapes(t *testing.T) {
	start := fn("_start", "ud2")
	const plt = ".section .plt,\"ax\",@progbits\n.p2align 4\n"
	for _, tt := range []struct {
		name, text string
		want       string
	}{
		{"plain", plt + "jmp *f@GOTPCREL(%rip)\n", "f@plt 0 6"},
		{"with a landing pad and an index", plt + "endbr64\nmov $7,%r11d\njmp *f@GOTPCREL(%rip)\n", "f@plt 10 6"},
		{"bnd", plt + "endbr64\nbnd jmp *f@GOTPCREL(%rip)\nnop\n", "f@plt 4 7"},
		{"behind padding", plt + "ret\nint3\nnopl 8(%rax)\njmp *f@GOTPCREL(%rip)\n", "f@plt 0 6"},
		{"something pushed", plt + "push %rax\njmp *f@GOTPCREL(%rip)\n", ""},
		{"in a register", plt + "mov f@GOTPCREL(%rip),%rax\njmp *%rax\n", ""},
		{"the image's own function", plt + "jmp *g@GOTPCREL(%rip)\n", ""},
		{"a call", plt + "call *f@GOTPCREL(%rip)\n", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			img := asm(t, ".text\n"+start+fn("g", "ret")+".globl f\n.type f,@function\n"+tt.text, "-shared", "-Wl,-z,norelro")
			got := ""
			for _, s := range findWith(t, img, Options{LibraryCalls: true}) {
				if s.Kind == KindLibCall {
					got += s.Name + " " + strconv.FormatUint(s.Addr-s.Func, 10) + " " + strconv.Itoa(s.Len)
				}
			}
			if got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}

// TestMoldSymbols: mold's symbols of stubs are no functions.
func TestMoldSymbols(t *testing.T) {
	testtool.Need(t, "gcc", "ld.mold")
	dir := t.TempDir()
	src, img := filepath.Join(dir, "calling.c"), filepath.Join(dir, "calling")
	if err := os.WriteFile(src, []byte("#include <stdio.h>\nint main(int n, char **v) { return puts(v[0]) < 0; }\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	run(t, "gcc", "-O1", "-fuse-ld=mold", "-o", img, src)
	calls := 0
	for _, s := range findWith(t, img, Options{LibraryCalls: true}) {
		if strings.Contains(s.Name, "$plt") {
			t.Errorf("%+v", s)
		}
		if s.Name == "puts@plt" && s.Reason == "" {
			calls++
		}
	}
	if calls != 1 {
		t.Errorf("%d stubs of puts", calls)
	}
}
