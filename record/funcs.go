package record

import (
	"debug/elf"
	"slices"
	"sort"
	"strings"

	"github.com/fentry-dev/fentry/elfio"
)

// function is a place where a function starts, as far as the image tells.
type function struct {
	addr, size uint64
	name       string
	source     string
	rank       int  // of name: the lower the better
	resolver   bool // chooses an implementation for an IFUNC symbol
	named      bool // a FUNC symbol says so, not only an unwind table
}

// functions are all function starts, sorted by address, each address once.
type functions struct {
	list []function
}

// Ranks of names for one address. The first difference decides: what kind of symbol, its binding, its table; then the
// name with the fewest leading underscores, then the alphabet, so that the choice never depends on the order of a table.
func nameRank(s *elfio.Symbol, dynamic bool) int {
	r := 0
	switch s.Type() {
	case elf.STT_FUNC:
	case elf.STT_GNU_IFUNC: // names what the resolver chooses, not the resolver
		r += 16
	default:
		r += 32
	}
	switch s.Bind() {
	case elf.STB_GLOBAL:
	case elf.STB_LOCAL:
		r += 2
	case elf.STB_WEAK:
		r += 4
	default:
		r += 6
	}
	if dynamic {
		r++
	}
	return r
}

func betterName(a, b *function) bool {
	if (a.name == "") != (b.name == "") {
		return a.name != ""
	}
	if a.rank != b.rank {
		return a.rank < b.rank
	}
	if x, y := underscores(a.name), underscores(b.name); x != y {
		return x < y
	}
	return a.name < b.name
}

func underscores(s string) int { return len(s) - len(strings.TrimLeft(s, "_")) }

// baseName takes the version off a dynamic symbol's name as linkers write it to .symtab: name@VERSION, name@@VERSION.
func baseName(s string) string {
	if i := strings.IndexByte(s, '@'); i > 0 {
		return s[:i]
	}
	return s
}

// findFunctions collects function starts from the symbol tables and the unwind tables.
func findFunctions(im *image) *functions {
	all := make([]function, 0, len(im.syms)+len(im.dynsyms)+len(im.fdes))
	add := func(syms []elfio.Symbol, source string, dynamic bool) {
		for i := range syms {
			s := &syms[i]
			t := s.Type()
			if t != elf.STT_FUNC && t != elf.STT_GNU_IFUNC || !s.Defined() || elf.SectionIndex(s.Shndx) == elf.SHN_ABS {
				continue
			}
			all = append(all, function{addr: s.Value, size: s.Size, name: baseName(s.Name), source: source,
				rank: nameRank(s, dynamic), resolver: t == elf.STT_GNU_IFUNC, named: true})
		}
	}
	add(im.syms, SourceSymtab, false)
	add(im.dynsyms, SourceDynsym, true)
	for i := range im.fdes {
		d := &im.fdes[i]
		if r := im.code.find(d.PC); r == nil || isPLT(r.name) {
			continue
		}
		all = append(all, function{addr: d.PC, size: d.Size, source: SourceEhFrame, rank: 99})
	}
	for _, a := range im.resolvers {
		all = append(all, function{addr: a, source: SourceScan, rank: 99, resolver: true})
	}
	slices.SortFunc(all, func(a, b function) int {
		if c := cmpUint(a.addr, b.addr); c != 0 {
			return c
		}
		switch {
		case betterName(&a, &b):
			return -1
		case betterName(&b, &a):
			return 1
		}
		return -cmpUint(a.size, b.size)
	})
	out := all[:0]
	for _, fn := range all {
		if n := len(out); n > 0 && out[n-1].addr == fn.addr {
			last := &out[n-1]
			if last.size == 0 {
				last.size = fn.size
			}
			last.resolver = last.resolver || fn.resolver
			last.named = last.named || fn.named
			continue
		}
		out = append(out, fn)
	}
	return &functions{list: out}
}

// isPLT recognises the sections linkers put call stubs into: .plt, .plt.got, .plt.sec, .plt.bnd, .iplt.
func isPLT(section string) bool {
	return section == ".plt" || strings.HasPrefix(section, ".plt.") || section == ".iplt"
}

// containing returns the index of the last function that starts at or before addr, -1 when there is none.
func (t *functions) containing(addr uint64) int {
	return sort.Search(len(t.list), func(i int) bool { return t.list[i].addr > addr }) - 1
}

// at returns the index of the function that starts at addr, -1 when there is none.
func (t *functions) at(addr uint64) int {
	if i := t.containing(addr); i >= 0 && t.list[i].addr == addr {
		return i
	}
	return -1
}

// first returns the lowest function start in [lo, hi].
func (t *functions) first(lo, hi uint64) (uint64, bool) {
	i := sort.Search(len(t.list), func(i int) bool { return t.list[i].addr >= lo })
	if i == len(t.list) || t.list[i].addr > hi {
		return 0, false
	}
	return t.list[i].addr, true
}

// extent returns the end of function i: its size where that is known, never beyond the next function's start, so that
// the extents of all functions together are not larger than the code. Without a size it ends where the next one starts.
func (t *functions) extent(i int, c *code) uint64 {
	fn := &t.list[i]
	end := fn.addr
	if r := c.find(fn.addr); r != nil {
		end = r.end()
	}
	if i+1 < len(t.list) && t.list[i+1].addr < end {
		end = t.list[i+1].addr
	}
	if fn.size != 0 && end-fn.addr > fn.size {
		end = fn.addr + fn.size
	}
	return end
}
