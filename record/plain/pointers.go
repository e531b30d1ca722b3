package plain

import (
	"debug/elf"
	"encoding/binary"

	"github.com/fentry-dev/fentry/elfio/ehframe"
	"github.com/fentry-dev/fentry/symbol"
)

// Addresses of code that no branch shows: what relocations and words of data hold, what symbols name, and what unwinders
// go to.

// pointers marks the addresses that the image's data can hold.
func (f *Finder) pointers() {
	for _, a := range f.refs {
		f.marks.add(a, pointed)
	}
	for i := range f.funcs {
		if f.funcs[i].Source == symbol.SourceDynsym {
			f.marks.add(f.funcs[i].Addr, pointed)
		}
	}
	if !f.fixed {
		return // every address is in a relocation
	}
	for _, p := range f.file.Progs {
		if p.Type != elf.PT_LOAD || p.Filesz == 0 || p.Filesz > uint64(len(f.file.Raw())) {
			continue
		}
		b, err := f.file.Bytes(p.Vaddr, int(p.Filesz))
		if err != nil {
			continue
		}
		for o := -p.Vaddr & 7; o+8 <= uint64(len(b)); o += 8 {
			if v := binary.LittleEndian.Uint64(b[o:]); v >= f.marks.lo && v < f.marks.hi {
				f.marks.add(v, pointed)
			}
		}
	}
}

// landingPads marks what unwinders go to, and notes the functions whose language-specific data cannot be read, and the
// call sites at the beginning of the others.
func (f *Finder) landingPads(t *ehframe.Table) {
	f.unread, f.early = map[uint64]bool{}, map[uint64][]ehframe.CallSite{}
	budget := len(f.file.Raw())
	var calls []ehframe.CallSite
	for d := range t.All() {
		if d.LSDA == 0 {
			continue
		}
		n, err := 0, error(nil)
		calls, n, err = d.AppendCallSites(f.file, calls[:0], budget)
		if budget -= n; err != nil {
			f.unread[d.PC] = true
			continue
		}
		for _, c := range calls {
			if c.Lo < d.PC+beginning {
				f.early[d.PC] = append(f.early[d.PC], c)
			}
			if c.Pad != 0 {
				f.marks.add(c.Pad, landingPad)
			}
		}
	}
}

// beginning is more than is displaced: a landing pad and five bytes, the last of them that of an instruction.
const beginning = 32
