package trace

import (
	"math/bits"
	"math/rand/v2"
)

// An edgeTable maps a node and a function called from it to the node of the
// call. It is asked for most calls of a trace, which Go's map is too slow for:
// open addressing, linear probing, at most half full.
type edgeTable struct {
	slots  []edge
	n      int
	shift  uint
	ka, kb uint64 // of the hash, odd; random, so that no file can make it slow
}

// An edge is a slot; to is 0 in a free one.
type edge struct {
	from int32
	to   int32 // + 1
	fn   FuncID
}

// hash is multiply-shift hashing: the slot to begin at.
func (t *edgeTable) hash(from int32, fn FuncID) uint64 {
	return ((uint64(uint32(from))<<32|uint64(fn.ID))*t.ka + uint64(fn.Image)*t.kb) >> t.shift
}

func (t *edgeTable) find(from int32, fn FuncID) (to int32, ok bool) {
	if len(t.slots) == 0 {
		return 0, false
	}
	mask := uint64(len(t.slots) - 1)
	for i := t.hash(from, fn); ; i = (i + 1) & mask {
		e := &t.slots[i]
		if e.to == 0 {
			return 0, false
		}
		if e.from == from && e.fn == fn {
			return e.to - 1, true
		}
	}
}

// add enters an edge that is not there.
func (t *edgeTable) add(from int32, fn FuncID, to int32) {
	if 2*(t.n+1) > len(t.slots) {
		old := t.slots
		t.slots = make([]edge, max(64, 2*len(old)))
		t.shift = uint(64 - bits.TrailingZeros(uint(len(t.slots))))
		t.ka, t.kb = rand.Uint64()|1, rand.Uint64()|1
		for _, e := range old {
			if e.to != 0 {
				t.put(e)
			}
		}
	}
	t.put(edge{from, to + 1, fn})
	t.n++
}

func (t *edgeTable) put(e edge) {
	mask := uint64(len(t.slots) - 1)
	i := t.hash(e.from, e.fn)
	for t.slots[i].to != 0 {
		i = (i + 1) & mask
	}
	t.slots[i] = e
}
