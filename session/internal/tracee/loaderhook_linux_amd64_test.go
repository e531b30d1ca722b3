package tracee

import (
	"bytes"
	"debug/elf"
	"slices"
	"testing"
)

// Places are found by the number and the call, and left alone if anything could branch into what is overwritten.
func TestFindOpens(t *testing.T) {
	open := slices.Concat(openatNumber, []byte{0x48, 0x89, 0xfe}, callAndCheck, []byte{0x77, 0x20, 0xc3}) // mov %rdi, %rsi
	at := len(openatNumber) + 3
	pad := bytes.Repeat([]byte{0x90}, 40)
	for _, tt := range []struct {
		name string
		code []byte
		want []int
	}{
		{"nothing", pad, nil},
		{"one", open, []int{at}},
		{"two", slices.Concat(open, pad, open), []int{at, len(open) + len(pad) + at}},
		{"another call", slices.Concat([]byte{0xb8, 1, 0, 0, 0}, callAndCheck), nil},
		{"the number of a call before", slices.Concat(openatNumber, callAndCheck, []byte{0xb8, 1, 0, 0, 0}, callAndCheck), []int{5}},
		{"far away", slices.Concat(openatNumber, pad, callAndCheck), nil},
		{"the check is jumped to", slices.Concat(open, pad, []byte{0xeb, byte(-(len(open) + len(pad) - at))}), nil},
		{"the call is jumped to", slices.Concat(open, pad, []byte{0xeb, byte(-(len(open) + len(pad) - at + 2))}), []int{at}},
		{"by a call", slices.Concat([]byte{0xe8, byte(at + 3), 0, 0, 0}, open), nil},
		{"by a far jcc", slices.Concat([]byte{0x0f, 0x84, byte(at + 7), 0, 0, 0}, open), nil},
		{"behind it is jumped to", slices.Concat([]byte{0xe9, byte(at + 8), 0, 0, 0}, open), []int{5 + at}},
		{"cut off", append(slices.Clone(open), 0x0f), []int{at}},
	} {
		if got := findOpens(tt.code); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

// glibc's loader opens libraries in places that are found.
func TestFindOpensGlibc(t *testing.T) {
	f, err := elf.Open("/lib64/ld-linux-x86-64.so.2")
	if err != nil {
		t.Fatal(err) // this test was compiled with it
	}
	defer f.Close()
	b, err := f.Section(".text").Data()
	if err != nil {
		t.Fatal(err)
	}
	if got := findOpens(b); len(got) == 0 || len(got) > 8 {
		t.Errorf("%v", got)
	}
}

// Calls of open are found by where they go, and by what they are to open.
func TestFindCalls(t *testing.T) {
	call := func(flags byte, moves int, to int) []byte { // at the offset 5 + moves
		b := append([]byte{0xbe, 0, 0, flags, 0}, bytes.Repeat([]byte{0x90}, moves)...) // mov $flags, %esi
		return le.AppendUint32(append(b, 0xe8), uint32(to-len(b)-5))
	}
	const open = 0x1000
	for _, tt := range []struct {
		name string
		code []byte
		want []int
	}{
		{"nothing", nil, nil},
		{"one", call(8, 3, open), []int{8}},
		{"for a directory", call(9, 3, open), nil},
		{"another function", call(8, 3, open+1), nil},
		{"far away", call(8, 30, open), nil},
		{"cut off", call(8, 3, open)[:12], nil},
	} {
		if got := findCalls(tt.code, open); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

// FuzzFindOpens: whatever the code, what is found is there, and in order.
func FuzzFindOpens(f *testing.F) {
	f.Add(slices.Concat(openatNumber, callAndCheck))
	f.Add([]byte{0x0f, 0x84, 0xe8, 0xeb})
	f.Fuzz(func(t *testing.T, code []byte) {
		for _, at := range findOpens(code) {
			if !bytes.HasPrefix(code[at:], callAndCheck) {
				t.Errorf("%d", at)
			}
		}
	})
}
