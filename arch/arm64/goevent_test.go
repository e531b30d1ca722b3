package arm64

import (
	"encoding/binary"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/arch"
)

// TestGoEventLayout decodes the code of an event: the offsets that others rely on are those of instructions, and what has
// targets or offsets has the right ones.
func TestGoEventLayout(t *testing.T) {
	e := arch.GoEvent{ID: 0x12345 | 1<<31, Switch: 0x402007, GoID: 0x98, Thread: 0x80, Rare: 0x401000, Slow: 0x403000, Deep: true}
	const at = 0x400000
	b, err := AppendGoEvent(nil, at, &e)
	if err != nil {
		t.Fatal(err)
	}
	if len(b) != GoShape.Len {
		t.Fatalf("%d bytes, want %d", len(b), GoShape.Len)
	}
	word := func(o int) uint32 { return binary.LittleEndian.Uint32(b[o:]) }
	inst := func(o int) Inst { return DecodeWord(word(o)) }
	rare, begin := 0, 0
	for o := 0; o < len(b); o += InstLen {
		in := inst(o)
		if in.PCRel != PCRelBranch {
			continue
		}
		switch in.Target(at + uint64(o)) {
		case e.Rare:
			rare++
		case at + uint64(GoShape.Begin):
			begin++
		case at + uint64(GoShape.Len):
			if o >= GoShape.Begin {
				t.Errorf("offset %d goes to the end", o)
			}
		default:
			t.Errorf("offset %d goes to %#x", o, in.Target(at+uint64(o)))
		}
	}
	if rare != len(goRares) || begin != 2 {
		t.Errorf("%d branches to the rare part and %d to the beginning, want %d and 2", rare, begin, len(goRares))
	}
	if in := inst(GoShape.Taken - InstLen); in.Op != StoreEx {
		t.Errorf("the slot is reserved by %v", in.Op)
	}
	if in := inst(0); in.Op != Adrp || in.Target(at)+uint64(word(4)>>10&0xfff) != e.Switch {
		t.Errorf("the switch is at %#x and %#x", in.Target(at), word(4)>>10&0xfff)
	}
	for o, want := range map[int]uint32{12: 0x30, 16: e.Thread, 24: e.GoID, 28: 120, 56: 32} {
		if got := word(o) >> 10 & 0xfff * 8; got != want {
			t.Errorf("offset %d loads from %#x, want %#x", o, got, want)
		}
	}
	if got := word(68)>>5&0xffff | word(72)>>5&0xffff<<16; got != e.ID {
		t.Errorf("id %#x, want %#x", got, e.ID)
	}
	behind := e
	behind.TLS = 0x1230
	pointed, err := AppendGoEvent(nil, at, &behind)
	if err != nil || len(pointed) != len(b) {
		t.Fatalf("%d bytes, want %d: %v", len(pointed), len(b), err)
	}
	for o := 0; o < len(b); o += InstLen {
		want := word(o)
		switch o {
		case 12:
			want = 0xd53bd050 // mrs x16, tpidr_el0
		case 16:
			want = 0xf9491a10 // ldr x16, [x16, #0x1230]
		}
		if got := binary.LittleEndian.Uint32(pointed[o:]); got != want {
			t.Errorf("by the thread pointer: offset %d: %#x, want %#x", o, got, want)
		}
	}
	r, err := AppendGoRare(nil, at, &e)
	if err != nil {
		t.Fatal(err)
	}
	if len(r) != GoShape.Rare {
		t.Errorf("the rare part has %d bytes, want %d", len(r), GoShape.Rare)
	}
	rareInst := func(o int) uint64 {
		return DecodeWord(binary.LittleEndian.Uint32(r[o:])).Target(e.Rare + uint64(o))
	}
	if back, slow := rareInst(12), rareInst(16); back != at+uint64(GoShape.Len) || slow != e.Slow {
		t.Errorf("the rare part goes to %#x and back to %#x", slow, back)
	}
	if got := binary.LittleEndian.Uint32(r[4:]) >> 5 & 0xffff; got != (e.ID|arch.GoDeep)>>16 {
		t.Errorf("the rare part's id has the high half %#x", got)
	}
	e.Always = true
	if b, err = AppendGoEvent(nil, at, &e); err != nil {
		t.Fatal(err)
	}
	if in := inst(GoShape.Begin); in.Op != Jmp || in.Target(at+uint64(GoShape.Begin)) != e.Rare {
		t.Errorf("always: %v to %#x", in.Op, in.Target(at+uint64(GoShape.Begin)))
	}
}

// TestGoEventErrors: what cannot be encoded is an error, and nothing is appended.
func TestGoEventErrors(t *testing.T) {
	good := arch.GoEvent{ID: 1, Switch: 0x402000, GoID: 0x98, Thread: 0x80, Rare: 0x401000, Slow: 0x403000}
	for want, change := range map[string]func(*arch.GoEvent){
		"runtime.m's word":   func(e *arch.GoEvent) { e.Thread = 0x81 },
		"thread-local word":  func(e *arch.GoEvent) { e.TLS = 0x8000 },
		"runtime.g's number": func(e *arch.GoEvent) { e.GoID = 0x8000 },
		"branch from":        func(e *arch.GoEvent) { e.Rare += 1 << 20 },
		"adrp":               func(e *arch.GoEvent) { e.Switch += 1 << 33 },
	} {
		e := good
		change(&e)
		b, err := AppendGoEvent(nil, 0x400000, &e)
		if err == nil || !strings.Contains(err.Error(), want) || len(b) != 0 {
			t.Errorf("%s: %d bytes, %v", want, len(b), err)
		}
	}
	for want, change := range map[string]func(*arch.GoEvent){
		"cannot reach": func(e *arch.GoEvent) { e.Slow += 1 << 28 },
		"address":      func(e *arch.GoEvent) { e.Rare += 1 << 21 },
	} {
		e := good
		change(&e)
		b, err := AppendGoRare(nil, 0x400000, &e)
		if err == nil || !strings.Contains(err.Error(), want) || len(b) != 0 {
			t.Errorf("%s: %d bytes, %v", want, len(b), err)
		}
	}
}
