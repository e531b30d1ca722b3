package elfio

import (
	"debug/elf"
)

// Tags of generic ABI relative relocations (gABI, "Relative Relocation Table"); debug/elf lacks them.
const (
	dtRelrsz  = elf.DynTag(35)
	dtRelr    = elf.DynTag(36)
	dtRelrent = elf.DynTag(37)
)

// Reloc is a relocation of either form, REL or RELA. For REL, whose addend is in the relocated place, Addend is 0.
type Reloc struct {
	Off    uint64 // section offset in relocatable objects, address in images
	Type   uint32
	Sym    uint32 // symbol index, 0 if none
	Addend int64
}

// Relocs returns the relocations of section i, which must be of type SHT_REL, SHT_RELA or SHT_RELR.
func (f *File) Relocs(i int) ([]Reloc, error) {
	data, err := f.SectionData(i)
	if err != nil {
		return nil, err
	}
	switch t := f.Sections[i].Type; t {
	case elf.SHT_RELA:
		return f.decodeRelocs(nil, data, true), nil
	case elf.SHT_REL:
		return f.decodeRelocs(nil, data, false), nil
	case shtRelr:
		return f.decodeRelr(nil, data, f.SectionLabel(i), f.Sections[i].Off)
	default:
		return nil, FormatErrorf(f.SectionLabel(i), f.Sections[i].Off, "%v is no relocation table", t)
	}
}

const shtRelr = elf.SectionType(19)

// DynamicRelocs returns the relocations that the dynamic linker applies: DT_RELA, DT_REL, DT_RELR and DT_JMPREL in
// that order. They are found through the program headers. An entry of DT_RELR is returned with the machine's relative
// type and the addend stored in the place it relocates.
func (f *File) DynamicRelocs() ([]Reloc, error) {
	d, err := f.dynamicInfo()
	if err != nil || d == nil {
		return nil, err
	}
	var out []Reloc
	table := func(what string, addr, size uint64) ([]byte, uint64, error) {
		if size == 0 {
			return nil, 0, nil
		}
		b, off := f.From(addr)
		if size > uint64(len(b)) {
			return nil, 0, FormatErrorf(what, off, "%#x bytes at address %#x end outside the loaded segments", size, addr)
		}
		return b[:size], off, nil
	}
	b, _, err := table("DT_RELA", d.rela, d.relasz)
	if err != nil {
		return nil, err
	}
	out = f.decodeRelocs(out, b, true)
	if b, _, err = table("DT_REL", d.rel, d.relsz); err != nil {
		return nil, err
	}
	out = f.decodeRelocs(out, b, false)
	b, off, err := table("DT_RELR", d.relr, d.relrsz)
	if err != nil {
		return nil, err
	}
	if out, err = f.decodeRelr(out, b, "DT_RELR", off); err != nil {
		return nil, err
	}
	if b, _, err = table("DT_JMPREL", d.jmprel, d.pltrelsz); err != nil {
		return nil, err
	}
	// Some linkers let DT_RELASZ cover the PLT relocations too; take those once.
	if d.jmprel < d.rela || d.jmprel-d.rela >= d.relasz {
		out = f.decodeRelocs(out, b, elf.DynTag(d.pltrel) == elf.DT_RELA)
	}
	return out, nil
}

// decodeRelocs appends the relocations of a REL or RELA table to out. A partial last entry is ignored.
func (f *File) decodeRelocs(out []Reloc, b []byte, rela bool) []Reloc {
	size := f.c.RelSize()
	if rela {
		size = f.c.RelaSize()
	}
	if out == nil {
		out = make([]Reloc, 0, uint64(len(b))/size)
	}
	mips, _ := f.relocForm()
	for ; uint64(len(b)) >= size; b = b[size:] {
		out = append(out, readReloc(f.c, b, rela, mips))
	}
	return out
}

// decodeRelr appends the relocations of a RELR table to out: an even word is the address of a place,
// an odd one a bitmap of the 31 or 63 words that follow the last place covered.
func (f *File) decodeRelr(out []Reloc, b []byte, what string, off uint64) ([]Reloc, error) {
	word := f.c.WordSize()
	typ := f.RelativeType()
	// Every place is a word of the file, so more places than words is nonsense that would only cost memory.
	budget := uint64(len(f.raw)) / word
	var where uint64
	add := func(at uint64) bool {
		if budget == 0 {
			return false
		}
		budget--
		r := Reloc{Off: at, Type: typ}
		if place, _ := f.From(at); uint64(len(place)) >= word {
			r.Addend = int64(f.c.Word(place))
			if !f.c.Is64 {
				r.Addend = int64(int32(r.Addend))
			}
		}
		out = append(out, r)
		return true
	}
	for ; uint64(len(b)) >= word; b, off = b[word:], off+word {
		e := f.c.Word(b)
		if e&1 == 0 {
			if !add(e) {
				return nil, FormatErrorf(what, off, "more relocations than the file has words")
			}
			where = e + word
			continue
		}
		for at, bits := where, e>>1; bits != 0; at, bits = at+word, bits>>1 {
			if bits&1 != 0 && !add(at) {
				return nil, FormatErrorf(what, off, "more relocations than the file has words")
			}
		}
		where += (8*word - 1) * word
	}
	return out, nil
}

// IsSlot reports whether a dynamic relocation of a type makes a word hold the address of its symbol, for code that goes
// through the word: R_*_JUMP_SLOT and R_*_GLOB_DAT (psABIs).
func (f *File) IsSlot(typ uint32) bool {
	switch f.Header.Machine {
	case elf.EM_X86_64:
		return typ == uint32(elf.R_X86_64_JMP_SLOT) || typ == uint32(elf.R_X86_64_GLOB_DAT)
	case elf.EM_AARCH64:
		return typ == uint32(elf.R_AARCH64_JUMP_SLOT) || typ == uint32(elf.R_AARCH64_GLOB_DAT)
	}
	return false
}

// RelativeType returns the machine's R_*_RELATIVE, the type of relocations that add the load address to a word, or 0
// if it is not known. Values are from the psABIs; debug/elf lacks some.
func (f *File) RelativeType() uint32 {
	switch f.Header.Machine {
	case elf.EM_X86_64:
		return uint32(elf.R_X86_64_RELATIVE)
	case elf.EM_386:
		return uint32(elf.R_386_RELATIVE)
	case elf.EM_AARCH64:
		return uint32(elf.R_AARCH64_RELATIVE)
	case elf.EM_ARM:
		return uint32(elf.R_ARM_RELATIVE)
	case elf.EM_PPC, elf.EM_PPC64: // they have one number
		return uint32(elf.R_PPC64_RELATIVE)
	case elf.EM_RISCV:
		return uint32(elf.R_RISCV_RELATIVE)
	case elf.EM_S390:
		return uint32(elf.R_390_RELATIVE)
	case elf.EM_SPARCV9:
		return uint32(elf.R_SPARC_RELATIVE)
	case elf.EM_LOONGARCH:
		return uint32(elf.R_LARCH_RELATIVE)
	case elf.EM_SH:
		return 165 // R_SH_RELATIVE
	}
	return 0
}
