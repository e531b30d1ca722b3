package record

import (
	"cmp"
	"debug/elf"
	"fmt"
	"slices"

	"github.com/fentry-dev/fentry/internal/bigslice"
	"github.com/fentry-dev/fentry/internal/parallel"
	"github.com/fentry-dev/fentry/record/code"
)

// Tables.
//
// A table is what the compiler itself says, so it is believed before anything that is found in code. It is checked all
// the same: linkers leave entries of functions they have dropped, and a site that is wrong breaks a program, while one
// that is missing is only missing. The bytes at the place have to be what that kind of compiler leaves there.
//
// Entries are addresses as they are at run time. In images that can be loaded anywhere the file has them as the addends
// of dynamic relocations, and the words themselves are mostly zero; so relocations are looked at first, and the last
// one of several for a word counts, as it does for the dynamic linker. Large programs have hundreds of thousands of
// entries, sorted already: everything here remembers the last place it was asked for, and sorts only what is not
// sorted.

// tables adds the sites compilers have listed, the best source first.
func (fd *finder) tables() error {
	if err := fd.mcountLoc(); err != nil {
		return err
	}
	addrs, err := fd.im.addressTable(SourcePatchable)
	if err != nil {
		return err
	}
	first := len(fd.sites)
	fd.sites = bigslice.Grow(fd.sites, len(addrs))[:first+len(addrs)]
	sites := fd.sites[first:]
	parallel.Ranges(len(addrs), piece, func(from, to int) {
		own := fd.own()
		for i := from; i < to; i++ {
			limit := ^uint64(0)
			if i+1 < len(addrs) {
				limit = addrs[i+1]
			}
			sites[i] = own.patchable(addrs[i], limit)
			own.complete(&sites[i])
		}
	})
	return fd.xray()
}

// addressTable reads the sections of that name as 8-byte addresses, as they are at run time, and sorts them. Zero
// words, which linkers leave where they dropped a function, and repeated addresses are skipped.
func (im *image) addressTable(name string) ([]uint64, error) {
	var out []uint64
	for i := range im.f.Sections {
		s := &im.f.Sections[i]
		if s.Name != name || s.Type == elf.SHT_NOBITS || s.Flags&elf.SHF_ALLOC == 0 {
			continue
		}
		b, err := im.f.SectionData(i)
		if err != nil {
			return nil, err
		}
		if len(b)%8 != 0 {
			return nil, fmt.Errorf("section %d (%s) at offset %#x: %d bytes are not whole addresses", i, s.Name, s.Off, len(b))
		}
		moved := im.relocated(s.Addr, uint64(len(b)))
		order := im.f.Order()
		out = slices.Grow(out, len(b)/8)
		for o := uint64(0); o < uint64(len(b)); o += 8 {
			a, ok := moved.at(s.Addr + o)
			if !ok {
				a = order.Uint64(b[o:])
			}
			if a != 0 {
				out = append(out, a)
			}
		}
	}
	if !slices.IsSorted(out) {
		slices.Sort(out)
	}
	return slices.Compact(out), nil
}

// words are the values of words in memory, sorted by address.
type words struct {
	list []word
	next int // behind the last one asked for
}

type word struct{ addr, value uint64 }

// at returns the value of the word at addr, if it is one of the list. Ascending addresses are found at once.
func (w *words) at(addr uint64) (uint64, bool) {
	i := w.next
	if i >= len(w.list) || w.list[i].addr != addr {
		var ok bool
		if i, ok = slices.BinarySearchFunc(w.list, addr, func(e word, a uint64) int { return cmp.Compare(e.addr, a) }); !ok {
			return 0, false
		}
	}
	w.next = i + 1
	return w.list[i].value, true
}

// relocated returns what dynamic relocations write into the words of [addr, addr+size).
func (im *image) relocated(addr, size uint64) *words {
	var list []word
	syms := im.tab.DynamicSymbols()
	for i := range im.relocs {
		r := &im.relocs[i]
		if r.Off-addr >= size {
			continue
		}
		switch r.Type {
		case im.m.relocs.relative:
			list = append(list, word{r.Off, uint64(r.Addend)})
		case im.m.relocs.word:
			if r.Sym != 0 && uint64(r.Sym) <= uint64(len(syms)) {
				list = append(list, word{r.Off, syms[r.Sym-1].Value + uint64(r.Addend)})
			}
		}
	}
	byAddr := func(a, b word) int { return cmp.Compare(a.addr, b.addr) }
	if !slices.IsSortedFunc(list, byAddr) {
		slices.SortStableFunc(list, byAddr)
	}
	// Of several relocations of a word the last one stays.
	out := list[:0]
	for _, w := range list {
		if n := len(out); n > 0 && out[n-1].addr == w.addr {
			out[n-1] = w
		} else {
			out = append(out, w)
		}
	}
	return &words{list: out}
}

