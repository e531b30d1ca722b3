package plain

import (
	"cmp"
	"encoding/binary"
	"slices"
)

// Jump tables.
//
// For a switch, compilers lay down the distances of its labels from the table itself:
//
//	lea     table(%rip), %rdx
//	movslq  (%rdx,%rax,4), %rax
//	add     %rdx, %rax
//	jmp     *%rax
//
// How long a table is nobody says. So every address that a lea names, in a function that jumps to a register, or that
// shares code with another, is read as one: until the next such address, and as long as each word leads to the first byte
// of an instruction in the function, or in the middle of another one, where parts of functions have been moved to. Read
// without these limits, what lies behind tables gave thousands of targets that there are not. A word too many refuses
// a function for nothing; words that are left out are those that no compiler makes.
//
// The words of tables of addresses, in images that cannot be moved, are among those that pointers marks; elsewhere they
// are relocations.

// jumpTables marks what the entries of jump tables lead to.
func (f *Finder) jumpTables() {
	slices.SortFunc(f.bases, func(a, b base) int {
		return cmp.Or(cmp.Compare(a.table, b.table), cmp.Compare(a.lo, b.lo))
	})
	for i := 0; i < len(f.bases); {
		end := i + 1
		for end < len(f.bases) && f.bases[end].table == f.bases[i].table {
			end++
		}
		b, _ := f.file.From(f.bases[i].table)
		if end < len(f.bases) {
			if room := f.bases[end].table - f.bases[i].table; room < uint64(len(b)) {
				b = b[:room]
			}
		}
		f.table(f.bases[i:end], b)
		i = end
	}
}

// table reads one, which several functions may name.
func (f *Finder) table(named []base, b []byte) {
	const sharing = dispatches | leaves | entered
	for ; len(b) >= 4; b = b[4:] {
		to := named[0].table + uint64(int64(int32(binary.LittleEndian.Uint32(b))))
		if f.marks.get(to)&instruction == 0 {
			return
		}
		known := false
		for i := range named {
			n := &named[i]
			if n.fn >= 0 && f.facts[n.fn]&sharing == 0 {
				continue
			}
			if to >= n.lo && to < n.hi {
				known = true
			} else if k := f.containing(to); k >= 0 && f.funcs[k].Addr != to && to < f.end(k) {
				known = true
			}
			if known || i == maxNamed {
				break
			}
		}
		if !known {
			return
		}
		f.marks.add(to, tableEntry)
	}
}

// maxNamed bounds how many functions are asked about a table. One that more share is read as far as the first allow.
const maxNamed = 64
