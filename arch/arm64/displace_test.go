package arm64

import (
	"bytes"
	"strings"
	"testing"
)

func TestDisplaced(t *testing.T) {
	const at, to = 0x401000, 0x501000
	for _, tt := range []struct {
		word  uint32
		moved string
	}{
		{0xa9bf7bfd, "stp x29, x30, [sp, #-16]!; b 0x401004"},
		{0xd65f03c0, "ret"},
		{0x14000004, "b 0x401010"},
		{0x94000004, "bl 0x401010; b 0x401004"},
		{0xb4000080, "cbnz x0, 0x501008; b 0x401010; b 0x401004"},
		{0x90000001, "adrp x1, 0x401000; b 0x401004"},
		{0x10000081, "adrp x1, 0x401000; add x1, x1, #0x10; b 0x401004"},
		{0x58000081, "adrp x1, 0x401000; add x1, x1, #0x10; ldr x1, [x1]; b 0x401004"},
		{0x5c000081, "adrp x16, 0x401000; add x16, x16, #0x10; ldr d1, [x16]; b 0x401004"},
		{0xd61f0200, "br x16"},
	} {
		src := code(tt.word)
		got, err := AppendDisplaced([]byte{0xaa}, src, at, to)
		if err != nil || got[0] != 0xaa {
			t.Errorf("%s: %v", tt.moved, err)
			continue
		}
		text := disassemble(t, got[1:], to)
		if text = strings.NewReplacer(" // #16", "", " <", "<").Replace(text); text != tt.moved {
			t.Errorf("%s, want %s", text, tt.moved)
		}
		end, ok := DisplacedAt(src, InstLen)
		if n := DisplacedLen(src); n != len(got)-1 || !ok || end != n && end != n-JumpLen {
			t.Errorf("%s: DisplacedLen is %d, not %d; behind the instruction is %d, %v", tt.moved, n, len(got)-1, end, ok)
		}
	}
	for _, src := range [][]byte{{1, 2, 3}, {}, code(0xdac1a3fe)} {
		if got, err := AppendDisplaced([]byte{1}, src, at, to); err == nil || len(got) != 1 {
			t.Errorf("% x: % x, %v", src, got, err)
		}
	}
	for _, off := range []int{-4, 2, 8} {
		if n, ok := DisplacedAt(code(WordNop), off); ok {
			t.Errorf("an instruction at %d of one: %d", off, n)
		}
	}
	b := bytes.Repeat([]byte{1}, 3)
	if got, err := AppendDisplaced(b, code(0x94000004), at, at+1<<30); err == nil || len(got) != 3 {
		t.Errorf("out of reach: % x, %v", got, err)
	}
}
