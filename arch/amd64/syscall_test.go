package amd64

import (
	"encoding/hex"
	"strings"
	"testing"
)

// TestSyscallCopy has runs of instructions with a system call among them, and where each goes on.
func TestSyscallCopy(t *testing.T) {
	const at, to = 0x401000, 0x402000
	const enter, exit = 0x403000, 0x403100
	for _, c := range []struct {
		name, code string
		call       int
		want       string
		places     map[int]int
	}{
		// mov $39,%eax; syscall; ret
		{"in front and behind", "b827000000 0f05 c3", 5,
			"b827000000 488d0d05000000 e9ef0f0000 0f05 488d0d07000000 e9e1100000 0f05 f3c3",
			map[int]int{0: 0, 5: 5, 7: 33, 8: 35}},
		// syscall; cmp $-4095,%rax
		{"behind only", "0f05 483d01f0ffff", 0,
			"488d0d05000000 e9f40f0000 0f05 488d0d07000000 e9e6100000 0f05 483d01f0ffff e9e1efffff",
			map[int]int{0: 0, 2: 28, 8: 34}},
		// syscall; test %eax,%eax; js .+0x10
		{"a branch becomes long", "0f05 85c0 780e", 0,
			"488d0d05000000 e9f40f0000 0f05 488d0d07000000 e9e6100000 0f05 85c0 0f88f0efffff e9ddefffff",
			map[int]int{0: 0, 2: 28, 4: 30, 6: 36}},
		{"no system call there", "b827000000 0f05", 0, "", nil},
		{"in the middle of an instruction", "b80f050000 90", 1, "", nil},
		{"cut off", "0f05 48", 0, "", nil},
		{"behind the end", "90", 1, "", nil},
	} {
		code, _ := hex.DecodeString(strings.ReplaceAll(c.code, " ", ""))
		s := SyscallCopy{Code: code, At: at, Call: c.call, Enter: enter, Exit: exit}
		b, err := s.Append([]byte{0xaa}, to)
		want := strings.ReplaceAll(c.want, " ", "")
		if have := hex.EncodeToString(b[1:]); have != want || (err != nil) != (want == "") || s.Len() != len(b)-1 {
			t.Errorf("%s: %s (%d bytes), %v\nwant %s", c.name, have, s.Len(), err, want)
		}
		for off, place := range c.places {
			if have, ok := s.Place(off); have != place || !ok {
				t.Errorf("%s: what begins at %d is at %d, %v, want %d", c.name, off, have, ok, place)
			}
		}
	}
	far := SyscallCopy{Code: []byte{0x0f, 0x05, 0x90, 0x90, 0x90}, At: at, Enter: enter, Exit: 1 << 40}
	if b, err := far.Append(nil, to); err == nil || len(b) != 0 {
		t.Errorf("out of reach: % x, %v", b, err)
	}
}
