package inject

import (
	"slices"

	"github.com/fentry-dev/fentry/elfio/internal/raw"
)

// What follows an image in a file is collected as pieces and not copied: string tables and code of many megabytes go
// from where they are to the file.

// tail is what follows an image in a file: pieces one behind the other, which are not copied.
type tail struct {
	start uint64 // file offset of the first one
	size  uint64
	parts [][]byte
}

// at returns the file offset of the end.
func (t *tail) at() uint64 { return t.start + t.size }

// put appends b, which must not change any more.
func (t *tail) put(b []byte) {
	if len(b) > 0 {
		t.parts = append(t.parts, b)
		t.size += uint64(len(b))
	}
}

// padTo appends zeroes up to file offset off.
func (t *tail) padTo(off uint64) {
	if n := off - t.at(); n > 0 {
		t.put(make([]byte, n))
	}
}

// align pads to a multiple of a, a power of two, and returns the file offset there.
func (t *tail) align(a uint64) uint64 {
	off, _ := raw.AlignUp(t.at(), a)
	t.padTo(off)
	return off
}

// edited appends bytes [from, to) of a table of entries of a size, some of which change. Few changes leave the
// stretches between them where they are.
func (t *tail) edited(table []byte, from, to, size uint64, changes []entryUpdate) {
	const few = 64
	if len(changes) > few {
		b := slices.Clone(table[from:to])
		for _, u := range changes {
			if at := u.index * size; at >= from && at < to {
				copy(b[at-from:], u.entry)
			}
		}
		t.put(b)
		return
	}
	for _, u := range changes {
		if at := u.index * size; at >= from && at < to {
			t.put(table[from:at])
			t.put(u.entry)
			from = at + size
		}
	}
	t.put(table[from:to])
}
