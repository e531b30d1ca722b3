package record

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/fentry-dev/fentry/internal/parallel"
	"github.com/fentry-dev/fentry/record/code"
	"github.com/fentry-dev/fentry/record/moves"
	"github.com/fentry-dev/fentry/record/plain"
	"github.com/fentry-dev/fentry/symbol"
)

// Plain says whether functions that no compiler has prepared are to be traced, by moving their first instructions
// elsewhere.
type Plain uint8

const (
	PlainAuto Plain = iota // if nothing in the image can be traced otherwise
	PlainAll               // in any case
	PlainNone              // only what compilers have prepared is traced
)

var plainNames = [...]string{"auto", "all", "no"}

func (p Plain) String() string {
	if int(p) < len(plainNames) {
		return plainNames[p]
	}
	return fmt.Sprintf("Plain(%d)", uint8(p))
}

// ParsePlain returns the value with a name.
func ParsePlain(name string) (Plain, error) {
	if i := slices.Index(plainNames[:], name); i >= 0 {
		return Plain(i), nil
	}
	return 0, fmt.Errorf("%q is none of %s", name, strings.Join(plainNames[:], ", "))
}

// plain turns functions without a site into sites of their own first instructions. Package plain has the proof.
func (fd *finder) plain() error {
	if fd.o.Plain == PlainNone || !plain.Supported(fd.im.f) {
		return nil
	}
	wanted := fd.wanted()
	if wanted == nil || len(fd.sites) > 0 && !fd.hasSite(wanted) {
		return nil
	}
	f, err := fd.sweep()
	if err != nil {
		return err
	}
	if fd.unlistedFunctions(f) {
		if f, err = fd.sweep(); err != nil {
			return err
		}
	}
	var mu sync.Mutex
	brief := map[int]plain.Entry{} // by site
	var cramped []int              // sites of OCaml's functions
	parallel.Ranges(len(fd.sites), piece, func(from, to int) {
		own := fd.own()
		for i := from; i < to; i++ {
			s := &fd.sites[i]
			k := own.im.funcs.at(s.Func)
			if k < 0 || !wanted(s) {
				continue
			}
			if f.OCaml(k) {
				if own.ocaml(s, f, k, nil); s.Reason == ReasonOCamlNoRoom {
					mu.Lock()
					cramped = append(cramped, i)
					mu.Unlock()
				}
				continue
			}
			e := f.Entry(k)
			own.displaced(s, e, 0)
			if e.Brief && s.Reason == Reason(e.Refusal) {
				mu.Lock()
				brief[i] = e
				mu.Unlock()
			}
		}
	})
	slices.Sort(cramped)
	fd.detours(f, brief, cramped)
	return nil
}

// jumpsAway notes which functions jump to other images, and which are called beside system calls.
func (fd *finder) jumpsAway() error {
	if !plain.Supported(fd.im.f) || fd.swept == nil && !(fd.o.JumpsAway && Prepared(fd.sites)) {
		return nil
	}
	f, err := fd.sweep()
	if err != nil {
		return err
	}
	for i := range fd.sites {
		s := &fd.sites[i]
		k := fd.im.funcs.at(s.Func)
		s.JumpsAway = k >= 0 && f.JumpsAway(k)
		s.BesideSyscall = k >= 0 && f.BesideSyscall(k)
	}
	return nil
}

// unnamedStubs are the linker's stubs for calls of other images' functions in code of no section: where section headers are stripped
// nothing else tells them from functions. What they jump to may return twice, or look at its caller.
func (fd *finder) unnamedStubs() map[uint64]bool {
	unnamed := func(r code.Region) bool { return r.Name == "" }
	if !slices.ContainsFunc(fd.im.code.Regions, unnamed) {
		return nil
	}
	names, err := fd.imports()
	if err != nil {
		return nil
	}
	stubs := make(map[uint64]bool)
	for i := range fd.im.code.Regions {
		r := &fd.im.code.Regions[i]
		if !unnamed(*r) {
			continue
		}
		for _, st := range fd.m.jumpStubs(r) {
			if _, ok := names[st.slot]; ok {
				stubs[st.start], stubs[st.jump] = true, true
			}
		}
	}
	return stubs
}

// unlistedFunctions adds the functions that nothing lists, and that code or data of the image tells of. It reports whether
// there are any: then what is known of all code has to be found out again.
func (fd *finder) unlistedFunctions(f *plain.Finder) bool {
	called, others := f.Unlisted()
	stubs := fd.unnamedStubs()
	isStub := func(addr uint64) bool { return stubs[addr] }
	called, others = slices.DeleteFunc(called, isStub), slices.DeleteFunc(others, isStub)
	if len(called)+len(others) == 0 {
		return false
	}
	list := slices.Clone(fd.im.funcs.list)
	add := func(addrs []uint64, source string, r Reason) {
		for _, addr := range addrs {
			if fd.golang.HasGo(addr) {
				continue
			}
			list = append(list, symbol.Func{Addr: addr, Source: source})
			s := Site{Func: addr, Addr: addr, Source: source, Reason: r}
			if addr == fd.im.f.Header.Entry {
				s.Reason = ReasonEntryPoint
			}
			fd.sites = append(fd.sites, s)
		}
	}
	add(called, SourceCalls, ReasonNoSite)
	add(others, SourceReferences, ReasonUnknownEntry)
	slices.SortStableFunc(list, func(a, b symbol.Func) int { return cmp.Compare(a.Addr, b.Addr) })
	sortSites(fd.sites)
	fd.im.funcs, fd.swept = functions{list: list}, nil
	return true
}

