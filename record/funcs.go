package record

import (
	"sort"

	"github.com/fentry-dev/fentry/symbol"
)

// functions are all function starts of an image, sorted by address, each address once.
type functions struct {
	list []symbol.Func
}

// containing returns the index of the last function that starts at or before addr, -1 when there is none.
func (t *functions) containing(addr uint64) int {
	return sort.Search(len(t.list), func(i int) bool { return t.list[i].Addr > addr }) - 1
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
	i := sort.Search(len(t.list), func(i int) bool { return t.list[i].Addr >= lo })
	if i == len(t.list) || t.list[i].Addr > hi {
		return 0, false
	}
	return t.list[i].Addr, true
}

// extent returns the end of function i: its size where that is known, never beyond the next function's start, so that
// the extents of all functions together are not larger than the code. Without a size it ends where the next one starts.
func (t *functions) extent(i int, c *code) uint64 {
	fn := &t.list[i]
	end := fn.Addr
	if r := c.find(fn.Addr); r != nil {
		end = r.end()
	}
	if i+1 < len(t.list) && t.list[i+1].Addr < end {
		end = t.list[i+1].Addr
	}
	if fn.Size != 0 && end-fn.Addr > fn.Size {
		end = fn.Addr + fn.Size
	}
	return end
}
