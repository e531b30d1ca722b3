package amd64

import (
	"bytes"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/internal/testtool"
)

func TestAppendNops(t *testing.T) {
	for n := range 40 {
		b := AppendNops([]byte{0xaa}, n)
		if len(b) != n+1 || b[0] != 0xaa {
			t.Fatalf("%d bytes of nops: % x", n, b)
		}
		size, insts := CountNops(b[1:])
		if want := (n + MaxNop - 1) / MaxNop; size != n || insts != want {
			t.Errorf("% x: %d bytes in %d instructions, want %d in %d", b[1:], size, insts, n, want)
		}
	}
}

func TestAppendNopsText(t *testing.T) {
	testtool.Need(t, "objdump")
	for n := 1; n <= MaxNop; n++ {
		lines := disassemble(t, AppendNops(nil, n), 0)
		if len(lines) != 1 || !strings.Contains(lines[0], "nop") && lines[0] != "xchg %ax,%ax" {
			t.Errorf("nop of %d bytes: objdump: %q", n, lines)
		}
	}
}

func TestIsNops(t *testing.T) {
	for _, tt := range []struct {
		code     string
		n, insts int
		text     string
	}{
		{"90 90 90 90 90", 5, 5, "gcc -fpatchable-function-entry=5"},
		{"0f 1f 44 00 08", 5, 1, "clang -fpatchable-function-entry"},
		{"0f 1f 44 00 00", 5, 1, "gcc -mnop-mcount"},
		{"66 0f 1f 44 00 00", 6, 1, "nop6"},
		{"66 90 90", 3, 2, ""},
		{"0f 1f 44 00 08 66 90", 7, 2, "clang, 7 bytes"},
		{"66 0f 1f 84 00 00 02 00 00", 9, 1, "XRay sled's nopw 512(%rax,%rax), behind its jump"},
		{"66 2e 0f 1f 84 00 00 00 00 00 66 90", 12, 2, "padding"},
		{"48 90", 2, 1, "rex.W nop"},
		{"0f 1f c0", 3, 1, "nop %eax"},
		{"0f 1f 44 00 00 55", 5, 1, "up to the push"},
		{"55 90", 0, 0, "push first"},
		{"0f 1f 44 00", 0, 0, "cut off"},
		{"90 0f 1f", 1, 1, "cut off"},
		{"f3 90", 0, 0, "pause"},
		{"41 90", 0, 0, "xchg %r8d,%eax"},
		{"f0 90", 0, 0, "lock nop raises #UD"},
		{"f3 0f 1e fa", 0, 0, "endbr64 is a landing pad"},
		{"0f 1f c8", 0, 0, "reserved"},
		{"0f 18 c0", 0, 0, "hint space"},
		{"cc", 0, 0, "int3"},
		{"", 0, 0, "nothing"},
	} {
		n, insts := CountNops(unhex(t, tt.code))
		if n != tt.n || insts != tt.insts || IsNops(unhex(t, tt.code)) != tt.n {
			t.Errorf("%s (%s): %d bytes in %d instructions, want %d in %d", tt.code, tt.text, n, insts, tt.n, tt.insts)
		}
	}
	if n := IsNops(bytes.Repeat([]byte{0x90}, 1000)); n != 1000 {
		t.Errorf("1000 nops: %d", n)
	}
}
