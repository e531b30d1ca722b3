package amd64

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/arch"
)

// base is a thunk whose parts all lie in front of or behind it.
var baseThunk = Thunk{Addr: 0x405040, Switch: 0x40a000, Enter: 0x404000, Exit: 0x404100, Body: 0x401005, ID: 0x1234}

var thunkTests = []struct {
	kind  arch.ThunkKind
	bytes string
	text  string
}{
	{arch.ThunkGraph,
		"f6 05 b9 4f 00 00 01 0f 84 b8 bf ff ff e8 ae ef ff ff e8 ae bf ff ff 40 ff f0 e8 a1 f0 ff ff c3",
		`testb $0x1,0x4fb9(%rip) # 0x40a000
je 0x401005
call 0x404000
call 0x401005
rex push %rax
call 0x404100
ret`},
	{arch.ThunkFunc,
		"f6 05 b9 4f 00 00 01 0f 84 b8 bf ff ff e8 ae ef ff ff e9 ae bf ff ff" + strings.Repeat(" cc", 9),
		`testb $0x1,0x4fb9(%rip) # 0x40a000
je 0x401005
call 0x404000
jmp 0x401005`},
	{arch.ThunkMcount,
		"f6 05 b9 4f 00 00 01 0f 84 b8 bf ff ff e8 ae ef ff ff e8 09 00 00 00 40 ff f0 e8 a1 f0 ff ff c3 " +
			"48 8d 64 24 08 e9 9b bf ff ff" + strings.Repeat(" cc", 22),
		`testb $0x1,0x4fb9(%rip) # 0x40a000
je 0x401005
call 0x404000
call 0x405060
rex push %rax
call 0x404100
ret
lea 0x8(%rsp),%rsp
jmp 0x401005`},
	{arch.ThunkCount,
		"50 80 3d b8 4f 00 00 01 72 22 77 26 31 c0 65 48 8b 00 64 48 03 04 25 00 00 00 00 48 ff c0 75 12 " +
			"65 48 8b 40 48 48 ff 80 a0 91 00 00 58 e9 93 bf ff ff e8 89 ef ff ff eb f3 cc cc cc cc cc cc cc",
		`push %rax
cmpb $0x1,0x4fb8(%rip) # 0x40a000
jb 0x40506c
ja 0x405072
xor %eax,%eax
mov %gs:(%rax),%rax
add %fs:0x0,%rax
inc %rax
jne 0x405072
mov %gs:0x48(%rax),%rax
incq 0x91a0(%rax)
pop %rax
jmp 0x401005
call 0x404000
jmp 0x40506c`},
	{arch.ThunkMcountFunc,
		"f6 05 b9 4f 00 00 01 0f 84 b8 bf ff ff e8 ae ef ff ff e9 ae bf ff ff" + strings.Repeat(" cc", 9),
		`testb $0x1,0x4fb9(%rip) # 0x40a000
je 0x401005
call 0x404000
jmp 0x401005`},
}

func encodeThunk(t *testing.T, th Thunk) []byte {
	t.Helper()
	b := bytes.Repeat([]byte{0xaa}, arch.ThunkSize+8)
	if err := th.Encode(b); err != nil {
		t.Fatal(err)
	}
	if n := th.size(); !bytes.Equal(b[n:], bytes.Repeat([]byte{0xaa}, len(b)-n)) {
		t.Error("bytes behind the thunk are written")
	}
	return b[:th.size()]
}

// A thunk is the same among larger ones, and nothing comes to the rest.
func TestThunkSize(t *testing.T) {
	for _, c := range thunkTests {
		th := baseThunk
		th.Kind = c.kind
		small := encodeThunk(t, th)
		th.Size = arch.ThunkSize
		if want := append(small, bytes.Repeat([]byte{0xcc}, th.Size-len(small))...); !bytes.Equal(encodeThunk(t, th), want) {
			t.Errorf("%v: another one of %d bytes", c.kind, th.Size)
		}
		for _, n := range []int{-32, 16, 48, 128} {
			th.Size = n
			if err := th.Encode(make([]byte, 256)); err == nil {
				t.Errorf("%v: no error of %d bytes", c.kind, n)
			}
		}
	}
	th := baseThunk
	th.Kind, th.Size = arch.ThunkMcount, 32
	if err := th.Encode(make([]byte, 256)); err == nil {
		t.Error("behind a prologue: no error of too few bytes")
	}
}

