package amd64

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/internal/testtool"
)

// disassemble returns objdump's text of code at addr, one line an instruction,
// columns squeezed.
func disassemble(t testing.TB, code []byte, addr uint64) []string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "code")
	if err := os.WriteFile(name, code, 0o666); err != nil {
		t.Fatal(err)
	}
	var lines []string
	objdump(t, func(l objdumpLine) bool {
		lines = append(lines, strings.Join(strings.Fields(l.text), " "))
		return true
	}, "-D", "-b", "binary", "-m", "i386:x86-64", fmt.Sprintf("--adjust-vma=%#x", addr), name)
	return lines
}

// Each encoder: what is constructed, the bytes, the text.
var encodings = []struct {
	name   string
	encode func([]byte) ([]byte, error)
	bytes  string
	text   string
}{
	{"call forward", func(b []byte) ([]byte, error) { return AppendCall(b, 0x401000, 0x402000) },
		"e8 fb 0f 00 00", "call 0x402000"},
	{"call back", func(b []byte) ([]byte, error) { return AppendCall(b, 0x401000, 0x400000) },
		"e8 fb ef ff ff", "call 0x400000"},
	{"call six bytes", func(b []byte) ([]byte, error) { return AppendCallAddr32(b, 0x401000, 0x402000) },
		"67 e8 fa 0f 00 00", "addr32 call 0x402000"},
	{"call through a slot", func(b []byte) ([]byte, error) { return AppendCallGOT(b, 0x401000, 0x403ff8) },
		"ff 15 f2 2f 00 00", "call *0x2ff2(%rip) # 0x403ff8"},
	{"jump", func(b []byte) ([]byte, error) { return AppendJump(b, 0x401000, 0x402000) },
		"e9 fb 0f 00 00", "jmp 0x402000"},
	{"jump through a slot", func(b []byte) ([]byte, error) { return AppendJumpGOT(b, 0x401000, 0x403ff8) },
		"ff 25 f2 2f 00 00", "jmp *0x2ff2(%rip) # 0x403ff8"},
	{"short jump", func(b []byte) ([]byte, error) { return AppendJumpShort(b, 0x401000, 0x401081) },
		"eb 7f", "jmp 0x401081"},
	{"short jump back", func(b []byte) ([]byte, error) { return AppendJumpShort(b, 0x401000, 0x400f82) },
		"eb 80", "jmp 0x400f82"},
	{"call site of 5", func(b []byte) ([]byte, error) { return AppendCallSite(b, 5, 0x401000, 0x402000) },
		"e8 fb 0f 00 00", "call 0x402000"},
	{"call site of 6", func(b []byte) ([]byte, error) { return AppendCallSite(b, 6, 0x401000, 0x402000) },
		"67 e8 fa 0f 00 00", "addr32 call 0x402000"},
	{"call site of 9", func(b []byte) ([]byte, error) { return AppendCallSite(b, 9, 0x401000, 0x402000) },
		"e8 fb 0f 00 00 0f 1f 40 00", "call 0x402000; nopl 0x0(%rax)"},
	{"jump site of 5", func(b []byte) ([]byte, error) { return AppendJumpSite(b, 5, 0x401000, 0x402000) },
		"e9 fb 0f 00 00", "jmp 0x402000"},
	{"jump site of 6", func(b []byte) ([]byte, error) { return AppendJumpSite(b, 6, 0x401000, 0x402000) },
		"e9 fb 0f 00 00 90", "jmp 0x402000; nop"},
	{"jump site of 16", func(b []byte) ([]byte, error) { return AppendJumpSite(b, 16, 0x401000, 0x402000) },
		"e9 fb 0f 00 00 66 66 2e 0f 1f 84 00 00 00 00 00", "jmp 0x402000; data16 cs nopw 0x0(%rax,%rax,1)"},
	{"17 bytes of nops", func(b []byte) ([]byte, error) { return AppendNops(b, 17), nil },
		"66 66 66 66 66 66 2e 0f 1f 84 00 00 00 00 00 66 90",
		"data16 data16 data16 data16 data16 cs nopw 0x0(%rax,%rax,1); xchg %ax,%ax"},
}

func TestEncode(t *testing.T) {
	for _, tt := range encodings {
		got, err := tt.encode([]byte{0xaa})
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		if want := append([]byte{0xaa}, unhex(t, tt.bytes)...); !bytes.Equal(got, want) {
			t.Errorf("%s: % x, want % x", tt.name, got, want)
		}
	}
}

func TestEncodeText(t *testing.T) {
	testtool.Need(t, "objdump")
	for _, tt := range encodings {
		if got := strings.Join(disassemble(t, unhex(t, tt.bytes), 0x401000), "; "); got != tt.text {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.text)
		}
	}
}

func TestEncodeRange(t *testing.T) {
	const far = 1 << 31
	for _, tt := range []struct {
		name   string
		encode func([]byte, uint64, uint64) ([]byte, error)
		len    uint64
		reach  uint64 // largest displacement
		bits   int
	}{
		{"call", AppendCall, 5, far - 1, 32},
		{"addr32 call", AppendCallAddr32, 6, far - 1, 32},
		{"call *disp(%rip)", AppendCallGOT, 6, far - 1, 32},
		{"jmp", AppendJump, 5, far - 1, 32},
		{"jmp *disp(%rip)", AppendJumpGOT, 6, far - 1, 32},
		{"jmp rel8", AppendJumpShort, 2, 127, 8},
	} {
		const from = 0x7fff_0000_1000
		next := from + tt.len
		for _, to := range []uint64{next + tt.reach, next - tt.reach - 1} {
			b, err := tt.encode(nil, from, to)
			if err != nil {
				t.Errorf("%s to %#x: %v", tt.name, to, err)
				continue
			}
			if in, err := Decode(b); err != nil || in.Len != int(tt.len) || in.Target(from) != to {
				t.Errorf("%s to %#x: % x: %+v, %v", tt.name, to, b, in, err)
			}
		}
		for _, to := range []uint64{next + tt.reach + 1, next - tt.reach - 2, 0, 1 << 63} {
			dst := []byte{1, 2, 3}
			b, err := tt.encode(dst, from, to)
			var e *RangeError
			if !errors.As(err, &e) || e.From != from || e.To != to || e.Bits != tt.bits || e.Inst != tt.name {
				t.Errorf("%s to %#x: %v, want a RangeError", tt.name, to, err)
			}
			if !bytes.Equal(b, dst) {
				t.Errorf("%s to %#x: % x left behind", tt.name, to, b)
			}
		}
	}
	_, err := AppendCall(nil, 0x401000, 0x1_0040_1000)
	if want := "call at 0x401000 cannot reach 0x100401000: displacement 0xfffffffb does not fit in 32 bits"; err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	for _, f := range []func([]byte, int, uint64, uint64) ([]byte, error){AppendCallSite, AppendJumpSite} {
		if b, err := f(nil, 4, 0x401000, 0x402000); err == nil || len(b) != 0 {
			t.Errorf("a site of 4 bytes: % x, %v", b, err)
		}
	}
}
