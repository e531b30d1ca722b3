package elfio

import (
	"bytes"
	"debug/elf"
	"slices"

	"github.com/fentry-dev/fentry/elfio/internal/raw"
)

// Dyn is an entry of the dynamic section.
type Dyn struct {
	Tag elf.DynTag
	Val uint64
	Off uint64 // file offset of the entry
}

// Dynamic returns the entries of the dynamic section up to the first DT_NULL, which is left out, or nil if the image
// has none. It is found through PT_DYNAMIC or, without program headers, by its section.
func (f *File) Dynamic() ([]Dyn, error) {
	all, err := f.dynamicEntries()
	if err != nil {
		return nil, err
	}
	for i := range all {
		if all[i].Tag == elf.DT_NULL {
			return all[:i:i], nil
		}
	}
	return all, nil
}

// Soname returns the name that a shared library has given itself (DT_SONAME), "" if it has none.
func (f *File) Soname() (string, error) {
	d, err := f.dynamicInfo()
	if err != nil || d == nil {
		return "", err
	}
	e, ok := d.entries[elf.DT_SONAME]
	if !ok || e.Val >= d.strsz {
		return "", nil
	}
	const longest = 4096 // PATH_MAX
	b, err := f.Bytes(d.strtab+e.Val, int(min(d.strsz-e.Val, longest)))
	if err != nil {
		return "", err
	}
	b, _, _ = bytes.Cut(b, []byte{0})
	return string(b), nil
}

// SpareDynamic returns the DT_NULL entries of the dynamic section that may be overwritten: all but the last.
func (f *File) SpareDynamic() ([]Dyn, error) {
	all, err := f.dynamicEntries()
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(all, func(d Dyn) bool { return d.Tag == elf.DT_NULL })
	if i < 0 {
		return nil, nil
	}
	for k := i; k < len(all); k++ {
		if all[k].Tag != elf.DT_NULL {
			return nil, nil // something lives behind the terminator
		}
	}
	return all[i : len(all)-1], nil
}

// dynamicEntries returns every entry of the dynamic section, with the spare DT_NULLs at its end.
func (f *File) dynamicEntries() ([]Dyn, error) {
	data, off, err := f.dynamicData()
	if err != nil || data == nil {
		return nil, err
	}
	size := f.c.DynSize()
	out := make([]Dyn, 0, uint64(len(data))/size)
	for ; uint64(len(data)) >= size; data, off = data[size:], off+size {
		tag := f.c.Word(data)
		if !f.c.Is64 {
			tag = uint64(int32(tag))
		}
		out = append(out, Dyn{Tag: elf.DynTag(tag), Val: f.c.Word(data[size/2:]), Off: off})
	}
	return out, nil
}

func (f *File) dynamicData() (data []byte, off uint64, err error) {
	for i, p := range f.Progs {
		if p.Type == elf.PT_DYNAMIC {
			if p.Filesz == 0 {
				return nil, 0, nil // a separate debug file
			}
			data, err = f.ProgData(i)
			return data, p.Off, err
		}
	}
	if i := f.sectionOfType(elf.SHT_DYNAMIC); i >= 0 {
		data, err = f.SectionData(i)
		return data, f.Sections[i].Off, err
	}
	return nil, 0, nil
}

// dynamicInfo holds the values of the dynamic entries that locate tables. An absent one is 0.
type dynamicInfo struct {
	symtab, strtab, strsz    uint64
	hash, gnuHash, versym    uint64
	rela, relasz             uint64
	rel, relsz               uint64
	relr, relrsz             uint64
	jmprel, pltrelsz, pltrel uint64
	entries                  map[elf.DynTag]Dyn
}

