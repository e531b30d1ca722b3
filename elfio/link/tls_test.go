package link

import (
	"encoding/binary"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/elfio/internal/elftest"
	"github.com/fentry-dev/fentry/internal/testtool"
)

const tlsAsm = `
	.globl f
f:	mrs x0, tpidr_el0
	add x0, x0, #:tprel_hi12:second, lsl #12
	ldr x1, [x0, #:tprel_lo12_nc:second]
	add x2, x0, #:tprel_lo12_nc:first + 3
	ldrb w3, [x0, #:tprel_lo12_nc:first]
	ldr w4, [x0, #:tprel_lo12_nc:second + 4]
	ldrh w5, [x0, #:tprel_lo12_nc:second]
	ret
	.section .tbss, "awT", %nobits
	.balign 16
	.type first, %object
	.globl first
first:	.skip 5
	.balign 8
second:	.skip 8
	.bss
plain:	.skip 24
`

// Thread-local memory of an object: how much, where, and what instructions get.
func TestLinkTLS(t *testing.T) {
	testtool.Need(t, "aarch64-linux-gnu-gcc")
	f, err := elfio.Parse(elftest.Compile(t, "tls.o", ".s", tlsAsm, "aarch64-linux-gnu-gcc", "-c"))
	if err != nil {
		t.Fatal(err)
	}
	size, align, err := TLSSize(f)
	if err != nil || size != 16 || align != 16 {
		t.Fatalf("%d bytes aligned to %d, %v", size, align, err)
	}
	if rw, _, err := WritableSize(f); err != nil || rw != 24 {
		t.Errorf("%d writable bytes, %v", rw, err)
	}
	for _, tls := range []uint64{16, 0x1230, 0xfff0, 1<<24 - 16} {
		l, err := Object(f, Options{RX: 0x10000, RW: 0x20000, TLS: tls})
		if err != nil {
			t.Fatal(err)
		}
		if l.TLSSize != 16 || l.TLSAlign != 16 || l.RWSize != 24 {
			t.Errorf("%#x: %d bytes aligned to %d, %d writable", tls, l.TLSSize, l.TLSAlign, l.RWSize)
		}
		if _, ok := l.Symbols["first"]; ok {
			t.Error("a thread-local symbol has an address")
		}
		for _, s := range l.Sections {
			if s.Name == ".tbss" {
				t.Errorf("%+v", s)
			}
		}
		first, second := uint32(tls), uint32(tls+8)
		for i, want := range []uint32{
			0xd53bd040,
			0x91400000 | second>>12<<10,
			0xf9400001 | second&0xfff>>3<<10,
			0x91000002 | (first+3)&0xfff<<10,
			0x39400003 | first&0xfff<<10,
			0xb9400004 | (second+4)&0xfff>>2<<10,
			0x79400005 | second&0xfff>>1<<10,
		} {
			if got := binary.LittleEndian.Uint32(l.RX[4*i:]); got != want {
				t.Errorf("%#x, instruction %d: %#08x, want %#08x", tls, i, got, want)
			}
		}
	}
	for _, tls := range []uint64{0, 8, 24, 1 << 24, 1<<24 - 8, ^uint64(15)} {
		if _, err := Object(f, Options{RX: 0x10000, RW: 0x20000, TLS: tls}); err == nil ||
			!strings.Contains(err.Error(), "thread pointer") {
			t.Errorf("%#x: %v", tls, err)
		}
	}
	for _, c := range []struct {
		name, source string
		want         []string
	}{
		{"initialised", ".section .tdata, \"awT\", %progbits\n.quad 1", []string{".tdata", "initialised"}},
		{"large", ".section .tbss, \"awT\", %nobits\n.skip 1 << 24", []string{".tbss", "0x1000000 bytes"}},
		{"model", "adrp x0, :gottprel:v\n.section .tbss, \"awT\", %nobits\nv: .skip 8", []string{".text", "local-exec"}},
		{"far", "add x0, x0, #:tprel_lo12:v\n.section .tbss, \"awT\", %nobits\n.skip 8192\nv: .skip 8",
			[]string{".text", "12 bits"}},
		{"outside", "add x0, x0, #:tprel_hi12:v + 0x2000000\n.section .tbss, \"awT\", %nobits\nv: .skip 8",
			[]string{".text", "24 bits"}},
		{"mixed", "adr x0, v\n.section .tbss, \"awT\", %nobits\nv: .skip 8", []string{".text", "local-exec"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, err := elfio.Parse(elftest.Compile(t, "tls-"+c.name, ".s", c.source+"\n", "aarch64-linux-gnu-gcc", "-c"))
			if err != nil {
				t.Fatal(err)
			}
			_, err = Object(f, Options{RX: 0x10000, RW: 0x20000, TLS: 16})
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
}
