//go:build linux

package tracee

import (
	"cmp"
	"slices"
	"sort"
)

// An area is memory of a process.
type area struct{ at, size uint64 }

// spans are areas, sorted and apart: each word of each stack is looked up in them while all threads are stopped.
type spans []area

func newSpans(areas []area) (all spans) {
	areas = slices.Clone(areas)
	slices.SortFunc(areas, func(a, b area) int { return cmp.Compare(a.at, b.at) })
	for _, a := range areas {
		if k := len(all) - 1; k >= 0 && a.at <= all[k].at+all[k].size {
			all[k].size = max(all[k].size, a.at+a.size-all[k].at)
		} else {
			all = append(all, a)
		}
	}
	return all
}

// has tells whether an address is in one of them.
func (s spans) has(v uint64) bool {
	if len(s) == 0 || v < s[0].at || v >= s[len(s)-1].at+s[len(s)-1].size {
		return false
	}
	i := sort.Search(len(s), func(i int) bool { return s[i].at > v })
	return v-s[i-1].at < s[i-1].size
}
