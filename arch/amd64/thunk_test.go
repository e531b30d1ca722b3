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
		"f6 05 b9 4f 00 00 01 74 26 68 34 12 00 00 e8 ad ef ff ff 48 8d 64 24 08 0f 1f 00 e8 a5 bf ff ff " +
			"48 8d 64 24 f8 68 34 12 00 80 e9 91 f0 ff ff e9 91 bf ff ff cc cc cc cc cc cc cc cc cc cc cc cc",
		`testb $0x1,0x4fb9(%rip) # 0x40a000
je 0x40506f
push $0x1234
call 0x404000
lea 0x8(%rsp),%rsp
nopl (%rax)
call 0x401005
lea -0x8(%rsp),%rsp
push $0xffffffff80001234
jmp 0x404100
jmp 0x401005`},
	{arch.ThunkFunc,
		"f6 05 b9 4f 00 00 01 74 0a 68 34 12 00 00 e8 ad ef ff ff e9 ad bf ff ff" + strings.Repeat(" cc", 40),
		`testb $0x1,0x4fb9(%rip) # 0x40a000
je 0x405053
push $0x1234
call 0x404000
jmp 0x401005`},
	{arch.ThunkMcount,
		"f6 05 b9 4f 00 00 01 74 26 68 34 12 00 00 e8 ad ef ff ff 0f 1f 84 00 00 00 00 00 e8 14 00 00 00 " +
			"48 8d 64 24 f8 68 34 12 00 80 e9 91 f0 ff ff e9 91 bf ff ff 48 8d 64 24 08 eb f4 cc cc cc cc cc",
		`testb $0x1,0x4fb9(%rip) # 0x40a000
je 0x40506f
push $0x1234
call 0x404000
nopl 0x0(%rax,%rax,1)
call 0x405074
lea -0x8(%rsp),%rsp
push $0xffffffff80001234
jmp 0x404100
jmp 0x401005
lea 0x8(%rsp),%rsp
jmp 0x40506f`},
	{arch.ThunkCount,
		"50 80 3d b8 4f 00 00 01 72 22 77 26 31 c0 65 48 8b 00 64 48 03 04 25 00 00 00 00 48 ff c0 75 12 " +
			"65 48 8b 40 48 48 ff 80 a0 91 00 00 58 e9 93 bf ff ff 68 34 12 00 00 e8 84 ef ff ff eb ee cc cc",
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
push $0x1234
call 0x404000
jmp 0x40506c`},
	{arch.ThunkMcountFunc,
		"f6 05 b9 4f 00 00 01 74 0a 68 34 12 00 00 e8 ad ef ff ff e9 ad bf ff ff" + strings.Repeat(" cc", 40),
		`testb $0x1,0x4fb9(%rip) # 0x40a000
je 0x405053
push $0x1234
call 0x404000
jmp 0x401005`},
}

func encodeThunk(t *testing.T, th Thunk) []byte {
	t.Helper()
	b := bytes.Repeat([]byte{0xaa}, arch.ThunkSize+8)
	if err := th.Encode(b); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(b[arch.ThunkSize:], bytes.Repeat([]byte{0xaa}, 8)) {
		t.Error("bytes behind the thunk are written")
	}
	return b[:arch.ThunkSize]
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

// The offsets of a thunk's parts are in the runtime's sources too; what the code
// has there must be what both think.
func TestThunkOffsets(t *testing.T) {
	g := baseThunk
	b := encodeThunk(t, g)
	if b[thunkCallEnd-5] != 0xe8 || b[thunkRet-5] != 0xe8 || b[thunkBypass] != 0xe9 || b[thunkRetJump] != 0xe9 {
		t.Errorf("calls and jumps are elsewhere: % x", b)
	}
	if id := le32(b[thunkRet+6:]); id != g.ID|1<<31 {
		t.Errorf("id at the return: %#x", id)
	}
	g.Kind = arch.ThunkMcount
	if b = encodeThunk(t, g); b[thunkCallEnd-5] != 0xe8 || b[thunkRet-5] != 0xe8 || b[thunkBypass] != 0xe9 || b[thunkRetJump] != 0xe9 {
		t.Errorf("behind a prologue, calls and jumps are elsewhere: % x", b)
	}
}

func le32(b []byte) uint32 {
	return uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 | uint32(b[3])<<24
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
		{"enter too far", func(t *Thunk) { t.Enter = t.Addr + far }, true, "thunk 4660: call at 0x40504e cannot reach"},
		{"exit too far", func(t *Thunk) { t.Exit = t.Addr + far }, true, "thunk 4660: jmp at 0x40506a cannot reach"},
		{"body too far", func(t *Thunk) { t.Body = t.Addr - far }, true, "thunk 4660: call at 0x40505b cannot reach"},
		{"not aligned", func(t *Thunk) { t.Addr += 32 }, false, "not aligned"},
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
	if err := baseThunk.Encode(make([]byte, arch.ThunkSize-1)); err == nil {
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
	th.Kind, th.Body = arch.ThunkFunc, th.Addr+24+1<<31-1
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
