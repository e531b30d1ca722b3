package record

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"slices"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/symbol"
)

// profClass is the contract a profiling function has with its callers.
type profClass uint8

const (
	profNone   profClass = iota
	profFentry           // called before the prologue: return address of the traced function at 8(%rsp) inside it
	profMcount           // called behind the prologue: at 8(%rbp)
	profListed           // one of them: a table lists its calls, nothing names it
)

// profilingNames are the functions compilers call for -pg on x86-64: gcc and clang name mcount, glibc defines _mcount
// and mcount, -mfentry names __fentry__ everywhere.
var profilingNames = map[string]profClass{
	"__fentry__": profFentry,
	"mcount":     profMcount,
	"_mcount":    profMcount,
}

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
		p.fromCode(im)
	}
	p.fromWords(im)
	p.stubs(im)
	return p
}

// fromSymbols takes the functions defined in the image. __fentry__ and _mcount are names only an implementation may
// use; mcount is not, so a function of that name must look like a profiling function.
func (p *profiling) fromSymbols(im *image, names map[string]profClass) {
	var doubtful []uint64
	take := func(syms []elfio.Symbol) {
		for i := range syms {
			s := &syms[i]
			cl := names[symbol.BaseName(s.Name)]
			if cl == profNone || !s.Defined() || im.code.find(s.Value) == nil {
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
		if p.targets[a] == profNone && isProfiler(im.code.at(a)) {
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
		switch elf.R_X86_64(r.Type) {
		case elf.R_X86_64_GLOB_DAT, elf.R_X86_64_JMP_SLOT, elf.R_X86_64_64:
			if cl := class[r.Sym]; cl != profNone && r.Addend == 0 {
				p.slots[r.Off] = cl
			}
		case elf.R_X86_64_RELATIVE:
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

// stubs finds the jumps through a known word that linkers make for direct calls of imported functions:
//
//	[f3 0f 1e fa  endbr64] [f2  bnd] ff 25 disp32  jmp *slot(%rip)
//	4c 8b 1d disp32  mov slot(%rip),%r11           (-z retpolineplt)
func (p *profiling) stubs(im *image) {
	if len(p.slots) == 0 {
		return
	}
	for i := range im.code.regions {
		r := &im.code.regions[i]
		if r.name != "" && !symbol.IsStubSection(r.name) && r.name != ".text" {
			continue
		}
		for _, op := range [][]byte{{0xff, 0x25}, {0x4c, 0x8b, 0x1d}} {
			for at := 0; ; {
				k := bytes.Index(r.data[at:], op)
				if k < 0 {
					break
				}
				at += k
				d := at + len(op)
				if d+4 > len(r.data) {
					break
				}
				next := r.addr + uint64(d) + 4
				slot := next + uint64(int64(int32(binary.LittleEndian.Uint32(r.data[d:]))))
				if cl := p.slots[slot]; cl != profNone {
					p.addStub(r, at, cl)
				}
				at++
			}
		}
	}
}

// addStub makes every address a call to the stub at offset at can have known.
func (p *profiling) addStub(r *region, at int, cl profClass) {
	p.targets[r.addr+uint64(at)] = cl
	if at > 0 && r.data[at-1] == 0xf2 {
		at--
		p.targets[r.addr+uint64(at)] = cl
	}
	if at >= 4 && string(r.data[at-4:at]) == endbr64 {
		p.targets[r.addr+uint64(at-4)] = cl
	}
}

// endbr64 is the landing pad of indirect branches, first in a function compiled with -fcf-protection.
const endbr64 = "\xf3\x0f\x1e\xfa"

// call is a recognised call instruction.
type call struct {
	addr   uint64
	len    int
	class  profClass
	target uint64 // the function, or the stub, or the word the call goes through
}

// callAt recognises a call of a profiling function at the start of b, which lies at addr:
//
//	e8 rel32            call stub
//	67 e8 rel32         addr32 call stub: what linkers make of the next one when the stub is near
//	ff 15 disp32        call *slot(%rip)
//	49 ba imm64         movabs $stub,%r10       (-mcmodel=large)
//	41 ff d2            call *%r10
func (p *profiling) callAt(b []byte, addr uint64) (call, bool) {
	rel := func(o int) uint64 {
		return addr + uint64(o) + 4 + uint64(int64(int32(binary.LittleEndian.Uint32(b[o:]))))
	}
	switch {
	case len(b) >= 5 && b[0] == 0xe8:
		t := rel(1)
		return call{addr, 5, p.targets[t], t}, true
	case len(b) >= 6 && b[0] == 0x67 && b[1] == 0xe8:
		t := rel(2)
		return call{addr, 6, p.targets[t], t}, true
	case len(b) >= 6 && b[0] == 0xff && b[1] == 0x15:
		t := rel(2)
		return call{addr, 6, p.slots[t], t}, true
	case len(b) >= 13 && b[0] == 0x49 && b[1] == 0xba && b[10] == 0x41 && b[11] == 0xff && b[12] == 0xd2:
		t := binary.LittleEndian.Uint64(b[2:])
		return call{addr, 13, p.targets[t], t}, true
	}
	return call{}, false
}

// calls finds every byte sequence in code that is a call of a profiling function, sorted by address. A direct call is
// told by four bytes that name one of a handful of targets; whether an instruction begins there is for the caller to
// decide. starts tells places where one does.
func (p *profiling) calls(c *code, starts func(uint64) bool) []call {
	if p.empty() {
		return nil
	}
	var out []call
	for i := range c.regions {
		r := &c.regions[i]
		if symbol.IsStubSection(r.name) {
			continue
		}
		first := len(out)
		p.scan(r, "\xe8", starts, &out)
		if len(p.slots) > 0 {
			p.scan(r, "\xff\x15", starts, &out)
		}
		p.scan(r, "\x49\xba", starts, &out)
		slices.SortFunc(out[first:], func(a, b call) int { return cmpUint(a.addr, b.addr) })
	}
	return out
}

// scan tries callAt wherever an opcode stands.
func (p *profiling) scan(r *region, opcode string, starts func(uint64) bool, out *[]call) {
	// The last byte is looked for: it is the rarer one.
	back := len(opcode) - 1
	for at := back; at < len(r.data); at++ {
		k := bytes.IndexByte(r.data[at:], opcode[back])
		if k < 0 {
			return
		}
		at += k
		start := at - back
		if back > 0 && r.data[start] != opcode[0] {
			continue
		}
		if back == 0 && start > 0 && r.data[start-1] == 0x67 && !starts(r.addr+uint64(start)) {
			start-- // the prefix of a relaxed call, not the end of what stands before
		}
		if cl, ok := p.callAt(r.data[start:], r.addr+uint64(start)); ok && cl.class != profNone {
			*out = append(*out, cl)
		}
	}
}