// dynamicInfo reads the dynamic section; nil when the image has none.
func (f *File) dynamicInfo() (*dynamicInfo, error) {
	entries, err := f.Dynamic()
	if err != nil || entries == nil {
		return nil, err
	}
	d := &dynamicInfo{entries: make(map[elf.DynTag]Dyn, len(entries))}
	for _, e := range entries {
		if e.Tag != elf.DT_NEEDED {
			d.entries[e.Tag] = e
		}
	}
	v := func(t elf.DynTag) uint64 { return d.entries[t].Val }
	d.symtab, d.strtab, d.strsz = v(elf.DT_SYMTAB), v(elf.DT_STRTAB), v(elf.DT_STRSZ)
	d.hash, d.gnuHash, d.versym = v(elf.DT_HASH), v(elf.DT_GNU_HASH), v(elf.DT_VERSYM)
	d.rela, d.relasz = v(elf.DT_RELA), v(elf.DT_RELASZ)
	d.rel, d.relsz = v(elf.DT_REL), v(elf.DT_RELSZ)
	d.relr, d.relrsz = v(dtRelr), v(dtRelrsz)
	d.jmprel, d.pltrelsz, d.pltrel = v(elf.DT_JMPREL), v(elf.DT_PLTRELSZ), v(elf.DT_PLTREL)
	return d, nil
}

// dynsymCount returns the number of dynamic symbols, the null symbol included. No dynamic entry holds
// it; the hash tables do (gABI "Hash Table": nchain; DT_GNU_HASH: the end of the last chain), and an
// image that exports nothing may have only the symbols its relocations name.
func (f *File) dynsymCount(d *dynamicInfo) (uint64, error) {
	if d.hash != 0 {
		b, off := f.From(d.hash)
		// Alpha and 64-bit S390 have 8-byte hash words; their nchain is then the upper word.
		ent := uint64(4)
		if f.c.Is64 && (f.Header.Machine == elf.EM_S390 || f.Header.Machine == elf.EM_ALPHA) {
			ent = 8
		}
		if uint64(len(b)) < 2*ent {
			return 0, FormatErrorf("DT_HASH", off, "outside the loaded segments")
		}
		if ent == 8 {
			return f.c.Order.Uint64(b[8:]) & 0xffffffff, nil
		}
		return uint64(f.c.Order.Uint32(b[4:])), nil
	}
	n := uint64(0)
	if d.gnuHash != 0 {
		var err error
		if n, err = f.gnuHashCount(d.gnuHash); err != nil {
			return 0, err
		}
	}
	// Undefined symbols come first and may be all there are: the highest one named by a relocation.
	rels, err := f.DynamicRelocs()
	if err != nil {
		return 0, err
	}
	for _, r := range rels {
		n = max(n, uint64(r.Sym)+1)
	}
	return n, nil
}

func (f *File) gnuHashCount(addr uint64) (uint64, error) {
	b, off := f.From(addr)
	if len(b) < 16 {
		return 0, FormatErrorf("DT_GNU_HASH", off, "outside the loaded segments")
	}
	word := func(at int) uint64 { return uint64(f.c.Order.Uint32(b[at:])) }
	nbuckets, symoffset, bloom := word(0), word(4), word(8)
	buckets, ok := raw.Slice(b, 16+bloom*f.c.WordSize(), nbuckets*4)
	if !ok {
		return 0, FormatErrorf("DT_GNU_HASH", off, "%d buckets end outside the segment", nbuckets)
	}
	last := uint64(0)
	for ; len(buckets) >= 4; buckets = buckets[4:] {
		last = max(last, uint64(f.c.Order.Uint32(buckets)))
	}
	if last < symoffset {
		return symoffset, nil
	}
	for {
		e, ok := raw.Slice(b, 16+bloom*f.c.WordSize()+nbuckets*4+(last-symoffset)*4, 4)
		if !ok {
			return 0, FormatErrorf("DT_GNU_HASH", off, "the chain of symbol %d ends outside the segment", last)
		}
		last++
		if f.c.Order.Uint32(e)&1 != 0 {
			return last, nil
		}
	}
}
