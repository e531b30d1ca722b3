package amd64

import (
	"testing"

	"github.com/fentry-dev/fentry/arch"
)

// TestPlaceEvent decodes the code of an event: what its instructions refer to, and that none of them touches the stack.
func TestPlaceEvent(t *testing.T) {
	e := arch.PlaceEvent{ID: 7 | 1<<31, Switch: 0x402000, Routine: 0x403000}
	const at = 0x400000
	b, err := AppendPlaceEvent(nil, at, &e)
	if err != nil || len(b) != PlaceEventLen {
		t.Fatalf("%d bytes, %v", len(b), err)
	}
	want := []uint64{e.Switch, at + PlaceEventLen, at + PlaceEventLen, 0, e.Routine}
	for o := 0; o < len(b); {
		in, err := Decode(b[o:])
		if err != nil || len(want) == 0 {
			t.Fatalf("offset %d: %v", o, err)
		}
		if in.PCRel == PCRelNone != (want[0] == 0) || want[0] != 0 && in.Target(at+uint64(o)) != want[0] {
			t.Errorf("offset %d refers to %#x, want %#x", o, in.Target(at+uint64(o)), want[0])
		}
		if in.Op == Push || in.Op == Pop || in.Op == Call {
			t.Errorf("offset %d: %v", o, in.Op)
		}
		want, o = want[1:], o+in.Len
	}
	if id := uint32(b[18]) | uint32(b[19])<<8 | uint32(b[20])<<16 | uint32(b[21])<<24; id != e.ID {
		t.Errorf("id %#x, want %#x", id, e.ID)
	}
	e.Routine = 1 << 40
	if _, err := AppendPlaceEvent(nil, at, &e); err == nil {
		t.Error("no error for a routine that is out of reach")
	}
}
