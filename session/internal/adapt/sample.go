//go:build linux

package adapt

import (
	"encoding/binary"

	"github.com/fentry-dev/fentry/internal/format"
)

var le = binary.LittleEndian

// A tally is what the chunks of a window that were read say of a function.
type tally struct {
	calls uint64
	self  uint64 // ticks from one event to the next while it was the innermost call that began in the chunk
}

// tallies are by id. Programs number their functions densely, from 1, so a table in parts is small and needs no search
// an event; ids above all that a trace can have in earnest are not looked at.
type tallies struct {
	parts [maxID / partIDs]*[partIDs]tally
	seen  []uint32 // ids with calls
	words uint64   // events that were read
}

const (
	partIDs = 1 << 12
	maxID   = 1 << 24
)

// at returns the tally of an id; nil: it has none.
func (t *tallies) at(id uint32) *tally {
	if id >= maxID {
		return nil
	}
	p := &t.parts[id/partIDs]
	if *p == nil {
		*p = new([partIDs]tally)
	}
	return &(*p)[id%partIDs]
}

// reset forgets all.
func (t *tallies) reset() {
	for _, id := range t.seen {
		*t.at(id) = tally{}
	}
	t.seen, t.words = t.seen[:0], 0
}

// maxDepth is how many nested calls are followed.
const maxDepth = 256

// read adds what the words of a chunk say that began at a counter. Which calls were open then is not known, so the time
// until the first calls in it end is nobody's. The memory can change meanwhile.
func (t *tallies) read(begin uint64, words []byte) {
	var open [maxDepth]*tally
	depth, last := 0, uint32(begin)
	for ; len(words) >= 8; words = words[8:] {
		w := le.Uint64(words)
		id, now := uint32(w>>32), uint32(w)
		if w == 0 {
			continue
		}
		if r, ok := format.ParseRecord(id); ok {
			words = words[min(8*r.Words, len(words)-8):]
			depth, last = 0, now // on another stack, or after a loss
			continue
		}
		var inner *tally
		if depth > 0 && depth <= maxDepth {
			inner = open[depth-1]
		}
		if d := now - last; inner != nil && d < 1<<31 {
			inner.self += uint64(d)
		}
		last = now
		t.words++
		if id&format.IDExit != 0 {
			depth = max(depth-1, 0)
			continue
		}
		f := t.at(id)
		if f == nil {
			continue
		}
		if f.calls == 0 {
			t.seen = append(t.seen, id)
		}
		f.calls++
		if depth < maxDepth {
			open[depth] = f
		}
		depth++
	}
}

// lastTime is the low half of the counter at the last event of a chunk. ok is false if the chunk does not end with one.
func lastTime(words []byte) (t uint32, ok bool) {
	for n := len(words) &^ 7; n >= 8; n -= 8 {
		if w := le.Uint64(words[n-8:]); w != 0 {
			return uint32(w), true
		}
	}
	return 0, false
}
