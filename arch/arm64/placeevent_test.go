package arm64

import (
	"encoding/binary"
	"testing"

	"github.com/fentry-dev/fentry/arch"
)

// TestPlaceEvent decodes the code of an event: what its instructions refer to.
func TestPlaceEvent(t *testing.T) {
	e := arch.PlaceEvent{ID: 0x12345 | 1<<31, Switch: 0x402fff, Routine: 0x403000}
	const at, done = 0x400000, 0x400000 + PlaceEventLen
	b, err := AppendPlaceEvent(nil, at, &e)
	if err != nil || len(b) != PlaceEventLen {
		t.Fatalf("%d bytes, %v", len(b), err)
	}
	for i, want := range []uint64{e.Switch &^ 0xfff, 0, done, 0, 0, done, e.Routine} {
		in := DecodeWord(binary.LittleEndian.Uint32(b[i*InstLen:]))
		if pc := uint64(at + i*InstLen); want != 0 && in.Target(pc) != want {
			t.Errorf("word %d refers to %#x, want %#x", i, in.Target(pc), want)
		}
	}
	word := func(i int) uint32 { return binary.LittleEndian.Uint32(b[i*InstLen:]) }
	if id := word(3)>>5&0xffff | word(4)>>5&0xffff<<16; id != e.ID {
		t.Errorf("id %#x, want %#x", id, e.ID)
	}
	if off := word(1) >> 10 & 0xfff; uint64(off) != e.Switch&0xfff {
		t.Errorf("switch at %#x of its page, want %#x", off, e.Switch&0xfff)
	}
	e.Routine = 1 << 40
	if _, err := AppendPlaceEvent(nil, at, &e); err == nil {
		t.Error("no error for a routine that is out of reach")
	}
}
