package record

import (
	"debug/elf"
	"fmt"
	"slices"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/record/code"
	"github.com/fentry-dev/fentry/symbol"
)

// image is everything of an ELF file that finding sites needs, read once.
type image struct {
	f         *elfio.File
	m         *machine
	code      *code.Text
	tab       *symbol.Table
	funcs     functions
	relocs    []elfio.Reloc // dynamic ones, or those of a static image's IFUNC table
	resolvers []uint64      // addresses called while relocations are applied, sorted
}

func load(f *elfio.File, tab *symbol.Table) (*image, error) {
	h := &f.Header
	m := machineOf(f)
	switch {
	case m == nil && !f.Is64() && (h.Machine == elf.EM_X86_64 || h.Machine == elf.EM_AARCH64):
		return nil, fmt.Errorf("the 32-bit ABI of %v is not supported", h.Machine)
	case m == nil:
		return nil, fmt.Errorf("machine %v is not supported, only EM_X86_64 and EM_AARCH64", h.Machine)
	case h.Type != elf.ET_EXEC && h.Type != elf.ET_DYN:
		return nil, fmt.Errorf("%v is not a linked program or shared object", h.Type)
	}
	im := &image{f: f, m: m, tab: tab}
	var err error
	if im.code, err = code.New(f); err != nil {
		return nil, err
	}
	if im.tab == nil {
		if im.tab, err = symbol.New(f); err != nil {
			return nil, err
		}
	}
	im.funcs = functions{list: im.tab.Funcs()}
	if im.relocs, err = f.DynamicRelocs(); err != nil {
		return nil, err
	}
	if len(im.relocs) == 0 {
		// A static program at a fixed address has no PT_DYNAMIC; its start-up code applies the IRELATIVE
		// relocations of .rela.plt itself.
		for i := range f.Sections {
			s := &f.Sections[i]
			if s.Type != elf.SHT_RELA || s.Flags&elf.SHF_ALLOC == 0 {
				continue
			}
			r, err := f.Relocs(i)
			if err != nil {
				return nil, err
			}
			im.relocs = append(im.relocs, r...)
		}
	}
	for i := range im.relocs {
		if r := &im.relocs[i]; r.Type == m.relocs.irelative {
			im.resolvers = append(im.resolvers, uint64(r.Addend))
		}
	}
	slices.Sort(im.resolvers)
	im.resolvers = slices.Compact(im.resolvers)
	return im, m.starts(im)
}

// aliases are the other names of a function.
func (im *image) aliases(fn *symbol.Func) []string {
	if !fn.Aliased {
		return nil
	}
	return im.tab.Aliases(fn.Addr)
}

// isResolver reports whether a function is called while relocations are applied, to choose an implementation.
func (im *image) isResolver(addr uint64) bool {
	if _, ok := slices.BinarySearch(im.resolvers, addr); ok {
		return true
	}
	i := im.funcs.at(addr)
	return i >= 0 && im.funcs.list[i].Ifunc
}
