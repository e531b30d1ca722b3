package arm64

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/arch"
)

func someThunk(k arch.ThunkKind) Thunk {
	return Thunk{Addr: 0x500000, Switch: 0x612344, Enter: 0x4ff000, Exit: 0x4ff100, Body: 0x401008, ID: 0x12345, Kind: k, Frame: 0x12340}
}

func TestThunk(t *testing.T) {
	const (
		start  = "adrp x16, 0x612000; ldrb w16, [x16, #836]; "
		id     = "mov w17, #0x2345 // #9029; movk w17, #0x1, lsl #16; "
		exit   = "mov w17, #0x2345 // #9029; movk w17, #0x8001, lsl #16; b 0x4ff100; brk #0xfe47; "
		nobody = "brk #0x0; "
	)
	for _, tt := range []struct {
		kind arch.ThunkKind
		text string
	}{
		{arch.ThunkGraph, start + "tbz w16, #0, 0x500030; " + id + "mov x16, x30; bl 0x4ff000; bl 0x401008; " + exit + "b 0x401008; " + strings.Repeat(nobody, 3)},
		{arch.ThunkCount, start + "tbz w16, #0, 0x500020; " + id + "mov x16, x30; bl 0x4ff000; mov x30, x16; b 0x401008; " + strings.Repeat(nobody, 7)},
		{arch.ThunkFunc, start + "tbz w16, #0, 0x500020; " + id + "mov x16, x30; bl 0x4ff000; mov x30, x16; b 0x401008; " + strings.Repeat(nobody, 7)},
		{arch.ThunkMcount, start + "tbz w16, #0, 0x500030; " + id + "add x16, x29, #0x340; add x16, x16, #0x12, lsl #12; b 0x4ff000; " + exit + "ret; " + strings.Repeat(nobody, 3)},
		{arch.ThunkMcountFunc, start + "tbz w16, #0, 0x500030; " + id + "b 0x4ff000; " + strings.Repeat(nobody, 6) + "ret; " + strings.Repeat(nobody, 3)},
	} {
		th := someThunk(tt.kind)
		b := bytes.Repeat([]byte{0xaa}, arch.ThunkSize+1)
		if err := th.Encode(b); err != nil {
			t.Fatalf("%v: %v", tt.kind, err)
		}
		if b[arch.ThunkSize] != 0xaa {
			t.Errorf("%v: wrote behind the thunk", tt.kind)
		}
		if got := disassemble(t, b[:arch.ThunkSize], th.Addr) + "; "; got != tt.text {
			t.Errorf("%v:\n got %s\nwant %s", tt.kind, got, tt.text)
		}
	}
}

