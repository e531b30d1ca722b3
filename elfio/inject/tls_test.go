package inject

import (
	"debug/elf"
	"testing"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/elfio/internal/elftest"
)

// The places are those glibc and musl compute: the block at the first address behind the thread control block that is
// congruent to p_vaddr modulo p_align, and what is added behind its end.
func TestExtendTLS(t *testing.T) {
	image := elftest.Images(t)["arm64-pie"]
	for _, tt := range []struct {
		name                string
		vaddr, memsz, align uint64
		size, want          uint64
		offset              uint64
		none, refused       bool
		machine             elf.Machine // 0: AArch64
	}{
		{name: "no TLS", none: true, size: 8, want: 8, offset: 16},
		{name: "whole words", vaddr: 0x1fdb0, memsz: 0x38, align: 8, size: 8, want: 0x40, offset: 16 + 0x38},
		{name: "odd end", vaddr: 0x1fdb0, memsz: 0x31, align: 16, size: 8, want: 0x40, offset: 16 + 0x38},
		{name: "alignment 64", vaddr: 0x20040, memsz: 4, align: 64, size: 8, want: 16, offset: 64 + 8},
		{name: "not a multiple of its alignment", vaddr: 0x20010, memsz: 4, align: 64, size: 8, want: 16, offset: 16 + 8},
		{name: "the same with more", vaddr: 0x20030, memsz: 4, align: 64, size: 8, want: 16, offset: 48 + 8},
		{name: "alignment 1", vaddr: 0x20003, memsz: 3, align: 1, size: 8, want: 16, offset: 16 + 8},
		{name: "alignment 0", vaddr: 0x20003, memsz: 3, align: 0, size: 8, want: 16, offset: 16 + 8},
		{name: "alignment 4, odd words", vaddr: 0x20004, memsz: 4, align: 4, size: 8, want: 16, offset: 16 + 8},
		{name: "alignment is no power of two", vaddr: 0x20000, memsz: 4, align: 24, size: 8, refused: true},
		{name: "too far away", vaddr: 0x20000, memsz: 1<<24 - 16, align: 8, size: 8, refused: true},
		{name: "the other variant of TLS", none: true, size: 8, machine: elf.EM_X86_64, refused: true},
		{name: "as far as can be", vaddr: 0x20000, memsz: 1<<24 - 32, align: 8, size: 8, want: 1<<24 - 24,
			offset: 1<<24 - 16},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f, err := elfio.Parse(image)
			if err != nil {
				t.Fatal(err)
			}
			f.Progs = nil
			f.Header.Type, f.Header.Machine = elf.ET_EXEC, elf.EM_AARCH64
			if tt.machine != 0 {
				f.Header.Machine = tt.machine
			}
			if !tt.none {
				f.Progs = append(f.Progs, elfio.Prog{Type: elf.PT_TLS, Flags: elf.PF_R, Vaddr: tt.vaddr, Memsz: tt.memsz,
					Align: tt.align})
			}
			tls, off, err := ExtendTLS(f, tt.size, 8, 0x50000)
			if tt.refused {
				if err == nil {
					t.Fatalf("not refused: %+v at %#x", tls, off)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if tls.Memsz != tt.want || off != tt.offset {
				t.Errorf("%#x bytes, the addition at %#x; want %#x and %#x", tls.Memsz, off, tt.want, tt.offset)
			}
			if tt.none && (tls.Vaddr != 0x50000 || tls.Filesz != 0 || tls.Type != elf.PT_TLS) {
				t.Errorf("new segment %+v", tls)
			}
		})
	}
}
