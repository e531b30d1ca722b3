package code

import (
	"cmp"
	"slices"
	"sort"
	"sync"

	"github.com/fentry-dev/fentry/internal/parallel"
)

// Branch targets.
//
// Whoever overwrites code has to know that nothing branches into the middle of what he writes. All code of an image may
// have to be asked, a hundred megabytes of it, and nearly always the answer is no. So the index holds only what
// matters: the targets that lie in places somebody wants to overwrite, of branches outside these places. It is one
// sorted list for the image, mostly empty.
//
// The code that is read for a place is chosen by who asks. A site at a function's entry is read for in its own
// function, as compilers jump into the entry of another function's only at its first byte. Nops between functions
// belong to nobody: they are read for in all code. Either way every byte is read once, and pieces are read beside each
// other.
//
// Reading is not decoding. Decoding all of a large program takes longer than everything else that is done with it. So
// for one place in a function amd64suspect.go looks for bytes that can be a displacement into the place, and only
// functions that have such bytes are decoded. Tried instead: one pass over the image for all its places at once, which
// tests every opcode of a branch against a bitmap of the places. It sees branches of other functions too, and took
// twice as long on compilers' code, as most of what it looks up are calls of other functions.
//
// Code that is no instruction ends what can be said about the function it is in. Places in there are taken to be
// branched into, at their first byte that matters.

// Place is a range of code to be overwritten, [Lo, Hi), bounded by instructions. Branches from inside it do not
// count.
type Place struct {
	Lo, Hi uint64
	Entry  bool // the new code can be entered at Lo, so branches to Lo do not count
}

// first is the lowest address that nothing may branch to.
func (p Place) first() uint64 {
	if p.Entry {
		return p.Lo + 1
	}
	return p.Lo
}

// Targets is a set of branch targets inside places. Several goroutines can add to it.
type Targets struct {
	m      Machine
	mu     sync.Mutex
	list   []uint64
	sorted bool // list is, without repetitions
}

// NewTargets returns an empty index.
func NewTargets(m Machine) *Targets { return &Targets{m: m, sorted: true} }

// Scan adds the targets, inside any of the places, of branches in b, which is at addr. places must be sorted and must
// not overlap. b must begin at an instruction.
func (t *Targets) Scan(b []byte, addr uint64, places []Place) {
	if len(places) == 0 {
		return
	}
	found := t.m.targets(b, addr, places, nil)
	if len(found) == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.list, t.sorted = append(t.list, found...), false
}

// scanPiece is how many bytes of code are read at once where any piece of it begins with an instruction.
const scanPiece = 1 << 20

// ScanAll is like Scan for all code of an image.
func (t *Targets) ScanAll(text *Text, places []Place) {
	type piece struct {
		b    []byte
		addr uint64
	}
	var pieces []piece
	for i := range text.Regions {
		r := &text.Regions[i]
		size := max(len(r.Data), 1)
		if align := t.m.Align(); align > 1 && r.Addr%align == 0 {
			size = scanPiece
		}
		for o := 0; o < len(r.Data); o += size {
			pieces = append(pieces, piece{r.Data[o:min(o+size, len(r.Data))], r.Addr + uint64(o)})
		}
	}
	parallel.Do(len(pieces), func(i int) { t.Scan(pieces[i].b, pieces[i].addr, places) })
}

// Lowest returns the lowest target in [lo, hi) and reports whether there is one.
func (t *Targets) Lowest(lo, hi uint64) (uint64, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.sorted {
		slices.Sort(t.list)
		t.list, t.sorted = slices.Compact(t.list), true
	}
	i, _ := slices.BinarySearch(t.list, lo)
	if i == len(t.list) || t.list[i] >= hi {
		return 0, false
	}
	return t.list[i], true
}

// counts reports whether a branch from an address to target goes into one of the places, which are sorted.
func counts(places []Place, from, target uint64) bool {
	i := sort.Search(len(places), func(i int) bool { return places[i].Hi > target })
	return i < len(places) && target >= places[i].first() && (from < places[i].Lo || from >= places[i].Hi)
}

// spoilt appends the first addresses of the places in [lo, hi), about which nothing can be said.
func spoilt(places []Place, lo, hi uint64, out []uint64) []uint64 {
	i, _ := slices.BinarySearchFunc(places, lo, func(p Place, a uint64) int { return cmp.Compare(p.Lo, a) })
	for ; i < len(places) && places[i].Lo < hi; i++ {
		out = append(out, places[i].first())
	}
	return out
}
