package inject

import (
	"debug/elf"
	"encoding/binary"
	"testing"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/elfio/internal/elftest"
	"github.com/fentry-dev/fentry/elfio/link"
	"github.com/fentry-dev/fentry/internal/testtool"
)

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
	testtool.Need(t, "aarch64-linux-gnu-gcc")
	testtool.Need(t, "qemu-aarch64")
	obj, err := elfio.Parse(elftest.Compile(t, "arm64.o", ".s", arm64Asm, "aarch64-linux-gnu-gcc", "-c"))
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []elftest.Fixture{
		{Name: "pie", Args: []string{"-pie"}},
		{Name: "nopie", Args: []string{"-no-pie"}},
		{Name: "static", Args: []string{"-static"}},
		{Name: "static-pie", Args: []string{"-static-pie"}},
	} {
		t.Run(x.Name, func(t *testing.T) {
			t.Parallel()
			raw := elftest.Compile(t, "arm64-"+x.Name, ".c", arm64C, "aarch64-linux-gnu-gcc",
				append([]string{"-O1"}, x.Args...)...)
			f, err := elfio.Parse(raw)
			if err != nil {
				t.Fatal(err)
			}
			size, align, err := link.WritableSize(obj)
			if err != nil {
				t.Fatal(err)
			}
			l, err := NewLayout(f, Memory{RW: size, RWAlign: align})
			if err != nil {
				t.Fatal(err)
			}
			linked, err := link.Object(obj, link.Options{RX: l.RX, RW: l.RW,
				Symbols: map[string]uint64{"orig_entry": f.Header.Entry}})
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
				in.Edits = append(in.Edits, elfio.RawEdit{Off: off, New: binary.LittleEndian.AppendUint32(nil, b)})
			}
			out, err := injected(f, in)
			if err != nil {
				t.Fatal(err)
			}
			verify(t, out)
			check := func(what string, raw []byte, want string) {
				t.Helper()
				if got, code := elftest.Run([]string{"qemu-aarch64", "-L", "/usr/aarch64-linux-gnu",
					elftest.WriteExec(t, raw)}); got != want || code != 7 {
					t.Errorf("%s: exit status %d, output %q, want %q", what, code, got, want)
				}
			}
			check("untouched", raw, "probe -1 dirty 0\n")
			// compute ran twice: count 2, table 20 + 10
			check("injected", out, "probe 32 dirty 0\n")
			lint(t, raw, out)
			for _, tool := range [][]string{{"aarch64-linux-gnu-strip", "%s"}, {"aarch64-linux-gnu-objcopy", "%s"},
				{"eu-strip", "%s"}, {"llvm-strip", "%s"}} {
				if !testtool.Have(t, tool[0]) {
					continue
				}
				was, msg := elftest.TryTransform(t, raw, tool...)
				if msg != "" || was == nil {
					continue
				}
				check(tool[0], elftest.Transform(t, out, tool...), "probe 32 dirty 0\n")
			}
			for _, s := range linked.Sections {
				if s.Flags&elf.SHF_WRITE != 0 && (s.Addr < l.RW || s.Addr+s.Size > l.RW+size) {
					t.Errorf("%+v is outside the zeroed memory", s)
				}
			}
		})
	}
}
