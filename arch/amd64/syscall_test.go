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

// TestSyscallCallCopy: a call of a routine that makes system calls, and what unwinders know of each of its instructions.
func TestSyscallCallCopy(t *testing.T) {
	const at, to, routine = 0x401000, 0x402000, 0x401800
	c := SyscallCallCopy{At: at, Routine: routine, Cancelled: 8, Enter: 0x403000, Exit: 0x403100}
	b, err := c.Append([]byte{0xaa}, to)
	if b = b[1:]; err != nil || len(b) != SyscallCallLen {
		t.Fatalf("%d bytes, %v", len(b), err)
	}
	want := strings.ReplaceAll("f70708000000 7543 57 56 52 51 4150 4151 4889f0 4889d7 4889ce 4c89c2 4d89ca 4c8b442430 4c8b4c2438"+
		"488d0d05000000 e9cb0f0000 4159 4158 59 5a 5e 5f eb16 0f1f4000 4159 4158 59 5a 5e 5f"+
		"e8b0f7ffff e9b0efffff e8a6f7ffff 488d0d05000000 e99a100000 e99aefffff", " ", "")
	if have := hex.EncodeToString(b); have != want {
		t.Errorf("% x", b)
	}
	const cfa = 24 // at the call
	rows := SyscallCallRows(nil, cfa, 1)
	said := make([]int, SyscallCallLen) // distance of the CFA from the stack pointer
	at2, row := 0, cfa
	for i := 0; i < len(rows); i += 3 {
		next := at2 + int(rows[i]&^dwAdvance)
		for ; at2 < next; at2++ {
			said[at2] = row
		}
		if rows[i]&0xc0 != dwAdvance || rows[i+1] != dwDefCFAOffset {
			t.Fatalf("% x", rows)
		}
		row = int(rows[i+2])
	}
	for ; at2 < len(said); at2++ {
		said[at2] = row
	}
	depth := cfa
	for o := 0; o < len(b); {
		switch o { // which others go to
		case 53, 67:
			depth = cfa + 6*8
		case 75, 85, 102:
			depth = cfa
		}
		in, err := Decode(b[o:])
		if err != nil {
			t.Fatal(err)
		}
		if said[o] != depth {
			t.Errorf("at %d the CFA is %d bytes away, not %d", o, depth, said[o])
		}
		switch in.Op {
		case Push:
			depth += 8
		case Pop:
			depth -= 8
		case Jcc:
			if in.Target(uint64(o)) != 75 {
				t.Errorf("a branch to %d", in.Target(uint64(o)))
			}
		}
		o += in.Len
	}
	c.Exit = 1 << 40
	if b, err := c.Append([]byte{0xaa}, to); err == nil || len(b) != 1 {
		t.Errorf("out of reach: % x, %v", b, err)
	}
}
