package symbol

import (
	"slices"
	"sort"
)

// aliases are the names that functions have besides the one they are known by, which is the best of them (nameRank).
// Few functions have any, so they are apart, sorted by address, and cost nothing where there are none.
type aliases struct {
	names []string // of all functions, by address and then by the alphabet
	of    []aliased
}

// aliased says which of the names are those of the function at an address.
type aliased struct {
	addr     uint64
	from, to uint32
}

// add takes the names that one address has in tables, the best one first; addresses ascend. Unwind entries have none.
// It reports whether there is more than one.
func (a *aliases) add(group []Func) bool {
	from := len(a.names)
	for i := range group {
		if n := group[i].Name; n != "" && n != group[0].Name {
			a.names = append(a.names, n)
		}
	}
	if len(a.names) == from {
		return false
	}
	slices.Sort(a.names[from:])
	a.names = a.names[:from+len(slices.Compact(a.names[from:]))]
	a.of = append(a.of, aliased{group[0].Addr, uint32(from), uint32(len(a.names))})
	return true
}

func (a *aliases) at(addr uint64) []string {
	i := sort.Search(len(a.of), func(i int) bool { return a.of[i].addr >= addr })
	if i == len(a.of) || a.of[i].addr != addr {
		return nil
	}
	return a.names[a.of[i].from:a.of[i].to:a.of[i].to]
}