func TestThunkErrors(t *testing.T) {
	for _, tt := range []struct {
		text   string
		change func(*Thunk)
		kinds  []arch.ThunkKind
	}{
		{"not aligned", func(th *Thunk) { th.Addr += 32 }, nil},
		{"id 0x0", func(th *Thunk) { th.ID = 0 }, nil},
		{"id 0x7ffe0000", func(th *Thunk) { th.ID = arch.MaxThunkID + 1 }, nil},
		{"unknown kind", func(th *Thunk) { th.Kind = arch.ThunkKinds }, nil},
		{"frame of 0x0", func(th *Thunk) { th.Frame = 0 }, []arch.ThunkKind{arch.ThunkMcount}},
		{"frame of 0x18", func(th *Thunk) { th.Frame = 24 }, []arch.ThunkKind{arch.ThunkMcount}},
		{"frame of 0x1000000", func(th *Thunk) { th.Frame = MaxThunkFrame }, []arch.ThunkKind{arch.ThunkMcount}},
		{"bl at 0x500018 cannot reach 0x8500019", func(th *Thunk) { th.Enter = th.Addr + 24 + 1<<27 }, []arch.ThunkKind{arch.ThunkGraph, arch.ThunkFunc, arch.ThunkCount}},
		{"cannot reach", func(th *Thunk) { th.Enter = 1 << 40 }, nil},
		{"adrp at 0x500000 cannot reach", func(th *Thunk) { th.Switch = 1 << 40 }, nil},
		{"bl at 0x50001c cannot reach", func(th *Thunk) { th.Body = 1 << 40 }, []arch.ThunkKind{arch.ThunkGraph}},
		{"b at 0x500020 cannot reach", func(th *Thunk) { th.Body = 1 << 40 }, []arch.ThunkKind{arch.ThunkFunc, arch.ThunkCount}},
		{"b at 0x500028 cannot reach", func(th *Thunk) { th.Exit = 1 << 40 }, []arch.ThunkKind{arch.ThunkGraph, arch.ThunkMcount}},
	} {
		if tt.kinds == nil {
			tt.kinds = []arch.ThunkKind{arch.ThunkGraph, arch.ThunkFunc, arch.ThunkMcount, arch.ThunkMcountFunc, arch.ThunkCount, arch.ThunkMcountCount}
		}
		for _, k := range tt.kinds {
			th := someThunk(k)
			tt.change(&th)
			err := th.Encode(make([]byte, arch.ThunkSize))
			want := strings.Replace(tt.text, "0x8500019", "0x8500018", 1)
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, %s: %v", k, want, err)
			}
			var e *RangeError
			if strings.Contains(want, "reach") && !errors.As(err, &e) {
				t.Errorf("%v, %s: %v is no RangeError", k, want, err)
			}
		}
	}
	th := someThunk(arch.ThunkGraph)
	if err := th.Encode(make([]byte, arch.ThunkSize-1)); err == nil {
		t.Error("63 bytes: no error")
	}
}

// What the runtime and the unwind rules rely on.
func TestThunkOffsets(t *testing.T) {
	for _, k := range []arch.ThunkKind{arch.ThunkGraph, arch.ThunkMcount} {
		th := someThunk(k)
		b := make([]byte, arch.ThunkSize)
		if err := th.Encode(b); err != nil {
			t.Fatal(err)
		}
		if got := binary.LittleEndian.Uint32(b[thunkMarkAt:]); got != thunkMark {
			t.Errorf("%v: %08x behind the exit part", k, got)
		}
		if k == arch.ThunkGraph {
			call := DecodeWord(binary.LittleEndian.Uint32(b[ThunkCallEnd-4:]))
			body := DecodeWord(binary.LittleEndian.Uint32(b[ThunkRet-4:]))
			if call.Op != Call || call.Target(th.Addr+ThunkCallEnd-4) != th.Enter || body.Op != Call || body.Target(th.Addr+ThunkRet-4) != th.Body {
				t.Errorf("calls at other places: % x", b)
			}
		}
		skip := DecodeWord(binary.LittleEndian.Uint32(b[ThunkCallEnd+ThunkSkip:]))
		if k == arch.ThunkGraph && (skip.Op != Jmp || skip.Target(th.Addr+ThunkBypass) != th.Body) {
			t.Errorf("the way round goes to %#x", skip.Target(th.Addr+ThunkBypass))
		}
	}
}

func TestShadow(t *testing.T) {
	for _, bits := range []int{48, 47, 42, 39} {
		s, err := ShadowFor(bits)
		if err != nil {
			t.Fatal(err)
		}
		top := uint64(1)<<bits - 0x10000
		for _, s := range []Shadow{s, AnyShadow} {
			sh := s.Of(top)
			if sh>>bits != 0 || sh == top || s.Of(sh) != top && s != AnyShadow || top^sh != 1<<s.Bit(top) {
				t.Errorf("%d bits: the shadow of %#x is %#x", bits, top, sh)
			}
		}
		if s.Of(top) != AnyShadow.Of(top) {
			t.Errorf("%d bits: %#x and %#x", bits, s.Of(top), AnyShadow.Of(top))
		}
	}
	if AnyShadow.Bit(1<<42) != 46 || AnyShadow.Bit(1<<42-1) != 37 {
		t.Error("the limit is not at 4 TiB")
	}
	if _, err := ShadowFor(52); err == nil {
		t.Error("52 bits: no error")
	}
}
