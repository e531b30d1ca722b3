package record

import (
	"debug/elf"
	"fmt"
	"slices"

	"github.com/fentry-dev/fentry/elfio"
)

// image is everything of an ELF file that finding sites needs, read once.
type image struct {
	f         *elfio.File
	code      *code
	syms      []elfio.Symbol // .symtab
	dynsyms   []elfio.Symbol
	relocs    []elfio.Reloc // dynamic ones, or those of a static image's IFUNC table
	fdes      []elfio.FDE
	resolvers []uint64 // addresses called while relocations are applied, sorted
	funcs     *functions
}

func load(f *elfio.File) (*image, error) {
	h := &f.Header
	switch {
	case h.Machine != elf.EM_X86_64:
		return nil, fmt.Errorf("machine %v is not supported, only EM_X86_64", h.Machine)
	case !f.Is64():
		return nil, fmt.Errorf("the 32-bit ABI of x86-64 (x32) is not supported")
	case h.Type != elf.ET_EXEC && h.Type != elf.ET_DYN:
		return nil, fmt.Errorf("%v is not a linked program or shared object", h.Type)
	}
	im := &image{f: f}
	var err error
	if im.code, err = findCode(f); err != nil {
		return nil, err
	}
	if im.syms, err = f.Symbols(); err != nil {
		return nil, err
	}
	if im.dynsyms, err = f.DynamicSymbols(); err != nil {
		return nil, err
	}
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
	if im.fdes, err = f.FDEs(); err != nil {
		return nil, err
	}
	for i := range im.relocs {
		if r := &im.relocs[i]; elf.R_X86_64(r.Type) == elf.R_X86_64_IRELATIVE {
			im.resolvers = append(im.resolvers, uint64(r.Addend))
		}
	}
	slices.Sort(im.resolvers)
	im.resolvers = slices.Compact(im.resolvers)
	im.funcs = findFunctions(im)
	return im, nil
}

// symbol returns the name of the dynamic symbol with that table index, "" when there is none.
func (im *image) dynamicName(index uint32) string {
	if index == 0 || uint64(index) > uint64(len(im.dynsyms)) {
		return ""
	}
	return baseName(im.dynsyms[index-1].Name)
}

// word reads the 8-byte word at a loaded address.
func (im *image) word(addr uint64) (uint64, bool) {
	b, err := im.f.Bytes(addr, 8)
	if err != nil {
		return 0, false
	}
	return im.f.Order().Uint64(b), true
}
