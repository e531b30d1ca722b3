package ehframe

import (
	"errors"
	"testing"
)

// aMachine has registers 3 and 7, and memory in which each word is its address plus 1.
type aMachine struct{}

var errUnknown = errors.New("unknown")

func (aMachine) Register(n int) (uint64, error) {
	if n != 3 && n != 7 {
		return 0, errUnknown
	}
	return uint64(n) << 12, nil
}

func (aMachine) Read(addr uint64, size int) (uint64, error) {
	return (addr + 1) & (1<<(8*size) - 1), nil
}

func TestEval(t *testing.T) {
	for _, tt := range []struct {
		code string
		want uint64
	}{
		{"\x35", 5},
		{"\x08\xff", 255}, {"\x09\xff", ^uint64(0)}, {"\x0a\x01\x80", 0x8001}, {"\x0b\x01\x80", ^uint64(0x7ffe)},
		{"\x0c\x01\x02\x03\x84", 0x84030201}, {"\x0e\x01\x02\x03\x04\x05\x06\x07\x88", 0x8807060504030201},
		{"\x10\x80\x01", 128}, {"\x11\x7f", ^uint64(0)}, {"\x03\x10\x00\x00\x00\x00\x00\x00\x00", 16},
		{"\x77\x08", 0x7008}, {"\x73\x78", 0x2ff8}, {"\x92\x07\x10", 0x7010},
		{"\x77\x00\x06", 0x7001}, {"\x77\x00\x94\x01", 1},
		{"\x33\x12\x22", 6}, {"\x33\x34\x13", 3}, {"\x33\x34\x14", 3}, {"\x33\x34\x35\x15\x02", 3}, {"\x33\x34\x16", 3},
		{"\x31\x32\x33\x17", 2}, {"\x31\x32\x33\x17\x13", 1}, {"\x31\x32\x33\x17\x13\x13", 3},
		{"\x09\xfb\x19", 5}, {"\x37\x33\x1a", 3}, {"\x37\x32\x1b", 3}, {"\x37\x32\x1c", 5}, {"\x37\x34\x1d", 3},
		{"\x37\x34\x1e", 28}, {"\x31\x1f", ^uint64(0)}, {"\x30\x20", ^uint64(0)}, {"\x31\x32\x21", 3}, {"\x31\x23\x80\x01", 129},
		{"\x31\x34\x24", 16}, {"\x09\xff\x38\x25", 1<<56 - 1}, {"\x09\xff\x38\x26", ^uint64(0)}, {"\x37\x33\x27", 4},
		{"\x31\x28\x01\x00\x35\x36", 6}, {"\x35\x30\x28\x01\x00\x36", 6}, {"\x35\x2f\x01\x00\x36", 5},
		{"\x33\x33\x29", 1}, {"\x33\x34\x2a", 0}, {"\x34\x33\x2b", 1}, {"\x33\x34\x2c", 1}, {"\x09\xff\x30\x2d", 1}, {"\x33\x33\x2e", 0},
		{"\x96\x35", 5},
		// a stub's frame: 8 more from the eleventh byte on (rsp 0x7000, and rbx for rip)
		{"\x77\x08\x73\x0b\x3f\x1a\x3b\x2a\x33\x24\x22", 0x7010}, {"\x77\x08\x73\x0a\x3f\x1a\x3b\x2a\x33\x24\x22", 0x7008},
	} {
		if got, err := Eval([]byte(tt.code), aMachine{}, false, 0); err != nil || got != tt.want {
			t.Errorf("% x: %#x, %v; want %#x", tt.code, got, err, tt.want)
		}
	}
	if got, err := Eval([]byte("\x38\x22"), aMachine{}, true, 0x100); err != nil || got != 0x108 {
		t.Errorf("with an operand: %#x, %v", got, err)
	}
	for _, code := range []string{"", "\x22", "\x31\x22", "\x06", "\xff", "\x0e\x01", "\x31\x30\x1b", "\x31\x30\x1d", "\x2f\xfd\xff", "\x2f\x01\x00",
		"\x30\x2f\xfc\xff", "\x31\x94\x09", "\x31\x94\x00", "\x31\x15\x01", "\x31\x12\x2f\xfc\xff"} {
		if got, err := Eval([]byte(code), aMachine{}, false, 0); !errors.Is(err, ErrExpression) {
			t.Errorf("% x: %#x, %v", code, got, err)
		}
	}
	if _, err := Eval([]byte("\x74\x00"), aMachine{}, false, 0); !errors.Is(err, errUnknown) {
		t.Errorf("an unknown register: %v", err)
	}
}

func FuzzEval(f *testing.F) {
	f.Add([]byte("\x77\x08\x80\x00\x3f\x1a\x3b\x2a\x33\x24\x22"), uint64(1))
	f.Fuzz(func(t *testing.T, code []byte, first uint64) { _, _ = Eval(code, aMachine{}, true, first) })
}