// patchable is the site of an entry of __patchable_function_entries: the address of the first of N nops, M of which
// stand before the function. Only those behind its first byte, and behind a landing pad there, are reached by callers.
// limit is the next entry of the table: nops from there on are not this function's.
func (fd *finder) patchable(first, limit uint64) Site {
	s := Site{Func: first, Addr: first, Kind: KindPatchable, Ret: fd.m.atEntry(), Source: SourcePatchable}
	if fd.im.code.Region(first) == nil {
		s.Reason = ReasonNotExecutable
		return s
	}
	// The function begins at the end of the nops at the latest.
	if start, ok := fd.im.funcs.first(first, first+uint64(fd.m.Nops(fd.im.code.Range(first, limit)))); ok {
		s.Func, s.Addr = start, start // M nops before it
		if fd.im.hasPad(start) {
			s.Addr += code.PadLen
		}
	} else if s.Func, ok = fd.entryOf(first); !ok {
		s.Func, s.Reason = first, ReasonUnknownEntry
	}
	if i := fd.im.funcs.at(s.Func); i >= 0 {
		limit = min(limit, fd.im.funcs.extent(i, fd.im.code))
	}
	s.Len = fd.m.Nops(fd.im.code.Range(s.Addr, limit))
	switch {
	case s.Reason != "":
	case fd.isPatched(s.Addr):
		s.Reason = ReasonPatched
	case s.Len == 0 && s.Addr == first:
		s.Reason = ReasonUnexpected
	case s.Len > 0 && s.Len < fd.m.siteSize() && s.End() == limit:
		s.Reason = ReasonShortFunction
	case s.Len < fd.m.siteSize():
		s.Reason = ReasonShortSite
	}
	return s
}

// unlisted adds the nops of -fpatchable-function-entry that no table lists. They are common in C++: where two objects
// have the same inline function, GNU ld drops one and with it, silently, the whole table that gcc made for that object.
// Nothing else makes compilers begin a function with such nops.
func (fd *finder) unlisted() {
	have := newFuncSet(fd.im)
	for i := range fd.sites {
		have.add(fd.sites[i].Func)
	}
	for i := range fd.im.funcs.list {
		fn := &fd.im.funcs.list[i]
		if have.known[i] || fn.Part || isCold(fn.Name) {
			continue
		}
		s := Site{Func: fn.Addr, Addr: fn.Addr, Kind: KindPatchable, Ret: fd.m.atEntry(), Source: SourceScan}
		b := fd.im.code.Range(fn.Addr, fd.im.funcs.extent(i, fd.im.code))
		if fd.m.HasPad(b) {
			s.Addr, b = s.Addr+code.PadLen, b[code.PadLen:]
		}
		if fd.m.isPatchable(b) {
			s.Len = fd.m.Nops(b)
			fd.add(s)
		}
	}
}

// mcountLoc adds the sites of __mcount_loc, which names calls or the nops in their place.
func (fd *finder) mcountLoc() error {
	addrs, err := fd.im.addressTable(SourceMcountLoc)
	if err != nil {
		return err
	}
	for i, a := range addrs {
		addrs[i] = fd.m.listed(fd.im, a)
	}
	fd.believe(addrs)
	fd.listed = slices.Compact(addrs) // places differ from entries by a byte at most, so they are still sorted
	for _, a := range fd.listed {
		fd.mcountEntry(a)
	}
	return nil
}

// believe takes the function that all entries call as the profiling function when no name and no code has told which
// one it is, as in stripped programs and with gcc -mfentry-name.
func (fd *finder) believe(addrs []uint64) {
	var target uint64
	var indirect bool
	n := 0
	for _, a := range addrs {
		c, ok := fd.m.callAt(fd.prof, fd.im.code.From(a), a)
		if !ok {
			continue
		}
		if c.class != profNone || n > 0 && c.target != target {
			return
		}
		target, indirect = c.target, c.slot
		n++
	}
	switch {
	case n == 0:
	case indirect:
		fd.prof.slots[target] = profListed
	default:
		fd.prof.targets[target] = profListed
	}
}

func (fd *finder) mcountEntry(a uint64) {
	b := fd.im.code.From(a)
	s := Site{Func: a, Addr: a, Source: SourceMcountLoc, Kind: KindNopMcount}
	if i := fd.im.covering(a); i >= 0 {
		s.Func = fd.im.funcs.list[i].Addr
	}
	c, isCall := fd.m.callAt(fd.prof, b, a)
	nop := fd.nopLen(b)
	switch {
	case b == nil:
		s.Reason = ReasonNotExecutable
	case fd.isPatched(a):
		s.Reason = ReasonPatched
	case isCall && c.class == profNone:
		s.Kind, s.Len, s.Reason = KindNone, c.len, ReasonOtherCallee
	case isCall:
		fd.listedSite(a, c.len, c.class, true)
		return
	case nop >= fd.m.siteSize():
		fd.listedSite(a, nop, profListed, false)
		return
	default:
		s.Kind, s.Reason = KindNone, ReasonUnexpected
	}
	fd.add(s)
}

// listedSite adds the site of a listed instruction, by the class of what it calls or, where that says nothing, by where
// it is: at the entry, or behind a prologue.
func (fd *finder) listedSite(a uint64, n int, class profClass, isCall bool) {
	if class == profListed {
		class = profFentry
		if start, ok := fd.entryOf(a); start != 0 && !ok && fd.walk.at(start, a).reason == "" {
			class = profMcount
		}
	}
	kind := KindNopMcount
	switch {
	case isCall && class == profFentry:
		kind = KindFentryCall
	case isCall:
		kind = KindMcountCall
	}
	if class == profFentry {
		fd.fentry(a, n, kind, SourceMcountLoc)
	} else {
		fd.mcount(a, n, kind, SourceMcountLoc)
	}
}

// nopLen returns the length of the single nop at the start of b, 0 when there is none.
func (fd *finder) nopLen(b []byte) int {
	n, _ := fd.m.Inst(b)
	if n == 0 || fd.m.Nops(b[:n]) != n {
		return 0
	}
	return n
}
