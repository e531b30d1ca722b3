package amd64

import (
	"encoding/binary"

	"github.com/fentry-dev/fentry/arch"
)

// Events of functions whose return addresses stay where they are, such as OCaml's.
//
// r10, r11 and the flags are free at both ends, and nothing may be put on the stack. So the routine is told in these
// registers where to go back to, and which event it is (stub/src/amd64/place.S).

// PlaceEventLen is the length of the code that [AppendPlaceEvent] appends.
const PlaceEventLen = 27

// placeEvent is that code, with zeroes for what differs between events.
var placeEvent = [PlaceEventLen]byte{
	0xf6, 0x05, 0, 0, 0, 0, 1, // testb $1, switch(%rip)
	0x74, PlaceEventLen - 9, // je done
	0x4c, 0x8d, 0x15, PlaceEventLen - 16, 0, 0, 0, // lea done(%rip), %r10
	0x41, 0xbb, 0, 0, 0, 0, // mov $id, %r11d
	0xe9, 0, 0, 0, 0, // jmp routine
} // done

// AppendPlaceEvent appends the code of an event, for address at.
func AppendPlaceEvent(dst []byte, at uint64, e *arch.PlaceEvent) ([]byte, error) {
	b := placeEvent
	p := patcher{b: b[:], at: at}
	p.reach("testb", 2, 7, e.Switch)
	p.reach("jmp", 23, PlaceEventLen, e.Routine)
	binary.LittleEndian.PutUint32(b[18:], e.ID)
	return append(dst, b[:]...), p.err
}
