package inject

import (
	"bytes"
	"debug/elf"
	"errors"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/elfio/internal/elftest"
	"github.com/fentry-dev/fentry/internal/testtool"
)

// tinyAsm is a program without writable memory: it exits with status 7.
const tinyAsm = `
	.globl _start
_start:	mov $60, %eax
	mov $7, %edi
	syscall
	.section .note.GNU-stack, "", @progbits
`

// Where the last writable segment cannot grow, or there is none, zeroed memory gets a segment of its own.
func TestInjectOwnWritableSegment(t *testing.T) {
	testtool.Need(t, "gcc")
	t.Run("none", func(t *testing.T) {
		checkTiny(t, elftest.Compile(t, "tiny-static", ".s", tinyAsm, "gcc", "-static", "-nostdlib"), true)
	})
	t.Run("dynamic section only", func(t *testing.T) {
		checkTiny(t, elftest.Compile(t, "tiny-static-pie", ".s", tinyAsm, "gcc", "-static-pie", "-nostdlib"), false)
	})
	t.Run("no slot", func(t *testing.T) {
		// One segment and one note; two headers are needed, and code follows the table.
		f, err := elfio.Parse(elftest.Compile(t, "tiny-noseparate", ".s", tinyAsm, "gcc", "-static", "-nostdlib",
			"-Wl,-z,noseparate-code"))
		if err != nil {
			t.Fatal(err)
		}
		if l, err := NewLayout(f, Memory{RW: 64, RWAlign: 8}); err == nil {
			t.Errorf("layout %+v", l)
		}
		if _, err := NewLayout(f, Memory{RW: 0, RWAlign: 0}); err != nil {
			t.Errorf("without writable memory: %v", err)
		}
	})
	t.Run("blocked", func(t *testing.T) {
		raw := elftest.Compile(t, "blocked", ".c", strings.Replace(elftest.FixtureC, "int common;",
			`int common; __attribute__((section(".high"), noinline, used)) int high(void) { return 1; }`, 1),
			"gcc", "-O1", "-w", "-no-pie", "-Wl,--section-start=.high=0x500000")
		f, err := elfio.Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		if l, err := NewLayout(f, Memory{RW: 0x1000, RWAlign: 64}); err != nil || l.RWSegment != 0 {
			t.Errorf("a page fits below the next segment: %+v, %v", l, err)
		}
		l, err := NewLayout(f, Memory{RW: 2 << 20, RWAlign: 64})
		if err != nil || l.RWSegment == 0 {
			t.Fatalf("2 MiB do not fit below the next segment: %+v, %v", l, err)
		}
		rx := trampoline(l.RX, l.RW+2<<20-8, f.Header.Entry)
		out, err := injected(f, Injection{Layout: l, RX: rx, Entry: l.RX})
		if err != nil {
			t.Fatal(err)
		}
		verify(t, out)
		elftest.RunFixture(t, out, "injected")
		if testtool.Have(t, "qemu-x86_64") {
			elftest.RunFixture(t, out, "injected, under qemu", "qemu-x86_64")
		}
		for _, tool := range tools {
			if testtool.Have(t, tool.command[0]) && tool.name != "patchelf" {
				elftest.RunFixture(t, elftest.Transform(t, out, tool.command...), tool.name)
			}
		}
	})
}

// Zeroed memory behind the last section that the caller names is there after tools have made the segment anew.
func TestInjectMemoryBehindSections(t *testing.T) {
	testtool.Need(t, "gcc")
	const size = 0x5000
	f, err := elfio.Parse(elftest.Fixtures[0].Build(t))
	if err != nil {
		t.Fatal(err)
	}
	l, err := NewLayout(f, Memory{RW: size, RWAlign: 64})
	if err != nil {
		t.Fatal(err)
	}
	rx := trampoline(l.RX, l.RW+size-8, f.Header.Entry) // which writes there
	out, err := injected(f, Injection{Layout: l, RX: rx, Entry: l.RX, Sections: []Section{{Name: ".fentry.bss",
		Type: elf.SHT_NOBITS, Flags: elf.SHF_ALLOC | elf.SHF_WRITE, Addr: l.RW, Size: 8, Align: 64}}})
	if err != nil {
		t.Fatal(err)
	}
	verify(t, out)
	elftest.RunFixture(t, out, "injected")
	for _, tool := range tools {
		t.Run(tool.name, func(t *testing.T) {
			testtool.Need(t, tool.command[0])
			elftest.RunFixture(t, elftest.Transform(t, out, tool.command...), tool.name)
		})
	}
}

func verify(t *testing.T, out []byte) {
	t.Helper()
	f, err := elfio.Parse(out)
	if err != nil {
		t.Fatal(err)
	}
	if err := Verify(f); err != nil {
		t.Errorf("Verify: %v", err)
	}
}

func checkTiny(t *testing.T, raw []byte, own bool) {
	t.Helper()
	f, err := elfio.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	l, err := NewLayout(f, Memory{RW: 5000, RWAlign: 64})
	if err != nil {
		t.Fatal(err)
	}
	if (l.RWSegment != 0) != own {
		t.Errorf("own writable segment at %#x", l.RWSegment)
	}
	rx := trampoline(l.RX, l.RW+4992, f.Header.Entry)
	out, err := injected(f, Injection{Layout: l, RX: rx, Entry: l.RX})
	if err != nil {
		t.Fatal(err)
	}
	verify(t, out)
	lint(t, raw, out)
	for _, tool := range tools {
		if tool.name == "patchelf" || tool.name == "eu-strip-debug" {
			continue
		}
		stripped, msg := elftest.TryTransform(t, out, tool.command...)
		if msg != "" {
			t.Log(msg)
			continue
		}
		if o, code := elftest.Run([]string{elftest.WriteExec(t, stripped)}); code != 7 {
			t.Errorf("%s: exit status %d, %s", tool.name, code, o)
		}
	}
	if o, code := elftest.Run([]string{elftest.WriteExec(t, out)}); code != 7 {
		t.Errorf("exit status %d, %s", code, o)
	}
}

// Tools that rewrite the file leave an undo record that no longer fits; that is said, not guessed over.
func TestUninjectAfterTools(t *testing.T) {
	raw := elftest.Fixtures[0].Build(t)
	out := injectTrampoline(t, raw)
	for _, tool := range tools {
		t.Run(tool.name, func(t *testing.T) {
			testtool.Need(t, tool.command[0])
			rewritten := elftest.Transform(t, out, tool.command...)
			_, err := Undo(rewritten)
			if bytes.Equal(rewritten, out) {
				if err != nil {
					t.Error(err)
				}
				return // there was nothing to strip
			}
			if !errors.Is(err, ErrUndoLost) {
				t.Errorf("error %v", err)
			}
		})
	}
	if _, err := Undo(raw); !errors.Is(err, ErrNotInjected) {
		t.Errorf("untouched: %v", err)
	}
}
