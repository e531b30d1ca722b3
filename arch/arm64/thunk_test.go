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
	return Thunk{Addr: 0x500000, Back: 0x580010, Switch: 0x612344, Enter: 0x4ff000, Exit: 0x4ff100, Body: 0x401008, ID: 0x12345, Kind: k, Frame: 0x12340}
}

func TestThunk(t *testing.T) {
	const (
		start  = "adrp x16, 0x612000; ldrb w16, [x16, #836]; "
		id     = "mov w17, #0x2345 // #9029; movk w17, #0x1, lsl #16; "
		exit   = "mov x17, #0x80010000 // #2147549184; movk x17, #0x2345; b 0x4ff100; "
		nobody = "brk #0x0; "
	)
	for _, tt := range []struct {
		kind arch.ThunkKind
		text string
		back string
	}{
		{arch.ThunkGraph, start + "tbz w16, #0, 0x500018; mov x16, x30; bl 0x4ff000; b 0x580010; b 0x401008; " + nobody, "bl 0x401008; " + exit},
		{arch.ThunkCount, start + "tbz w16, #0, 0x50001c; " + id + "mov x16, x30; bl 0x4ff000; b 0x401008; ", ""},
		{arch.ThunkFunc, start + "tbz w16, #0, 0x50001c; " + id + "mov x16, x30; bl 0x4ff000; b 0x401008; ", ""},
		{arch.ThunkMcount, start + "tbz w16, #0, 0x50001c; adr x17, 0x50000c; add x16, x29, #0x340; add x16, x16, #0x12, lsl #12; b 0x4ff000; ret; ", nobody + exit},
		{arch.ThunkMcountFunc, start + "tbz w16, #0, 0x50001c; " + id + "b 0x4ff000; " + strings.Repeat(nobody, 1) + "ret; ", ""},
		{arch.ThunkMcountCount, start + "tbz w16, #0, 0x50001c; " + id + "b 0x4ff000; " + strings.Repeat(nobody, 1) + "ret; ", ""},
	} {
		th := someThunk(tt.kind)
		b := bytes.Repeat([]byte{0xaa}, FrontSize+1)
		if err := th.Encode(b); err != nil {
			t.Fatalf("%v: %v", tt.kind, err)
		}
		if b[FrontSize] != 0xaa {
			t.Errorf("%v: wrote behind the front", tt.kind)
		}
		if got := disassemble(t, b[:FrontSize], th.Addr) + "; "; got != tt.text {
			t.Errorf("%v:\n got %s\nwant %s", tt.kind, got, tt.text)
		}
		b = bytes.Repeat([]byte{0xaa}, BackSize+1)
		if err := th.EncodeBack(b); tt.back == "" {
			if err == nil {
				t.Errorf("%v has a back", tt.kind)
			}
			continue
		} else if err != nil {
			t.Fatalf("%v: %v", tt.kind, err)
		}
		if b[BackSize] != 0xaa {
			t.Errorf("%v: wrote behind the back", tt.kind)
		}
		if got := disassemble(t, b[:BackSize], th.Back) + "; "; got != tt.back {
			t.Errorf("%v:\n got %s\nwant %s", tt.kind, got, tt.back)
		}
	}
}

