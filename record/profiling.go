package record

import (
	"cmp"
	"debug/elf"
	"slices"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/symbol"
)

// Profiling calls.
//
// With -pg alone no table tells where the calls are, so all code is searched for them. Bytes that look like a call are
// found in data and inside of other instructions too; what makes one a call is where it goes. So everything begins with
// the addresses that lead to a profiling function: the function itself, by its symbol, or by its code in a program
// without symbols (amd64proof.go, arm64proof.go); words that hold its address at run time, by the relocations that fill
// them or by what the linker has put there; the stubs and veneers that linkers make. A place that calls one of these is
// a candidate; entry.go says whether an instruction begins there and what function it belongs to.
//
// The invariant is that a call is never taken for a profiling call because many functions have it, or because of a name
// that programs may use themselves: it will be overwritten. A function named mcount must look like a profiling
// function, too. A table of calls is the only other evidence: what all its entries call is one (finder.believe).

// profClass is the contract a profiling function has with its callers.
type profClass uint8

const (
	profNone   profClass = iota
	profFentry           // called before the prologue: return address of the traced function at 8(%rsp) inside it
	profMcount           // called behind the prologue: at 8(%rbp)
	profListed           // one of them: a table lists its calls, nothing names it
)

// profiling knows which addresses and which words of memory lead to a profiling function.
type profiling struct {
	targets map[uint64]profClass // address of the function or of a stub that jumps to it
	slots   map[uint64]profClass // address of a word that holds the function's address at run time
	entries map[uint64]profClass // only the functions themselves
}

func (p *profiling) empty() bool { return len(p.targets) == 0 && len(p.slots) == 0 }

// findProfiling resolves the profiling functions of the image: by symbol, and by the relocations that put their
// addresses into words (the global offset table, .got.plt).
func findProfiling(im *image, names map[string]profClass) *profiling {
	p := &profiling{targets: map[uint64]profClass{}, slots: map[uint64]profClass{}, entries: map[uint64]profClass{}}
	p.fromSymbols(im, names)
	p.fromRelocs(im, names)
	if p.empty() && len(im.tab.Symbols()) == 0 {
		im.m.profilersIn(im, p)
	}
	p.fromWords(im)
	im.m.stubs(im, p)
	return p
}

// fromSymbols takes the functions defined in the image. __fentry__ and _mcount are names only an implementation may
// use; mcount is not, so a function of that name must look like a profiling function.
func (p *profiling) fromSymbols(im *image, names map[string]profClass) {
	var doubtful []uint64
	// Nearly all other names are told by their first two bytes.
	var begins [1 << 16]bool
	begin := func(name string) uint16 {
		if len(name) < 2 {
			return 0
		}
		return uint16(name[0]) | uint16(name[1])<<8
	}
	for n := range names {
		begins[begin(n)] = true
		if len(n) == 1 {
			begins[begin(n+"@")] = true // with a version
		}
	}
	take := func(syms []elfio.Symbol) {
		for i := range syms {
			s := &syms[i]
			if !begins[begin(s.Name)] {
				continue
			}
			cl := names[symbol.BaseName(s.Name)]
			if cl == profNone || !s.Defined() || im.code.Region(s.Value) == nil {
				continue
			}
			if t := s.Type(); t != elf.STT_FUNC && t != elf.STT_NOTYPE && t != elf.STT_GNU_IFUNC {
				continue
			}
			if symbol.BaseName(s.Name) == "mcount" {
				doubtful = append(doubtful, s.Value)
				continue
			}
			p.targets[s.Value] = cl
		}
	}
	take(im.tab.Symbols())
	take(im.tab.DynamicSymbols())
	for _, a := range doubtful {
		if p.targets[a] == profNone && im.m.isProfiler(im.code.From(a)) {
			p.targets[a] = profMcount
		}
	}
	for a, cl := range p.targets {
		p.entries[a] = cl
	}
}

// fromRelocs takes the words the dynamic linker fills with the address of a profiling function.
func (p *profiling) fromRelocs(im *image, names map[string]profClass) {
	class := make(map[uint32]profClass)
	for i := range im.tab.DynamicSymbols() {
		if cl := names[symbol.BaseName(im.tab.DynamicSymbols()[i].Name)]; cl != profNone {
			if s := &im.tab.DynamicSymbols()[i]; s.Defined() && p.targets[s.Value] == profNone {
				continue // a function of the program that happens to be named mcount
			}
			class[im.tab.DynamicSymbols()[i].Index] = cl
		}
	}
	for i := range im.relocs {
		r := &im.relocs[i]
		switch t := &im.m.relocs; r.Type {
		case t.gotEntry, t.pltEntry, t.word:
			if cl := class[r.Sym]; cl != profNone && r.Addend == 0 {
				p.slots[r.Off] = cl
			}
		case t.relative:
			if cl := p.targets[uint64(r.Addend)]; cl != profNone {
				p.slots[r.Off] = cl
			}
		}
	}
}

// fromWords takes the words of a .got section whose contents are known at link time.
func (p *profiling) fromWords(im *image) {
	if len(p.targets) == 0 {
		return
	}
	for i := range im.f.Sections {
		s := &im.f.Sections[i]
		if s.Name != ".got" && s.Name != ".got.plt" || s.Type != elf.SHT_PROGBITS || s.Addr%8 != 0 {
			continue
		}
		b, err := im.f.SectionData(i)
		if err != nil {
			continue
		}
		for o := 0; o+8 <= len(b); o += 8 {
			if cl := p.targets[im.f.Order().Uint64(b[o:])]; cl != profNone {
				p.slots[s.Addr+uint64(o)] = cl
			}
		}
	}
}

// call is a recognised call instruction.
type call struct {
	addr   uint64
	len    int
	class  profClass
	target uint64 // the function, or the stub, or the word the call goes through
	slot   bool   // target is such a word
}

// calls finds every place in code that is a call of a profiling function, sorted by address. Whether an instruction
// begins there is for the caller to decide. starts tells places where one does.
func (p *profiling) calls(im *image) []call {
	if p.empty() {
		return nil
	}
	var out []call
	for i := range im.code.Regions {
		r := &im.code.Regions[i]
		if symbol.IsStubSection(r.Name) {
			continue
		}
		first := len(out)
		out = im.m.callsIn(p, r, im.startsAt, out)
		slices.SortFunc(out[first:], func(a, b call) int { return cmp.Compare(a.addr, b.addr) })
	}
	return out
}
