package arm64

import "github.com/fentry-dev/fentry/arch"

// Events of functions whose return addresses stay where they are, such as OCaml's.
//
// x16 and x17 are free at both ends, and nothing may be put on the stack. So the routine is told in these registers where to
// go back to, and which event it is (stub/src/arm64/place.S). It goes back by a branch that guarded pages would want a landing
// pad for.

// placeEvent is the code of an event, with zeroes for what differs between them.
var placeEvent = [...]uint32{
	0x90000010,                 // adrp x16, switch
	0x39400210,                 // ldrb w16, [x16, #:lo12:switch]
	tbz(16, placeEventWords-2), // tbz w16, #0, done
	0x52800011,                 // movz w17, #id
	0x72a00011,                 // movk w17, #id, lsl #16
	0x10000010 | 2<<5,          // adr x16, done
	0x14000000,                 // b routine
} // done

const placeEventWords = 7

// PlaceEventLen is the length of the code that [AppendPlaceEvent] appends.
const PlaceEventLen = placeEventWords * InstLen

// AppendPlaceEvent appends the code of an event, for address at.
func AppendPlaceEvent(dst []byte, at uint64, e *arch.PlaceEvent) ([]byte, error) {
	w := placeEvent
	p := goPatcher{w: w[:], at: at}
	p.page(0, e.Switch)
	w[1] |= uint32(e.Switch&pageMask) << 10
	w[3] |= e.ID & 0xffff << 5
	w[4] |= e.ID >> 16 << 5
	p.always(placeEventWords-1, e.Routine)
	return p.append(dst)
}
