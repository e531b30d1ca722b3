package inject

import (
	"debug/elf"
	"io"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/elfio/internal/elftest"
	"github.com/fentry-dev/fentry/internal/runfile"
	"github.com/fentry-dev/fentry/internal/testtool"
)

// bigImage is a program with 100 MB of code that no run reaches, made from a small one.
func bigImage(b *testing.B) []byte {
	b.Helper()
	testtool.Need(b, "gcc")
	return elftest.Compile(b, "big", ".c", `
#include <stdio.h>
__asm__(".section .text.big,\"ax\",@progbits\n.rept 1600000\n.quad 0x9090909090909090,1,2,3,4,5,6,7\n.endr\n.text\n");
int main(void) { puts("big"); return 0; }
`, "gcc", "-O1")
}

func BenchmarkParse(b *testing.B) {
	raw := bigImage(b)
	for b.Loop() {
		if _, err := elfio.Parse(raw); err != nil {
			b.Fatal(err)
		}
	}
}

// injection100 edits 100000 places, as a patch of many sites does.
func injection100(b *testing.B, f *elfio.File) Injection {
	b.Helper()
	l, err := NewLayout(f, Memory{RW: 1 << 20, RWAlign: 64})
	if err != nil {
		b.Fatal(err)
	}
	in := Injection{Layout: l, RX: make([]byte, 100000*64)}
	text := f.Sections[f.SectionIndex(".text")]
	for i := range uint64(100000) {
		in.Edits = append(in.Edits, elfio.RawEdit{Off: text.Off + text.Size/100001*i,
			New: []byte{0xe9, byte(i), byte(i >> 8), 0, 0}})
	}
	for i := range uint64(10000) {
		in.Symbols = append(in.Symbols, Symbol{Name: "fentry:x", Value: l.RX + 64*i, Size: 64,
			Info: elf.ST_INFO(elf.STB_LOCAL, elf.STT_FUNC)})
	}
	return in
}

func BenchmarkInject(b *testing.B) {
	raw := bigImage(b)
	b.SetBytes(int64(len(raw)))
	for b.Loop() {
		f, err := elfio.Parse(raw)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := injected(f, injection100(b, f)); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkInjectFile reads, injects and writes a file; compare with BenchmarkCopyFile.
func BenchmarkInjectFile(b *testing.B) {
	raw := bigImage(b)
	src := filepath.Join(b.TempDir(), "src")
	if err := runfile.WriteFile(src, raw); err != nil {
		b.Fatal(err)
	}
	dst := filepath.Join(b.TempDir(), "dst")
	b.SetBytes(int64(len(raw)))
	for b.Loop() {
		in, err := os.Open(src)
		if err != nil {
			b.Fatal(err)
		}
		m, err := unix.Mmap(int(in.Fd()), 0, len(raw), unix.PROT_READ, unix.MAP_PRIVATE)
		if err != nil {
			b.Fatal(err)
		}
		f, err := elfio.Parse(m)
		if err != nil {
			b.Fatal(err)
		}
		o, err := Into(f, injection100(b, f))
		if err != nil {
			b.Fatal(err)
		}
		out, err := os.Create(dst)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := io.Copy(out, in); err != nil {
			b.Fatal(err)
		}
		if err := o.ApplyTo(out); err != nil {
			b.Fatal(err)
		}
		if err := out.Close(); err != nil {
			b.Fatal(err)
		}
		in.Close()
		if err := unix.Munmap(m); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCopyFile(b *testing.B) {
	raw := bigImage(b)
	src := filepath.Join(b.TempDir(), "src")
	if err := runfile.WriteFile(src, raw); err != nil {
		b.Fatal(err)
	}
	dst := filepath.Join(b.TempDir(), "dst")
	b.SetBytes(int64(len(raw)))
	for b.Loop() {
		in, err := os.Open(src)
		if err != nil {
			b.Fatal(err)
		}
		out, err := os.Create(dst)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := io.Copy(out, in); err != nil {
			b.Fatal(err)
		}
		if err := out.Close(); err != nil {
			b.Fatal(err)
		}
		in.Close()
	}
}

func BenchmarkUninject(b *testing.B) {
	raw := bigImage(b)
	f, err := elfio.Parse(raw)
	if err != nil {
		b.Fatal(err)
	}
	out, err := injected(f, injection100(b, f))
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(raw)))
	for b.Loop() {
		if _, err := Undo(out); err != nil {
			b.Fatal(err)
		}
	}
}
