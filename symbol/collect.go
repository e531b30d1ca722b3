package symbol

// Functions from several tables, one entry for each address. Programs have millions of them, and linkers have sorted
// most tables, so the tables are merged, not put into a map: what is sorted is the pair of address and index, and a
// function is made only when its address is settled. The best name wins (nameRank), and an unwind entry that describes
// a function which has a name already adds nothing.

import (
	"debug/elf"
	"slices"
	"strings"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/elfio/ehframe"
	"github.com/fentry-dev/fentry/internal/bigslice"
)

// A key is where an entry of a table begins. Functions are large to move about, so keys are sorted in their place.
type key struct {
	addr uint64
	i    uint32 // in its table
}

// source is a table that knows functions.
type source struct {
	keys []key // sorted by address, then by index
	at   func(i uint32) Func
}

// unwindTable is what collect needs of an ehframe.Table.
type unwindTable interface {
	Len() int
	At(i int) ehframe.FDE
}

// collect fills funcs from the tables. Each is sorted by itself, which linkers have often done, and then merged.
func (t *Table) collect(named [2]*source, frames *source) {
	sources := [...]*source{named[0], named[1], frames}
	distinct, last := 0, uint64(0)
	merge(sources, func(addr uint64, _ [3]int) {
		if distinct == 0 || addr != last {
			distinct, last = distinct+1, addr
		}
	})
	out := bigslice.Make[Func](0, distinct)
	var group []Func
	merge(sources, func(addr uint64, n [3]int) {
		// Names come before unwind entries, the best one first.
		group = group[:0]
		for s, src := range sources {
			for k := range n[s] {
				group = append(group, src.at(src.keys[k].i))
			}
		}
		if n[0]+n[1] > 1 || n[2] > 1 {
			slices.SortFunc(group, compareFuncs)
		}
		if n[0]+n[1] > 1 {
			group[0].Aliased = t.others.add(group)
		}
		for i := range group {
			fn := &group[i]
			if n := len(out); n > 0 && fn.rank == rankNone && out[n-1].describedBy(fn) {
				continue
			}
			if n := len(out); n > 0 && out[n-1].Addr == fn.Addr {
				if out[n-1].Size == 0 {
					out[n-1].Size = fn.Size
				}
				out[n-1].Ifunc = out[n-1].Ifunc || fn.Ifunc
				out[n-1].Part = out[n-1].Part || fn.Part
				continue
			}
			out = append(out, *fn)
		}
	})
	t.funcs = slices.Clip(out)
}

// merge calls each for all addresses in ascending order, with the number of keys every source has for it. Those are the
// first keys of the sources during the call.
func merge(sources [3]*source, each func(addr uint64, n [3]int)) {
	var all [3][]key
	for s, src := range sources {
		all[s] = src.keys
	}
	for {
		addr, found := uint64(0), false
		for _, src := range sources {
			if len(src.keys) > 0 && (!found || src.keys[0].addr < addr) {
				addr, found = src.keys[0].addr, true
			}
		}
		if !found {
			break
		}
		var n [3]int
		for s, src := range sources {
			for n[s] < len(src.keys) && src.keys[n[s]].addr == addr {
				n[s]++
			}
		}
		each(addr, n)
		for s, src := range sources {
			src.keys = src.keys[n[s]:]
		}
	}
	for s, src := range sources {
		src.keys = all[s]
	}
}

// symbols is a symbol table as a source of functions. mold gives call stubs symbols, such as strlen$plt, which are none.
func symbols(syms []elfio.Symbol, name string, dynamic bool, plt []addrRange) *source {
	keys := bigslice.Make[key](0, len(syms))
	for i := range syms {
		s := &syms[i]
		typ := s.Type()
		if typ != elf.STT_FUNC && typ != elf.STT_GNU_IFUNC || !s.Defined() || elf.SectionIndex(s.Shndx) == elf.SHN_ABS {
			continue
		}
		if len(plt) > 0 && s.Bind() == elf.STB_LOCAL && strings.Contains(s.Name, "$plt") && within(plt, s.Value) {
			continue
		}
		keys = append(keys, key{s.Value, uint32(i)})
	}
	return &source{sortKeys(keys), func(i uint32) Func {
		s := &syms[i]
		return Func{Addr: s.Value, Size: s.Size, Name: BaseName(s.Name), Source: name,
			Ifunc: s.Type() == elf.STT_GNU_IFUNC, rank: nameRank(s, dynamic)}
	}}
}

// frames is the unwind table as a source of functions.
func (t *Table) frames() *source {
	plt := stubSections(t.f)
	n := t.fdes.Len()
	keys := bigslice.Make[key](0, n)
	for i := range n {
		if pc := t.fdes.At(i).PC; len(plt) == 0 || pc < plt[0].lo || pc >= plt[len(plt)-1].hi || !within(plt, pc) {
			keys = append(keys, key{pc, uint32(i)})
		}
	}
	return &source{sortKeys(keys), func(i uint32) Func {
		d := t.fdes.At(int(i))
		return Func{Addr: d.PC, Size: d.Size, Source: SourceEhFrame, rank: rankNone, Part: startsFramed(d.Instructions)}
	}}
}

// sortKeys sorts by address and keeps the order of equal ones: a byte at a time from the lowest, leaving out those that
// all addresses have in common.
func sortKeys(keys []key) []key {
	differ, sorted := uint64(0), true
	for i := 1; i < len(keys); i++ {
		differ |= keys[i].addr ^ keys[0].addr
		sorted = sorted && keys[i-1].addr <= keys[i].addr
	}
	if sorted {
		return keys
	}
	other := bigslice.Make[key](len(keys), len(keys))
	for shift := uint(0); shift < 64; shift += 8 {
		if differ>>shift&0xff == 0 {
			continue
		}
		var next [256]int // where the next key with that byte goes
		for i := range keys {
			next[byte(keys[i].addr>>shift)]++
		}
		at := 0
		for b, n := range next {
			next[b], at = at, at+n
		}
		for i := range keys {
			b := byte(keys[i].addr >> shift)
			other[next[b]] = keys[i]
			next[b]++
		}
		keys, other = other, keys
	}
	return keys
}
