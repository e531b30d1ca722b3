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

// TestSyscallCallCopy: a call of a routine that makes system calls, and what unwinders know of the copy.
func TestSyscallCallCopy(t *testing.T) {
	c := SyscallCallCopy{At: 0x401000, Routine: 0x401800, Cancelled: 8, Enter: 0x403000, Exit: 0x403100}
	b, err := c.Append([]byte{0xaa}, 0x402000)
	want := "100040b9f0021837e007bca9e20f01a9e41702a9e61f03a9e80301aae00302aae10303aae20304aae30305aae40306aae50307aaf3030094" +
		"e61f43a9e41742a9e20f41a9e007c4a8080000141f2003d5e61f43a9e41742a9e20f41a9e007c4a8e8fdff97e8fbff17e6fdff9725040094e5fbff17"
	if have := hex.EncodeToString(b[1:]); have != want || err != nil || len(b) != 1+SyscallCallLen {
		t.Errorf("%s, %v", have, err)
	}
	c.Cancelled = ^uint32(0)
	if b, err := c.Append(nil, 0x402000); err != nil || hex.EncodeToString(b[4:8]) != "f0020035" { // cbnz w16
		t.Errorf("% x, %v", b, err)
	}
	var far *RangeError
	c.Routine = 1 << 40
	if b, err := c.Append(nil, 0x402000); !errors.As(err, &far) || len(b) != 0 {
		t.Errorf("% x, %v", b, err)
	}
	if have := hex.EncodeToString(SyscallCallRows(nil, 32, 4)); have != "430e60"+"4f0e20"+"420e60"+"440e20" {
		t.Errorf("rows: %s", have)
	}
}
