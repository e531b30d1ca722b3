package inject

import (
	"bytes"
	"debug/elf"
	"path/filepath"
	"testing"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/elfio/internal/elftest"
	"github.com/fentry-dev/fentry/elfio/internal/raw"
	"github.com/fentry-dev/fentry/elfio/link"
	"github.com/fentry-dev/fentry/internal/runfile"
	"github.com/fentry-dev/fentry/internal/testtool"
)

const libraryC = `
static int constructed, zeroed[5000];
__thread int tls = 5;
__attribute__((constructor)) static void construct(void) { constructed = 3; }
int value(void) { int d = 0; for (int i = 0; i < 5000; i++) d += zeroed[i]; zeroed[4999]++; return constructed * 100 + tls * 10 + d; }
// A site that says -1 untouched and how often the injected DT_INIT ran otherwise.
__asm__(".globl probe\n.type probe,@function\nprobe:\n.byte 0x0f,0x1f,0x44,0,0\nmov $-1,%eax\nret\n.size probe,.-probe\n");
`

const libraryUserC = `
#include <stdio.h>
#include <dlfcn.h>
int main(int argc, char **argv) {
	void *h = dlopen(argv[1], RTLD_NOW);
	if (!h) { puts(dlerror()); return 1; }
	int (*value)(void) = (int (*)(void))dlsym(h, "value"), (*probe)(void) = (int (*)(void))dlsym(h, "probe");
	int first = value(), second = value();
	printf("value %d %d probe %d\n", first, second, probe());
	return dlclose(h);
}
`

const libraryAsm = `
	.globl init, probe_hook
init:	incl runs(%rip)
	jmp orig_init
nothing: ret
probe_hook: mov runs(%rip), %eax
	ret
	.weak orig_init
	.bss
runs:	.long 0
	.section .note.GNU-stack, "", @progbits
`

func TestInjectSharedObject(t *testing.T) {
	for _, x := range []elftest.Fixture{
		{Name: "ld", Tool: "gcc", Args: []string{"-fPIC"}},
		{Name: "noseparate-noproperty", Tool: "gcc", Args: []string{"-fPIC", "-Wl,-z,noseparate-code",
			"-fcf-protection=none"}},
		{Name: "nostartfiles", Tool: "gcc", Args: []string{"-fPIC", "-nostartfiles"}},
		{Name: "gold", Tool: "gcc", Args: []string{"-fPIC", "-fuse-ld=gold"}},
		{Name: "lld", Tool: "clang", Args: []string{"-fPIC", "-fuse-ld=lld"}},
		{Name: "sysv-hash", Tool: "gcc", Args: []string{"-fPIC", "-Wl,--hash-style=sysv",
			"-Wl,-z,noseparate-code", "-fcf-protection=none"}},
	} {
		t.Run(x.Name, func(t *testing.T) {
			t.Parallel()
			testtool.Need(t, x.Tool)
			testtool.Need(t, "gcc")
			raw := elftest.Compile(t, "library-"+x.Name, ".c", libraryC, x.Tool, append([]string{"-O1", "-shared"},
				x.Args...)...)
			user := elftest.Compile(t, "library-user", ".c", libraryUserC, "gcc", "-O1")
			obj, err := elfio.Parse(elftest.Compile(t, "library-asm", ".s", libraryAsm, "gcc", "-c"))
			if err != nil {
				t.Fatal(err)
			}
			out := injectLibrary(t, raw, obj)
			program := elftest.WriteExec(t, user)
			check := func(what string, lib []byte, want string) {
				t.Helper()
				name := filepath.Join(t.TempDir(), "library.so")
				if err := runfile.WriteFile(name, lib); err != nil {
					t.Fatal(err)
				}
				if got, code := elftest.Run([]string{program, name}); got != want || code != 0 {
					t.Errorf("%s: exit status %d, output %q, want %q", what, code, got, want)
				}
			}
			check("untouched", raw, "value 350 351 probe -1\n")
			const want = "value 350 351 probe 1\n"
			check("injected", out, want)
			verify(t, out)
			lint(t, raw, out)
			for _, tool := range tools {
				if !testtool.Have(t, tool.command[0]) {
					continue
				}
				check(tool.name, elftest.Transform(t, out, tool.command...), want)
			}
		})
	}
}

func injectLibrary(t *testing.T, library []byte, obj *elfio.File) []byte {
	t.Helper()
	f, err := elfio.Parse(library)
	if err != nil {
		t.Fatal(err)
	}
	l, err := NewLayout(f, Memory{RW: 4096, RWAlign: 64})
	if err != nil {
		t.Fatal(err)
	}
	dyn, err := f.Dynamic()
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]uint64{}
	for _, d := range dyn {
		if d.Tag == elf.DT_INIT {
			known["orig_init"] = d.Val
		}
	}
	linked, err := link.Object(obj, link.Options{RX: l.RX, RW: l.RW, Symbols: known})
	if err != nil {
		t.Fatal(err)
	}
	if known["orig_init"] == 0 { // the library has no DT_INIT
		known["orig_init"] = linked.Symbols["nothing"]
		if linked, err = link.Object(obj, link.Options{RX: l.RX, RW: l.RW, Symbols: known}); err != nil {
			t.Fatal(err)
		}
	}
	syms, err := f.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	in := Injection{Layout: l, RX: linked.RX}
	for _, s := range syms {
		if s.Name != "probe" {
			continue
		}
		off, _ := f.Offset(s.Value)
		d, err := raw.Disp32("hook", linked.Symbols["probe_hook"], s.Value+5)
		if err != nil {
			t.Fatal(err)
		}
		in.Edits = append(in.Edits, elfio.RawEdit{Off: off,
			New: []byte{0xe9, byte(d), byte(d >> 8), byte(d >> 16), byte(d >> 24)}})
	}
	x, err := ExtendDynamic(f, 0, nil, elfio.Dyn{Tag: elf.DT_INIT, Val: linked.Symbols["init"]})
	if err != nil {
		t.Fatal(err)
	}
	in.Edits = append(in.Edits, x.Edits...)
	out, err := injected(f, in)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("slot %s", l.Slot)
	if back, err := Undo(out); err != nil || !bytes.Equal(back, library) {
		t.Errorf("Uninject does not give the original (%v)", err)
	}
	return out
}
