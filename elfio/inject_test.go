package elfio

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// trampoline returns code that increments the 8-byte word at rw and jumps to entry, both PC-relative.
func trampoline(at, rw, entry uint64) []byte {
	code := []byte{
		0x48, 0xff, 0x05, 0, 0, 0, 0, // incq rw(%rip)
		0xe9, 0, 0, 0, 0, // jmp entry
	}
	binary.LittleEndian.PutUint32(code[3:], uint32(rw-(at+7)))
	binary.LittleEndian.PutUint32(code[8:], uint32(entry-(at+12)))
	return code
}

// injectTrampoline gives the image a new entry point that jumps to the old one.
func injectTrampoline(t *testing.T, raw []byte) []byte {
	t.Helper()
	f, err := Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	l, err := f.Layout(0x3000, 64)
	if err != nil {
		t.Fatal(err)
	}
	rx := trampoline(l.RX, l.RW, f.Header.Entry)
	in := Injection{Layout: l, RX: rx, Entry: l.RX,
		Sections: []AddedSection{{Name: ".fentry.text", Type: elf.SHT_PROGBITS, Flags: elf.SHF_ALLOC | elf.SHF_EXECINSTR, Addr: l.RX, Size: uint64(len(rx)), Align: 16}},
		Symbols:  []AddedSymbol{{Name: "fentry:start", Value: l.RX, Size: uint64(len(rx)), Info: elf.ST_INFO(elf.STB_LOCAL, elf.STT_FUNC)}},
	}
	if id := f.BuildID(); id != nil {
		e, err := f.BuildIDEdit(bytes.Repeat([]byte{0xab}, len(id)))
		if err != nil {
			t.Fatal(err)
		}
		in.Edits = append(in.Edits, e)
	}
	out, err := f.Inject(in)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("slot %s, %d -> %d bytes", l.Slot, len(raw), len(out))
	return out
}

func TestInjectQuick(t *testing.T) {
	for _, path := range []string{"/bin/true", "/usr/bin/ld.bfd"} {
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		out := injectTrampoline(t, raw)
		back, err := Uninject(out)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(back, raw) {
			t.Fatal("Uninject does not give the original")
		}
		name := filepath.Join(t.TempDir(), filepath.Base(path))
		if err := os.WriteFile(name, out, 0o755); err != nil {
			t.Fatal(err)
		}
		if b, err := exec.Command(name, "--version").CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, b)
		}
	}
}
