package arm64

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"strings"
	"testing"
)

// TestGoSyscallCopy has the copy of a system call of Go's own code, and what is out of its reach.
func TestGoSyscallCopy(t *testing.T) {
	s := GoSyscallCopy{At: 0x401000, Enter: 0x403000, Exit: 0x403100}
	b, err := s.Append([]byte{0xaa}, 0x402000)
	want := strings.ReplaceAll("51000010 ff030014 010000d4 71000010 3c040014 010000d4 fbfbff17", " ", "")
	if have := hex.EncodeToString(b[1:]); have != want || err != nil || len(b) != 1+GoSyscallLen {
		t.Errorf("%s, %v\nwant %s", have, err, want)
	}
	// Where the routines come back to: the two calls, and what is behind them.
	for at, to := range map[int]int{0: 8, 12: GoSyscallBehind} {
		if in := DecodeWord(binary.LittleEndian.Uint32(b[1+at:])); in.Target(uint64(at)) != uint64(to) {
			t.Errorf("the way back at %d is %#x, want %#x", at, in.Target(uint64(at)), to)
		}
	}
	var far *RangeError
	for _, s := range []GoSyscallCopy{{0x401000, 0x403000, 1 << 40}, {0x401000, 1 << 40, 0x403000}, {1 << 40, 0x403000, 0x403000}} {
		if b, err := s.Append(nil, 0x402000); !errors.As(err, &far) || len(b) != 0 {
			t.Errorf("%+v: % x, %v", s, b, err)
		}
	}
}
