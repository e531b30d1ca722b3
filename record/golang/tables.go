package golang

import (
	"bytes"
	"cmp"
	"debug/elf"
	"errors"
	"fmt"
	"slices"
)

// Where the tables are.
//
// pclntab is a section of its own. What else there is says moduledata, the runtime's description of the code that has been
// linked together, which has no section in all versions and no symbol in a stripped program. It is data with addresses,
// so in a position-independent image it is what relocations make of it.

// pclnMagic is that of Go 1.20 and later.
const pclnMagic = 0xfffffff1

// readTables finds the tables: their places are in pclntab's header, and what is not there in moduledata.
func (im *Image) readTables(section int) error {
	b, err := im.f.SectionData(section)
	if err != nil {
		return err
	}
	const header = 72
	if len(b) < header || le.Uint32(b) != pclnMagic || uint64(b[6]) != im.Quantum() || b[7] != 8 {
		return fmt.Errorf("section %d: no header of this kind", section)
	}
	im.Pclntab = im.f.Sections[section].Addr
	sub := func(at int) ([]byte, error) {
		off := le.Uint64(b[at:])
		if off > uint64(len(b)) {
			return nil, fmt.Errorf("header word %#x: offset %#x behind its end", at, off)
		}
		return b[off:], nil
	}
	if im.names, err = sub(32); err != nil {
		return err
	}
	if im.pctab, err = sub(56); err != nil {
		return err
	}
	if im.pcln, err = sub(64); err != nil {
		return err
	}
	md, err := im.findModule(im.Pclntab, im.Pclntab+le.Uint64(b[32:]))
	if err != nil {
		return err
	}
	word := func(off int) uint64 { return le.Uint64(md[off:]) }
	im.FuncNames, im.CUTab, im.FileTab = word(mdFuncNames), word(mdCUTab), word(mdFileTab)
	im.lengths = [3]uint64{word(mdFuncNames + 8), word(mdCUTab + 8), word(mdFileTab + 8)}
	im.Pctab, im.TextStart, im.TextEnd = word(mdPctab), word(mdText), word(mdEText)
	if im.Version.Module() {
		im.Rodata, im.GoFunc = word(int(im.Version.Rodata)), word(int(im.Version.Rodata)+8)
	}
	if im.Pctab-im.Pclntab != le.Uint64(b[56:]) || im.TextEnd < im.TextStart || im.TextEnd-im.TextStart > uint64(len(im.f.Raw())) {
		return fmt.Errorf("moduledata at %#x: not that of this table", im.ModuleData)
	}
	if !im.Version.Module() && !im.isModule(b, word) {
		return fmt.Errorf("moduledata at %#x has another form", im.ModuleData)
	}
	im.text, err = im.f.Bytes(im.TextStart, int(im.TextEnd-im.TextStart))
	return err
}

// isModule reports whether all words of moduledata that are read are what pclntab, which has the same differently, says
// that they are.
func (im *Image) isModule(pclntab []byte, word func(off int) uint64) bool {
	for off, at := range map[int]int{mdFuncNames: 32, mdCUTab: 40, mdFileTab: 48, mdPctab: 56, mdFTab: 64} {
		n := word(off + 8)
		if word(off)-im.Pclntab != le.Uint64(pclntab[at:]) || n != word(off+16) || n > uint64(len(pclntab)) {
			return false
		}
	}
	from, to := word(mdMinPC), word(mdMaxPC)
	return word(mdFTab+8) == le.Uint64(pclntab[8:])+1 && from >= im.TextStart && from < to && to <= im.TextEnd
}

// A dataWord is a word that has an address once the image has been loaded, counted as the image is linked.
type dataWord struct{ addr, value uint64 }

// readWords finds the words that are relocated. In the file those of a position-independent image may have anything.
func (im *Image) readWords() error {
	relocs, err := im.f.DynamicRelocs()
	if err != nil {
		return err
	}
	relative := im.f.RelativeType()
	for _, r := range relocs {
		if r.Type == relative {
			im.words = append(im.words, dataWord{r.Off, uint64(r.Addend)})
		}
	}
	slices.SortStableFunc(im.words, func(a, b dataWord) int { return cmp.Compare(a.addr, b.addr) })
	return nil
}

// wordsFrom returns the relocated words from an address on.
func (im *Image) wordsFrom(addr uint64) []dataWord {
	i, _ := slices.BinarySearchFunc(im.words, addr, func(w dataWord, a uint64) int { return cmp.Compare(w.addr, a) })
	return im.words[i:]
}

// data returns bytes of the image as they are once it has been loaded.
func (im *Image) data(addr uint64, n int) ([]byte, error) {
	b, err := im.f.Bytes(addr, n)
	if err != nil {
		return nil, err
	}
	b = bytes.Clone(b)
	for _, w := range im.wordsFrom(addr) {
		if w.addr-addr > uint64(n-8) {
			break
		}
		le.PutUint64(b[w.addr-addr:], w.value)
	}
	return b, nil
}

// findModule finds moduledata, which no symbol names in a stripped program: its first two words are the addresses of
// pclntab and of the names of functions in it.
func (im *Image) findModule(first, second uint64) ([]byte, error) {
	for i, w := range im.words {
		if i+1 < len(im.words) && w.value == first && im.words[i+1] == (dataWord{w.addr + 8, second}) {
			return im.module(w.addr)
		}
	}
	want := le.AppendUint64(le.AppendUint64(nil, first), second)
	for i := range im.f.Progs {
		p := &im.f.Progs[i]
		if p.Type != elf.PT_LOAD || p.Flags&elf.PF_W == 0 {
			continue
		}
		b, err := im.f.ProgData(i)
		if err != nil {
			return nil, err
		}
		if at := bytes.Index(b, want); at >= 0 {
			return im.module(p.Vaddr + uint64(at))
		}
	}
	return nil, errors.New("nothing refers to it")
}

// module reads moduledata.
func (im *Image) module(addr uint64) ([]byte, error) {
	md, err := im.data(addr, int(im.Version.Size))
	if err != nil {
		return nil, err
	}
	im.ModuleData = addr
	if im.Version.Module() {
		im.next = le.Uint64(md[im.Version.Next:])
	}
	return md, nil
}

// findInterior finds the addresses in code that data has, beside those of functions: where tables of jumps lead.
func (im *Image) findInterior() {
	im.interior = map[uint64]bool{}
	pcln := pclnSection(im.f)
	for i := range im.f.Sections {
		s := &im.f.Sections[i]
		if i == pcln || s.Flags&elf.SHF_ALLOC == 0 || s.Type == elf.SHT_NOBITS || s.Flags&elf.SHF_EXECINSTR != 0 {
			continue
		}
		b, err := im.f.SectionData(i)
		if err != nil {
			continue
		}
		for o := int(-s.Addr % 8); o+8 <= len(b); o += 8 {
			im.pointsTo(le.Uint64(b[o:]))
		}
	}
	for _, w := range im.words {
		im.pointsTo(w.value)
	}
}

// pointsTo notes an address that data has, if it is inside a function.
func (im *Image) pointsTo(a uint64) {
	if a-im.TextStart >= uint64(len(im.text)) {
		return
	}
	if _, entry := im.find(a); !entry {
		im.interior[a] = true
	}
}