func TestThunkErrors(t *testing.T) {
	for _, tt := range []struct {
		text   string
		change func(*Thunk)
		kinds  []arch.ThunkKind
	}{
		{"not aligned", func(th *Thunk) { th.Addr += 16 }, nil},
		{"not aligned", func(th *Thunk) { th.Back += 8 }, []arch.ThunkKind{arch.ThunkGraph, arch.ThunkMcount}},
		{"id 0x0", func(th *Thunk) { th.ID = 0 }, nil},
		{"id 0x7ffe0000", func(th *Thunk) { th.ID = arch.MaxThunkID + 1 }, nil},
		{"unknown kind", func(th *Thunk) { th.Kind = arch.ThunkKinds }, nil},
		{"frame of 0x0", func(th *Thunk) { th.Frame = 0 }, []arch.ThunkKind{arch.ThunkMcount}},
		{"frame of 0x18", func(th *Thunk) { th.Frame = 24 }, []arch.ThunkKind{arch.ThunkMcount}},
		{"frame of 0x1000000", func(th *Thunk) { th.Frame = MaxThunkFrame }, []arch.ThunkKind{arch.ThunkMcount}},
		{"bl at 0x500010 cannot reach 0x8500010", func(th *Thunk) { th.Enter = th.Addr + 16 + 1<<27 }, []arch.ThunkKind{arch.ThunkGraph}},
		{"bl at 0x500018 cannot reach 0x8500018", func(th *Thunk) { th.Enter = th.Addr + 24 + 1<<27 }, []arch.ThunkKind{arch.ThunkFunc, arch.ThunkCount}},
		{"b at 0x500014 cannot reach", func(th *Thunk) { th.Back = 1 << 40 }, []arch.ThunkKind{arch.ThunkGraph}},
		{"cannot reach", func(th *Thunk) { th.Enter = 1 << 40 }, nil},
		{"adrp at 0x500000 cannot reach", func(th *Thunk) { th.Switch = 1 << 40 }, nil},
		{"b at 0x500018 cannot reach", func(th *Thunk) { th.Body = 1 << 40 }, []arch.ThunkKind{arch.ThunkGraph}},
		{"b at 0x50001c cannot reach", func(th *Thunk) { th.Body = 1 << 40 }, []arch.ThunkKind{arch.ThunkFunc, arch.ThunkCount}},
		{"b at 0x58001c cannot reach", func(th *Thunk) { th.Exit = 1 << 40 }, []arch.ThunkKind{arch.ThunkGraph, arch.ThunkMcount}},
	} {
		if tt.kinds == nil {
			tt.kinds = []arch.ThunkKind{arch.ThunkGraph, arch.ThunkFunc, arch.ThunkMcount, arch.ThunkMcountFunc, arch.ThunkCount, arch.ThunkMcountCount}
		}
		for _, k := range tt.kinds {
			th := someThunk(k)
			tt.change(&th)
			err, want := th.Encode(make([]byte, FrontSize)), tt.text
			if err == nil && HasBack(k) {
				err = th.EncodeBack(make([]byte, BackSize))
			}
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
	if err := th.Encode(make([]byte, FrontSize-1)); err == nil {
		t.Error("31 bytes: no error")
	}
	if err := th.EncodeBack(make([]byte, BackSize-1)); err == nil {
		t.Error("a back of 15 bytes: no error")
	}
}

// What the runtime and the unwind rules rely on.
func TestThunkOffsets(t *testing.T) {
	word := func(b []byte, at int) uint32 { return binary.LittleEndian.Uint32(b[at:]) }
	for _, k := range []arch.ThunkKind{arch.ThunkGraph, arch.ThunkMcount, arch.ThunkFunc} {
		for _, id := range []uint32{1, 0xffff, 0x10000, arch.MaxThunkID} {
			th := someThunk(k)
			th.ID = id
			b, back := make([]byte, FrontSize), make([]byte, BackSize)
			if err := th.Encode(b); err != nil {
				t.Fatal(err)
			}
			if HasBack(k) {
				if err := th.EncodeBack(back); err != nil {
					t.Fatal(err)
				}
				if word(back, ThunkRet)&backHighMask != backHigh || word(back, ThunkRet+4)&backLowMask != backLow {
					t.Errorf("%v, id %#x: % x where the body returns to", k, id, back[ThunkRet:])
				}
			}
			switch k {
			case arch.ThunkGraph:
				call, body := DecodeWord(word(b, ThunkCallEnd-4)), DecodeWord(word(back, ThunkRet-4))
				if call.Op != Call || call.Target(th.Addr+ThunkCallEnd-4) != th.Enter || body.Op != Call || body.Target(th.Back+ThunkRet-4) != th.Body {
					t.Errorf("calls at other places: % x, % x", b, back)
				}
				if skip := DecodeWord(word(b, ThunkCallEnd+ThunkSkip)); skip.Op != Jmp || skip.Target(th.Addr+ThunkBypass) != th.Body {
					t.Errorf("the way round goes to %#x", skip.Target(th.Addr+ThunkBypass))
				}
				fallthrough
			case arch.ThunkFunc: // what unwinders know a call of enter by
				end := 4
				for DecodeWord(word(b, end-4)).Op != Call {
					end += 4
				}
				if word(b, end-8) != movReg(16, 30) || end&16 == 0 {
					t.Errorf("%v: % x: enter returns to %d", k, b, end)
				}
			}
		}
	}
}

// A front has room for a displaced instruction where it would go on to the body.
func TestThunkDisplaces(t *testing.T) {
	elsewhere := someThunk(arch.ThunkGraph)
	th := elsewhere
	th.Body = th.Addr + ThunkBypass
	a, b, back := make([]byte, FrontSize), make([]byte, FrontSize), make([]byte, BackSize)
	for _, err := range []error{elsewhere.Encode(a), th.Encode(b), th.EncodeBack(back)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(a[:ThunkBypass], b[:ThunkBypass]) || len(b)-ThunkBypass != DisplacedRoom {
		t.Errorf("% x, without room % x", b, a)
	}
	for at := ThunkBypass; at < FrontSize; at += InstLen {
		if w := binary.LittleEndian.Uint32(b[at:]); DecodeWord(w).Op != Brk {
			t.Errorf("%08x at %d", w, at)
		}
	}
	if body := DecodeWord(binary.LittleEndian.Uint32(back)); body.Op != Call || body.Target(th.Back) != th.Body {
		t.Errorf("the back calls %#x", body.Target(th.Back))
	}
	if f := ThunkFrames(0x700000, []Thunk{th}, AnyShadow); len(f.FDEs) != 1 || f.FDEs[0].PC != th.Back {
		t.Errorf("entries %+v", f.FDEs)
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