// detours gives sites that have room for a short jump only the padding that it goes to, in the order of their addresses, and then
// functions of OCaml's that are cramped.
func (fd *finder) detours(f *plain.Finder, brief map[int]plain.Entry, cramped []int) {
	if len(brief)+len(cramped) == 0 {
		return
	}
	places := slices.Sorted(maps.Keys(brief))
	pads := f.Pads(func(yield func(lo, hi uint64) bool) {
		for i := range fd.sites {
			s := &fd.sites[i]
			if e, ok := brief[i]; ok && !yield(e.Addr, e.Addr+uint64(e.Len)) || s.Len > 0 && !yield(s.Addr, s.End()) {
				return
			}
			for r := range s.runs() {
				if !yield(r.Addr, r.Addr+uint64(max(r.Len, r.Room))) {
					return
				}
			}
		}
	})
	for _, i := range places {
		e := brief[i]
		if via := pads.Take(e); via != 0 {
			e.Refusal = ""
			fd.sites[i].Reason = ReasonNoSite
			fd.displaced(&fd.sites[i], e, via)
		}
	}
	for _, i := range cramped {
		s := &fd.sites[i]
		s.Reason = ReasonNoSite
		fd.ocaml(s, f, fd.im.funcs.at(s.Func), pads)
	}
}

// sweep is what is known of all code, which is decoded the first time that it is asked for.
func (fd *finder) sweep() (f *plain.Finder, err error) {
	if fd.swept == nil {
		read := plain.New
		if fd.golang != nil {
			read = plain.NewC
		}
		if fd.swept, err = read(fd.im.f, fd.im.code, fd.im.funcs.list, fd.im.addresses()); err != nil {
			return nil, fmt.Errorf("functions without sites: %w", err)
		}
	}
	return fd.swept, nil
}

// wanted tells the functions whose first instructions are to be their sites; nil: none.
func (fd *finder) wanted() func(*Site) bool {
	switch {
	case fd.o.Plain == PlainAll || !fd.hasSite((*Site).Traceable):
		return (*Site).unprepared
	case fd.o.Named.hasNames():
		return func(s *Site) bool { return s.unprepared() && fd.named(s) }
	}
	return nil
}

// unprepared tells functions that no compiler has prepared, or not enough.
func (s *Site) unprepared() bool {
	return s.Reason == ReasonNoSite ||
		s.Kind == KindPatchable && (s.Reason == ReasonShortSite || s.Reason == ReasonShortFunction)
}

// named reports whether a pattern is one of the function's names.
func (fd *finder) named(s *Site) bool {
	return fd.o.Named.Names(s.Name) || slices.ContainsFunc(s.Aliases, fd.o.Named.Names)
}

// hasSite reports whether one of the sites is such.
func (fd *finder) hasSite(such func(*Site) bool) bool {
	for i := range fd.sites {
		if such(&fd.sites[i]) {
			return true
		}
	}
	return false
}

// displaced makes a function's first instructions its site, unless there is a reason against it. via: see [Site].
func (fd *finder) displaced(s *Site, e plain.Entry, via uint64) {
	site := *s
	site.Addr, site.Len, site.Moved, site.Kind, site.Ret, site.Reason = e.Addr, e.Len, e.Moved, KindPlain, fd.m.atEntry(), ""
	site.Via, site.Catches, site.Untabled, site.Swaps = via, e.Catches, e.Untabled, e.Swaps
	if e.Signed {
		site.Ret = RetSignedLR
	}
	if e.Refusal != "" {
		site.Addr, site.Len, site.Moved = s.Addr, 0, 0
	}
	fd.complete(&site)
	fd.exclude(&site)
	if site.Reason == "" {
		site.Reason = Reason(e.Refusal)
	}
	if site.Reason == "" && e.Calls && site.marksStack() {
		site.Reason = ReasonStackMark
	}
	if s.Reason = site.Reason; s.Reason == "" {
		*s = site
	}
}

// ocaml has a function of OCaml's be traced in place, unless there is a reason against it.
func (fd *finder) ocaml(s *Site, f *plain.Finder, k int, pads *plain.Pads) {
	m, why := f.OCamlMoves(k, pads)
	site := *s
	site.Kind, site.Ret, site.Reason = KindOCaml, fd.m.atEntry(), Reason(why)
	fd.complete(&site)
	fd.exclude(&site)
	if s.Reason = site.Reason; s.Reason == "" {
		site.Moves = &m
		*s = site
	}
}

// runs are the runs of instructions of which others take the place.
func (s *Site) runs() iter.Seq[*moves.Run] {
	return func(yield func(*moves.Run) bool) {
		if s.Moves == nil {
			return
		}
		for i := range s.Moves.Runs {
			if !yield(&s.Moves.Runs[i]) {
				return
			}
		}
	}
}

// marksStack reports whether somebody looks for the function's name on the stack. Rust shows of a panic's stack what is
// between two such functions, and finds names by addresses in the program's file, where displaced code is not.
func (s *Site) marksStack() bool {
	mark := func(name string) bool {
		return strings.Contains(name, "__rust_end_short_backtrace") ||
			strings.Contains(name, "__rust_begin_short_backtrace")
	}
	return mark(s.Name) || slices.ContainsFunc(s.Aliases, mark)
}

// addresses are those that dynamic relocations write.
func (im *image) addresses() []uint64 {
	var out []uint64
	syms := im.tab.DynamicSymbols()
	for i := range im.relocs {
		r := &im.relocs[i]
		switch r.Type {
		case im.m.relocs.relative, im.m.relocs.irelative:
			out = append(out, uint64(r.Addend))
		case im.m.relocs.word:
			if r.Sym != 0 && uint64(r.Sym) <= uint64(len(syms)) {
				out = append(out, syms[r.Sym-1].Value+uint64(r.Addend))
			}
		}
	}
	return out
}
