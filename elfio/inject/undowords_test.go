package inject

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/fentry-dev/fentry/elfio"
)

// undoCase is a file with so many entries that lead back to one or another place, and edits of their first words and of
// what is between them.
func undoCase(entries int) (orig []byte, edits []elfio.RawEdit) {
	const size = 24
	r := rand.New(rand.NewPCG(1, 2))
	orig = make([]byte, (entries+2)*size)
	for i := range orig {
		orig[i] = byte(r.Uint32())
	}
	for i := range entries {
		off := uint64((i + 1) * size)
		to := uint64(i / 100 % 2 * 8) // one of two places, a hundred times each
		binary.LittleEndian.PutUint32(orig[off:], uint32(off-to))
		edits = append(edits, elfio.RawEdit{Off: off, New: make([]byte, 4+i%3)})
		if i%7 == 0 {
			edits = append(edits, elfio.RawEdit{Off: off + 12, New: make([]byte, i%5)})
		}
	}
	return orig, edits
}

// What is undone is what was there, whether a record has all of it or leaves words out.
func TestUndoRecord(t *testing.T) {
	for _, entries := range []int{0, 1, 2, 3, 100, 1000} {
		orig, edits := undoCase(entries)
		rec := encodeUndo(orig, edits, nil)
		u, err := decodeUndo(rec, 0, uint64(len(orig)))
		if err != nil {
			t.Fatalf("%d entries: %v", entries, err)
		}
		var old []byte
		for i, e := range edits {
			n := uint64(len(e.New))
			if u.spans[i] != (span{e.Off, n}) {
				t.Fatalf("%d entries: range %d is %+v, want %#x+%#x", entries, i, u.spans[i], e.Off, n)
			}
			old = append(old, orig[e.Off:e.Off+n]...)
		}
		if len(u.spans) != len(edits) || u.size != uint64(len(orig)) || !bytes.Equal(u.old, old) {
			t.Errorf("%d entries: %d ranges for %d edits, or other bytes", entries, len(u.spans), len(edits))
		}
	}
}

// Words that lead where the last one does take no room.
func TestUndoRecordSize(t *testing.T) {
	const entries = 1000
	orig, edits := undoCase(entries)
	words := encodeUndo(orig, edits, nil)
	for i := range entries {
		orig[(i+1)*24+1] ^= byte(i*37 + i>>3)
	}
	if others := encodeUndo(orig, edits, nil); len(words)+entries > len(others) {
		t.Errorf("%d bytes with %d words that lead to the same places, %d with others", len(words), entries, len(others))
	}
}

// A record whose first word is left out is refused.
func TestUndoRecordNoWord(t *testing.T) {
	spans := []span{{0, 3}, {8, 4}}
	if b, ok := withWords([]byte("abc"), spans, []bool{false, true}); ok {
		t.Errorf("%x", b)
	}
}
