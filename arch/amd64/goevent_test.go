package amd64

import (
	"testing"

	"github.com/fentry-dev/fentry/arch"
)

// TestGoEventLayout decodes the code of an event: the offsets that others rely on are those of instructions, and the
// displacements lead where they are to.
func TestGoEventLayout(t *testing.T) {
	e := arch.GoEvent{ID: 7 | 1<<31, Switch: 0x402000, IDBase: 0x402008, GoID: 0x98, Rare: 0x401000, Slow: 0x403000}
	const at = 0x400000
	b, err := AppendGoEvent(nil, at, &e)
	if err != nil {
		t.Fatal(err)
	}
	starts, rare := map[int]Inst{}, 0
	for o := 0; o < len(b); {
		in, err := Decode(b[o:])
		if err != nil {
			t.Fatalf("offset %d: %v", o, err)
		}
		starts[o] = in
		if in.Op == Jcc && in.Target(at+uint64(o)) == e.Rare {
			rare++
		}
		o += in.Len
	}
	if rare != len(goRares) {
		t.Errorf("%d jumps to the rare part, want %d", rare, len(goRares))
	}
	for o, want := range map[int]uint64{0: e.Switch, 7: at + goEventLen, goEventTaken: at + goEventBegin, 135: e.IDBase} {
		if got := starts[o].Target(at + uint64(o)); got != want {
			t.Errorf("offset %d refers to %#x, want %#x", o, got, want)
		}
	}
	if in := starts[117]; in.Opcode != 0xb1 || 117+in.Len != goEventTaken {
		t.Errorf("the slot is not reserved by the instruction before %d: %+v", goEventTaken, in)
	}
	if in := starts[149]; in.Opcode != 0x89 || 149+in.Len != goEventStored {
		t.Errorf("the event is not stored by the instruction before %d: %+v", goEventStored, in)
	}
	if _, ok := starts[goEventBegin]; !ok {
		t.Errorf("no instruction begins at %d", goEventBegin)
	}
	r, err := AppendGoRare(nil, at, &e)
	if err != nil {
		t.Fatal(err)
	}
	in, err := Decode(r[19:])
	if err != nil || in.Target(e.Rare+19) != at+goEventLen {
		t.Errorf("the rare part goes back to %#x (%v), want %#x", in.Target(e.Rare+19), err, uint64(at+goEventLen))
	}
	if in, err = Decode(r[26:]); err != nil || in.Target(e.Rare+26) != e.Slow {
		t.Errorf("the rare part goes to %#x (%v), want %#x", in.Target(e.Rare+26), err, e.Slow)
	}
}
