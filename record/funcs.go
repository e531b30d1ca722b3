package record

import (
	"sort"

	"github.com/fentry-dev/fentry/record/code"
	"github.com/fentry-dev/fentry/symbol"
)

// functions are all function starts of an image, sorted by address, each address once. Nearly all questions are about
// the function that was asked for last, or the one behind it, so that one is remembered: a copy is for one goroutine
// only.
type functions struct {
	list []symbol.Func
	last int
}

// containing returns the index of the last function that starts at or before addr, -1 when there is none.
func (t *functions) containing(addr uint64) int {
	if i := t.last; i < len(t.list) && t.list[i].Addr <= addr {
		if i++; i == len(t.list) || t.list[i].Addr > addr {
			return i - 1
		}
		if i+1 == len(t.list) || t.list[i+1].Addr > addr {
			t.last = i
			return i
		}
	}
	i := sort.Search(len(t.list), func(i int) bool { return t.list[i].Addr > addr }) - 1
	t.last = max(i, 0)
	return i
}

// at returns the index of the function that starts at addr, -1 when there is none.
func (t *functions) at(addr uint64) int {
	if i := t.containing(addr); i >= 0 && t.list[i].Addr == addr {
		return i
	}
	return -1
}

// first returns the lowest function start in [lo, hi].
func (t *functions) first(lo, hi uint64) (uint64, bool) {
	i := t.containing(lo)
	if i < 0 || t.list[i].Addr < lo {
		i++
	}
	if i == len(t.list) || t.list[i].Addr > hi {
		return 0, false
	}
	return t.list[i].Addr, true
}

// extent returns the end of function i: its size where that is known, never beyond the next function's start, so that
// the extents of all functions together are not larger than the code. Without a size it ends where the next one starts.
func (t *functions) extent(i int, c *code.Text) uint64 {
	fn := &t.list[i]
	end := fn.Addr
	if r := c.Region(fn.Addr); r != nil {
		end = r.End()
	}
	if i+1 < len(t.list) && t.list[i+1].Addr < end {
		end = t.list[i+1].Addr
	}
	if fn.Size != 0 && end-fn.Addr > fn.Size {
		end = fn.Addr + fn.Size
	}
	return end
}

// funcSet is a set of addresses, nearly all of which are those of functions.
type funcSet struct {
	funcs  *functions
	known  []bool // by index in funcs
	others map[uint64]bool
}

func newFuncSet(im *image) *funcSet {
	return &funcSet{funcs: &im.funcs, known: make([]bool, len(im.funcs.list)), others: map[uint64]bool{}}
}

// add reports whether the address is new to the set.
func (s *funcSet) add(addr uint64) bool {
	if i := s.funcs.at(addr); i >= 0 {
		had := s.known[i]
		s.known[i] = true
		return !had
	}
	had := s.others[addr]
	s.others[addr] = true
	return !had
}
