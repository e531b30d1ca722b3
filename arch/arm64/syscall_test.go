package arm64

import (
	"encoding/hex"
	"errors"
	"strings"
	"testing"
)

// TestSyscallCopy has the copy of a system call, and what is out of its reach.
func TestSyscallCopy(t *testing.T) {
	s := SyscallCopy{At: 0x401000, Enter: 0x403000, Exit: 0x403100}
	b, err := s.Append([]byte{0xaa}, 0x402000)
	want := strings.ReplaceAll("f07bbfa9 ff030094 f07bc1a8 010000d4 f07bbfa9 3b040094 f07bc1a8 fafbff17 f07bc1a8 010000d4 f7fbff17", " ", "")
	if have := hex.EncodeToString(b[1:]); have != want || err != nil || len(b) != 1+SyscallLen {
		t.Errorf("%s, %v\nwant %s", have, err, want)
	}
	var far *RangeError
	for _, s := range []SyscallCopy{{0x401000, 0x403000, 1 << 40}, {0x401000, 1 << 40, 0x403000}, {1 << 40, 0x403000, 0x403000}} {
		if b, err := s.Append(nil, 0x402000); !errors.As(err, &far) || len(b) != 0 {
			t.Errorf("%+v: % x, %v", s, b, err)
		}
	}
	if have := hex.EncodeToString(AppendFarJump(nil, 0x123456789abcdef0)); have != "50000058"+"00021fd6"+"f0debc9a78563412" {
		t.Errorf("far jump: %s", have)
	}
}

// TestSyscallRows: the CFA follows the words that a copy has pushed, and so does a return address in x30.
func TestSyscallRows(t *testing.T) {
	for _, c := range []struct {
		cfa   int64
		saved bool
		align uint64
		want  string
	}{
		{0, false, 4, "41 0a 0e10 101e028f08 42 0b 42 0a 0e10 101e028f08 42 0b 41 0a 0e10 101e028f08 41 0b"},
		{192, true, 1, "44 0a 0ed001 48 0b 48 0a 0ed001 48 0b 44 0a 0ed001 44 0b"},
		{-1, true, 4, "41 0a 42 0b 42 0a 42 0b 41 0a 41 0b"},
	} {
		if have := hex.EncodeToString(SyscallRows(nil, c.cfa, c.saved, c.align)); have != strings.ReplaceAll(c.want, " ", "") {
			t.Errorf("%+v: %s", c, have)
		}
	}
}
