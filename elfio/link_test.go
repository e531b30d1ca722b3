package elfio

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os/exec"
	"strings"
	"testing"
)

func TestLinkObjectRefuses(t *testing.T) {
	need(t, "gcc", "gcc")
	for _, c := range []struct {
		name, source string
		flags        []string
		want         []string // parts of the error
	}{
		{"pointer in data", "static int x; int *p = &x; int f(void) { return *p; }", nil, []string{".data.rel", "dynamic relocation"}},
		{"pointer in read-only data", "extern int x; int *const p = &x;", []string{"-fno-pic"}, []string{".rodata", "R_X86_64_64", "\"x\"", "undefined"}},
		{"absolute", "int x[4]; int f(long i) { return x[i]; }", []string{"-fno-pic", "-fno-pie"}, []string{".text", "R_X86_64_32S", "not PC-relative"}},
		{"initialised data", "int x = 1; int f(void) { return x++; }", nil, []string{".data", "initialised data"}},
		{"thread-local", "_Thread_local int x; int f(void) { return x; }", nil, []string{".tbss", "thread-local"}},
		{"constructor", "__attribute__((constructor)) void f(void) {}", nil, []string{".init_array", "constructors"}},
		{"undefined", "int g(void); int f(void) { return g() + 1; }", nil, []string{".text", "\"g\"", "undefined symbol"}},
		{"weak data", "extern int w __attribute__((weak)); int f(void) { return w; }", []string{"-fno-pic", "-mcmodel=medium"}, []string{".text", "\"w\""}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, err := Parse(compile(t, "refuse-"+c.name, ".c", c.source, "gcc", append([]string{"-c", "-O1", "-fPIC", "-ffreestanding"}, c.flags...)...))
			if err != nil {
				t.Fatal(err)
			}
			_, err = LinkObject(f, LinkOptions{RX: 0x10000, RW: 0x20000})
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
	f, err := Parse(testImages(t)["x86_64-exec"])
	if err != nil {
		t.Fatal(err)
	}
	if _, err := LinkObject(f, LinkOptions{}); err == nil {
		t.Error("an executable was linked")
	}
	far := spliceObject(t)
	if _, err := LinkObject(far, LinkOptions{RX: 0x1000, RW: 1 << 40, Symbols: map[string]uint64{"orig_entry": 0, "middle_body": 0}}); err == nil || !strings.Contains(err.Error(), "2 GiB") {
		t.Errorf("memory a terabyte away: %v", err)
	}
}

// The encodings of GOT references that do without a GOT.
func TestLinkRelaxation(t *testing.T) {
	need(t, "gcc", "gcc")
	f, err := Parse(compile(t, "relax", ".s", `
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
	l, err := LinkObject(f, LinkOptions{RX: 0x10000, RW: 0x20000})
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

const arm64Asm = `
	.globl start, probe_hook
start:	stp x0, x30, [sp, #-16]!
	mov w0, #1
	bl compute
	ldp x0, x30, [sp], #16
	b orig_entry
probe_hook:
	stp x29, x30, [sp, #-16]!
	mov w0, #1
	bl compute
	ldp x29, x30, [sp], #16
	ret
compute:
	adrp x1, count
	ldr w2, [x1, #:lo12:count]
	add w2, w2, w0
	str w2, [x1, #:lo12:count]
	adrp x3, :got:table
	ldr x3, [x3, #:got_lo12:table]
	ldr w3, [x3, #4]
	adr x5, table
	ldr w5, [x5]
	add w3, w3, w5
	adrp x4, :got:nowhere
	ldr x4, [x4, #:got_lo12:nowhere]
	cbz x4, 1f
	add w2, w2, #100
1:	tbz w0, #0, compute
	b.ne 2f
	ldrb w4, [x1, #:lo12:byte]
	add w2, w2, w4
2:	add w0, w2, w3
	ret
	.weak nowhere
	.globl table
	.balign 4
table:	.word 10, 20
	.word table - .
	.bss
	.balign 8
byte:	.byte 0
	.balign 4
count:	.word 0
`

const arm64C = `
#include <stdio.h>
__asm__(".globl probe\n.type probe,%function\nprobe:\nnop\nmov w0, #-1\nret\n.size probe,.-probe\n");
int probe(void);
static char zeroed[300000];
int main(int argc, char **argv) { int d = 0; for (int i = 0; i < 300000; i++) d += zeroed[i]; zeroed[5] = 1; printf("probe %d dirty %d\n", probe(), d); return 7; }
`

func TestInjectARM64(t *testing.T) {
	need(t, "aarch64-linux-gnu-gcc", "gcc-aarch64-linux-gnu")
	need(t, "qemu-aarch64", "qemu-user")
	obj, err := Parse(compile(t, "arm64.o", ".s", arm64Asm, "aarch64-linux-gnu-gcc", "-c"))
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []fixture{
		{name: "pie", args: []string{"-pie"}},
		{name: "nopie", args: []string{"-no-pie"}},
		{name: "static", args: []string{"-static"}},
		{name: "static-pie", args: []string{"-static-pie"}},
	} {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			raw := compile(t, "arm64-"+x.name, ".c", arm64C, "aarch64-linux-gnu-gcc", append([]string{"-O1"}, x.args...)...)
			f, err := Parse(raw)
			if err != nil {
				t.Fatal(err)
			}
			size, align, err := WritableSize(obj)
			if err != nil {
				t.Fatal(err)
			}
			l, err := f.Layout(size, align)
			if err != nil {
				t.Fatal(err)
			}
			linked, err := LinkObject(obj, LinkOptions{RX: l.RX, RW: l.RW, Symbols: map[string]uint64{"orig_entry": f.Header.Entry}})
			if err != nil {
				t.Fatal(err)
			}
			in := Injection{Layout: l, RX: linked.RX, Entry: linked.Symbols["start"]}
			syms, err := f.Symbols()
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range syms {
				if s.Name != "probe" {
					continue
				}
				off, _ := f.Offset(s.Value)
				b := uint32(0x14000000) | uint32(int64(linked.Symbols["probe_hook"]-s.Value)>>2)&0x3ffffff
				in.Edits = append(in.Edits, RawEdit{off, binary.LittleEndian.AppendUint32(nil, b)})
			}
			out, err := f.Inject(in)
			if err != nil {
				t.Fatal(err)
			}
			verify(t, out)
			check := func(what string, raw []byte, want string) {
				t.Helper()
				if got, code := run([]string{"qemu-aarch64", "-L", "/usr/aarch64-linux-gnu", writeExec(t, raw)}); got != want || code != 7 {
					t.Errorf("%s: exit status %d, output %q, want %q", what, code, got, want)
				}
			}
			check("untouched", raw, "probe -1 dirty 0\n")
			// compute ran twice: count 2, table 20 + 10
			check("injected", out, "probe 32 dirty 0\n")
			lint(t, raw, out)
			for _, tool := range [][]string{{"aarch64-linux-gnu-strip", "%s"}, {"aarch64-linux-gnu-objcopy", "%s"}, {"eu-strip", "%s"}, {"llvm-strip", "%s"}} {
				if _, err := exec.LookPath(tool[0]); err != nil {
					continue
				}
				was, msg := tryTransform(t, raw, tool...)
				if msg != "" || was == nil {
					continue
				}
				check(tool[0], transform(t, out, tool...), "probe 32 dirty 0\n")
			}
			for _, s := range linked.Sections {
				if s.Flags&elf.SHF_WRITE != 0 && (s.Addr < l.RW || s.Addr+s.Size > l.RW+size) {
					t.Errorf("%+v is outside the zeroed memory", s)
				}
			}
		})
	}
}
