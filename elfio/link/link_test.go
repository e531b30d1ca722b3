package link

import (
	"bytes"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/elfio/internal/elftest"
	"github.com/fentry-dev/fentry/internal/testtool"
)

func TestLinkObjectRefuses(t *testing.T) {
	testtool.Need(t, "gcc")
	for _, c := range []struct {
		name, source string
		flags        []string
		want         []string // parts of the error
	}{
		{"pointer in data", "static int x; int *p = &x; int f(void) { return *p; }", nil,
			[]string{".data.rel", "dynamic relocation"}},
		{"pointer in read-only data", "extern int x; int *const p = &x;", []string{"-fno-pic"},
			[]string{".rodata", "R_X86_64_64", "\"x\"", "undefined"}},
		{"absolute", "int x[4]; int f(long i) { return x[i]; }", []string{"-fno-pic", "-fno-pie"},
			[]string{".text", "R_X86_64_32S", "not PC-relative"}},
		{"initialised data", "int x = 1; int f(void) { return x++; }", nil, []string{".data", "initialised data"}},
		{"thread-local", "_Thread_local int x; int f(void) { return x; }", nil, []string{".tbss", "thread-local"}},
		{"constructor", "__attribute__((constructor)) void f(void) {}", nil, []string{".init_array", "constructors"}},
		{"undefined", "int g(void); int f(void) { return g() + 1; }", nil, []string{".text", "\"g\"", "undefined symbol"}},
		{"weak data", "extern int w __attribute__((weak)); int f(void) { return w; }",
			[]string{"-fno-pic", "-mcmodel=medium"}, []string{".text", "\"w\""}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, err := elfio.Parse(elftest.Compile(t, "refuse-"+c.name, ".c", c.source, "gcc",
				append([]string{"-c", "-O1", "-fPIC", "-ffreestanding"}, c.flags...)...))
			if err != nil {
				t.Fatal(err)
			}
			_, err = Object(f, Options{RX: 0x10000, RW: 0x20000})
			if err == nil {
				t.Fatal("linked")
			}
			for _, w := range append(c.want, "at offset 0x") {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("error %q does not say %q", err, w)
				}
			}
		})
	}
	f, err := elfio.Parse(elftest.Images(t)["x86_64-exec"])
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Object(f, Options{}); err == nil {
		t.Error("an executable was linked")
	}
}

// The encodings of GOT references that do without a GOT.
func TestLinkRelaxation(t *testing.T) {
	testtool.Need(t, "gcc")
	f, err := elfio.Parse(elftest.Compile(t, "relax", ".s", `
	.globl here
here:	mov here@GOTPCREL(%rip), %rax
	mov here@GOTPCREL(%rip), %r15
	call *here@GOTPCREL(%rip)
	jmp *here@GOTPCREL(%rip)
	mov const@GOTPCREL(%rip), %r9
	.globl const
	.set const, 0x1234
`, "gcc", "-c"))
	if err != nil {
		t.Fatal(err)
	}
	l, err := Object(f, Options{RX: 0x10000, RW: 0x20000})
	if err != nil {
		t.Fatal(err)
	}
	want := []byte{
		0x48, 0x8d, 0x05, 0xf9, 0xff, 0xff, 0xff, // lea here(%rip), %rax
		0x4c, 0x8d, 0x3d, 0xf2, 0xff, 0xff, 0xff, // lea here(%rip), %r15
		0x67, 0xe8, 0xec, 0xff, 0xff, 0xff, // addr32 call here
		0xe9, 0xe7, 0xff, 0xff, 0xff, 0x90, // jmp here; nop
		0x49, 0xc7, 0xc1, 0x34, 0x12, 0, 0, // mov $0x1234, %r9
	}
	if !bytes.Equal(l.RX, want) {
		t.Errorf("% x\nwant % x", l.RX, want)
	}
	if l.Symbols["here"] != 0x10000 {
		t.Errorf("here is at %#x", l.Symbols["here"])
	}
}
