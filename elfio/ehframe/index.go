package ehframe

import (
	"cmp"
	"slices"
	"sort"
)

// An Index finds the entry that describes an address.
type Index struct {
	t    *Table
	keys []indexKey
}

type indexKey struct {
	pc uint64
	i  int
}

// NewIndex returns an index of a table, for any number of goroutines.
func NewIndex(t *Table) *Index {
	x := &Index{t: t, keys: make([]indexKey, 0, t.Len())}
	for i := range t.Len() {
		if d := t.At(i); d.Size > 0 {
			x.keys = append(x.keys, indexKey{d.PC, i})
		}
	}
	byPC := func(a, b indexKey) int { return cmp.Or(cmp.Compare(a.pc, b.pc), cmp.Compare(a.i, b.i)) }
	if !slices.IsSortedFunc(x.keys, byPC) {
		slices.SortFunc(x.keys, byPC)
	}
	return x
}

// Find returns the entry that describes an address: of those that begin at or before it the last one, if it reaches
// that far.
func (x *Index) Find(pc uint64) (FDE, bool) {
	i := x.behind(pc)
	if i == 0 {
		return FDE{}, false
	}
	d := x.t.At(x.keys[i-1].i)
	return d, pc-d.PC < d.Size
}

// Begins reports whether an entry begins in [lo, hi).
func (x *Index) Begins(lo, hi uint64) bool {
	i := x.behind(lo)
	return i > 0 && x.keys[i-1].pc == lo || i < len(x.keys) && x.keys[i].pc < hi
}

// behind is the index of the first entry that begins behind an address.
func (x *Index) behind(pc uint64) int {
	return sort.Search(len(x.keys), func(i int) bool { return x.keys[i].pc > pc })
}
