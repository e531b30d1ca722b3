package objects

import (
	"debug/elf"
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/fentry-dev/fentry/elfio"
)

// Check compares the tables of the object with its code and yields a line for each problem: an entry that names
// neither a call nor nops, a second entry for the same place, a call without an entry. An object without calls and
// without a table has none.
func (ob *Object) Check() iter.Seq[string] {
	return func(yield func(string) bool) {
		for i := range ob.parts {
			if p := &ob.parts[i]; ob.recorded(p) && !ob.checkPart(p, yield) {
				return
			}
		}
		if ob.have == nil {
			return
		}
		for _, sec := range slices.Sorted(maps.Keys(ob.have.entries)) {
			if !ob.checkEntries(sec, yield) {
				return
			}
		}
	}
}

// checkPart looks for the entries of a part's calls. It reports whether to go on.
func (ob *Object) checkPart(p *part, yield func(string) bool) bool {
	var entries []uint64
	if ob.have != nil {
		entries = ob.have.entries[p.rel.Target]
	}
	for k, e := range entries {
		if k > 0 && entries[k-1] == e &&
			!yield(fmt.Sprintf("%s: two entries name %#x", ob.label(p.rel.Target), e)) {
			return false
		}
	}
	for _, s := range p.sites {
		start, n := p.start(s), uint64(s.hit.len)
		k, exact := slices.BinarySearch(entries, start)
		said := ""
		switch {
		case exact:
			continue
		case k < len(entries) && entries[k]-start < n:
			said = fmt.Sprintf("%s: the entry %#x is inside the %v at %#x", ob.label(p.rel.Target), entries[k],
				s.hit.form, start)
		default:
			said = fmt.Sprintf("%s: the %v at %#x has no entry", ob.label(p.rel.Target), s.hit.form, start)
		}
		if !yield(said) {
			return false
		}
	}
	return true
}

// checkEntries looks at every entry that names no call. It reports whether to go on.
func (ob *Object) checkEntries(sec int, yield func(string) bool) bool {
	n := len(ob.have.entries[sec])
	if sec < 0 || sec >= len(ob.f.Sections) {
		return yield(fmt.Sprintf("%d entries name section %d of %d", n, sec, len(ob.f.Sections)))
	}
	if !isCode(&ob.f.Sections[sec]) {
		return yield(fmt.Sprintf("%d entries name %s, which is not code", n, ob.label(sec)))
	}
	var calls []uint64 // pairs of start and end
	for i := range ob.parts {
		if p := &ob.parts[i]; p.rel.Target == sec {
			for _, s := range p.sites {
				calls = append(calls, p.start(s), p.start(s)+uint64(s.hit.len))
			}
		}
	}
	data, err := ob.f.SectionData(sec)
	if err != nil {
		return yield(err.Error())
	}
	c := code{data, orderOf(ob.f), ob.f.Is64()}
	slices.Sort(calls) // sites do not overlap, so pairs stay pairs
	for _, e := range ob.have.entries[sec] {
		k, exact := slices.BinarySearch(calls, e)
		if exact && k%2 == 1 && k+1 < len(calls) && calls[k+1] == e {
			k++
		}
		if exact && k%2 == 0 || !exact && k%2 == 1 {
			continue // at a call, or inside one, which has been said above
		}
		if !isNop(ob.f.Header.Machine, &c, e) &&
			!yield(fmt.Sprintf("%s: the entry %#x names neither a call nor nops", ob.label(sec), e)) {
			return false
		}
	}
	return true
}

// isNop reports whether the place holds what a profiling call becomes when it is turned off.
func isNop(m elf.Machine, c *code, off uint64) bool {
	switch m {
	case elf.EM_X86_64, elf.EM_386:
		for _, n := range [][]byte{nop3x64, nop4x64, nop5x64, nop6x64, nop12x64, nop13x64, nop14x64, nop15x64, nop16x64,
			nop5x32, nop6x32} {
			if b, ok := c.bytes(off, uint64(len(n))); ok && string(b) == string(n) {
				return true
			}
		}
	case elf.EM_AARCH64:
		b, ok := c.bytes(off, 4)
		return ok && string(b) == "\x1f\x20\x03\xd5"
	case elf.EM_ARM:
		w, ok := c.word32(off)
		h, ok2 := c.half(off)
		return ok && w == 0xe1a00000 || ok2 && h == 0xbf00
	case elf.EM_S390: // brcl 0,.: c0 04
		b, ok := c.bytes(off, 2)
		return ok && string(b) == "\xc0\x04"
	}
	return false
}

// Unknown returns a line for each section with references to a profiling function that are not calls as far as is
// known: code may take its address, and so may a compiler that calls in a way that is not known here. Nothing of it
// is recorded.
func (ob *Object) Unknown() ([]string, error) {
	var out []string
	for i := range ob.parts {
		if p := &ob.parts[i]; len(p.taken) > 0 {
			r := p.rel.At(int(p.taken[0]))
			out = append(out, ob.unknown(p.rel.Target, len(p.taken), r))
		}
	}
	if ob.marks == nil {
		return out, nil
	}
	f := ob.f
	for i := range f.Sections {
		s := &f.Sections[i]
		if s.Type != elf.SHT_REL && s.Type != elf.SHT_RELA || s.Info == 0 || s.Info >= uint32(len(f.Sections)) {
			continue
		}
		if d := &f.Sections[s.Info]; isCode(d) || d.Flags&elf.SHF_ALLOC == 0 || s.Size == 0 {
			continue
		}
		t, err := f.RelocTable(i)
		if err != nil {
			return nil, err
		}
		if t.Symtab != ob.syms.Section {
			continue
		}
		n, first := 0, 0
		t.Scan(ob.marks, func(k int) {
			if n == 0 {
				first = k
			}
			n++
		})
		if n > 0 {
			out = append(out, ob.unknown(t.Target, n, t.At(first)))
		}
	}
	return out, nil
}

func (ob *Object) unknown(section, n int, first elfio.Reloc) string {
	if n == 1 {
		return fmt.Sprintf("%s: the reference to %s at %#x is no call that is known, and is not recorded", ob.label(section),
			ob.syms.Name(int(first.Sym)), first.Off)
	}
	return fmt.Sprintf("%s: %d references to %s, the first at %#x, are no calls that are known, and are not recorded",
		ob.label(section), n, ob.syms.Name(int(first.Sym)), first.Off)
}
