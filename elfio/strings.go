package elfio

import "strings"

// stringTable looks names up in a string table. Names are substrings of one copy of the table, so a
// table that a hostile file uses a million times over costs its own size once.
type stringTable struct {
	s string
	// next[i] is the offset of the first NUL at or after block i, len(s) where there is none. It is
	// built at the first name longer than a block and bounds the time of every later lookup.
	next []int
}

const stringBlock = 4096

func newStringTable(b []byte) *stringTable { return &stringTable{s: string(b)} }

// at returns the NUL-terminated string at off; ok is false when off or the end is outside the table.
func (t *stringTable) at(off uint64) (name string, ok bool) {
	if off >= uint64(len(t.s)) {
		// gABI: an index of 0 in an empty table is no name.
		return "", off == 0
	}
	start := int(off)
	end := min(start+stringBlock, len(t.s))
	if n := strings.IndexByte(t.s[start:end], 0); n >= 0 {
		return t.s[start : start+n], true
	}
	if t.next == nil {
		t.index()
	}
	block := start/stringBlock + 1 // the rest of the own block has just been searched
	if block >= len(t.next) || t.next[block] >= len(t.s) {
		return "", false
	}
	return t.s[start:t.next[block]], true
}

func (t *stringTable) index() {
	n := (len(t.s) + stringBlock - 1) / stringBlock
	t.next = make([]int, n)
	nul := len(t.s)
	for i := n - 1; i >= 0; i-- {
		start := i * stringBlock
		if k := strings.IndexByte(t.s[start:min(start+stringBlock, len(t.s))], 0); k >= 0 {
			nul = start + k
		}
		t.next[i] = nul
	}
}