func TestThunkBytes(t *testing.T) {
	for _, c := range thunkTests {
		th := baseThunk
		th.Kind = c.kind
		if got := fmt.Sprintf("% x", encodeThunk(t, th)); got != c.bytes {
			t.Errorf("%v:\n got %s\nwant %s", c.kind, got, c.bytes)
		}
	}
}

func TestThunkText(t *testing.T) {
	for _, c := range thunkTests {
		th := baseThunk
		th.Kind = c.kind
		var lines []string
		for _, l := range disassemble(t, encodeThunk(t, th), th.Addr) {
			if l != "int3" {
				lines = append(lines, l)
			}
		}
		if got := strings.Join(lines, "\n"); got != c.text {
			t.Errorf("%v:\n%s\nwant\n%s", c.kind, got, c.text)
		}
	}
}

// A recorder that leads calls elsewhere finds them, where there are both.
func TestRecordsExit(t *testing.T) {
	for _, c := range thunkTests {
		th := baseThunk
		th.Kind = c.kind
		b := encodeThunk(t, th)
		if got := RecordsExit(b); got != (c.kind == arch.ThunkGraph || c.kind == arch.ThunkMcount) {
			t.Errorf("%v: %v", c.kind, got)
		}
		if !RecordsExit(b) {
			continue
		}
		for _, at := range [][2]int{{ThunkEnterCall, ThunkEnterEnd}, {ThunkExitCall, ThunkExitEnd}} {
			if b[at[0]] != 0xe8 || at[1]-at[0] != 5 {
				t.Errorf("%v: no call at %d to %d", c.kind, at[0], at[1])
			}
		}
	}
}

func TestThunkRefuses(t *testing.T) {
	const far = 1 << 32
	for _, c := range []struct {
		name   string
		change func(*Thunk)
		reach  bool // a *RangeError
		text   string
	}{
		{"switch too far", func(t *Thunk) { t.Switch = t.Addr + far }, true, "thunk 4660: testb at 0x405040 cannot reach"},
		{"enter too far", func(t *Thunk) { t.Enter = t.Addr + far }, true, "thunk 4660: call at 0x40504d cannot reach"},
		{"exit too far", func(t *Thunk) { t.Exit = t.Addr + far }, true, "thunk 4660: call at 0x40505a cannot reach"},
		{"body too far", func(t *Thunk) { t.Body = t.Addr - far }, true, "thunk 4660: je at 0x405047 cannot reach"},
		{"not aligned", func(t *Thunk) { t.Addr += 16 }, false, "not aligned"},
		{"no id", func(t *Thunk) { t.ID = 0 }, false, "id 0x0"},
		{"reserved id", func(t *Thunk) { t.ID = arch.MaxThunkID + 1 }, false, "id 0x7ffe0000"},
		{"no kind", func(t *Thunk) { t.Kind = 99 }, false, "kind 99"},
	} {
		th := baseThunk
		c.change(&th)
		err := th.Encode(make([]byte, arch.ThunkSize))
		var re *RangeError
		if err == nil || !strings.Contains(err.Error(), c.text) || errors.As(err, &re) != c.reach {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if err := baseThunk.Encode(make([]byte, ThunkSize(arch.ThunkGraph)-1)); err == nil {
		t.Error("too few bytes: no error")
	}
	// What a kind does not use may be anywhere.
	th := baseThunk
	th.Kind, th.Exit = arch.ThunkFunc, th.Addr+far
	if err := th.Encode(make([]byte, arch.ThunkSize)); err != nil {
		t.Error(err)
	}
	// The farthest that can be reached.
	th = baseThunk
	th.Kind, th.Body = arch.ThunkFunc, th.Addr+13+1<<31-1
	if err := th.Encode(make([]byte, arch.ThunkSize)); err != nil {
		t.Error(err)
	}
	th.Body++
	if err := th.Encode(make([]byte, arch.ThunkSize)); err == nil {
		t.Error("out of reach by one byte: no error")
	}
}

func BenchmarkThunkEncode(b *testing.B) {
	var buf [arch.ThunkSize]byte
	b.SetBytes(arch.ThunkSize)
	for b.Loop() {
		if err := baseThunk.Encode(buf[:]); err != nil {
			b.Fatal(err)
		}
	}
}
