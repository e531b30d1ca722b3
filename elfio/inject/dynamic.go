package inject

import (
	"debug/elf"
	"fmt"
	"slices"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/elfio/internal/raw"
)

// More work for the dynamic linker.
//
// The dynamic section cannot grow, but its entries only say where tables are. So a table that is to have more entries
// is copied, with the additions, to the new segment, and its entry in the dynamic section points there; linkers leave
// spare entries at the end for tags that are new. Symbols are added without a hash table to find them by: relocations
// refer to them by number.

// DynReloc is a dynamic relocation to add to an image.
type DynReloc struct {
	Off  uint64 // address relocated
	Type uint32 // machine's relocation type, such as R_X86_64_IRELATIVE
	// Irelative says that this is the machine's relocation of that name. Those may be among the relocations of the PLT,
	// too, where only they and jump slots may be.
	Irelative bool
	Addend    int64
	// Symbol is the symbol it refers to, "" if none. A symbol that the image's dynamic symbol table lacks is added as
	// a weak reference without a version.
	Symbol string
}

// DynExtension makes the dynamic linker apply additional relocations. The tables that grow are copied, with the
// additions, to memory that the caller adds; the originals stay, and the dynamic section points to the copies.
type DynExtension struct {
	Data  []byte          // for the address given, in RX; its length does not depend on that address
	Edits []elfio.RawEdit // of dynamic entries
	Moved []Moved         // the section headers of the copied tables
}

// dynAlign is the alignment DynExtension.Data needs.
const dynAlign = 8

// ExtendDynamic plans the addition of dynamic relocations. The copies of the tables start at address at, a
// multiple of 8. New relocations come last, so an IRELATIVE resolver runs after everything else is relocated.
//
// The given dynamic entries, such as DT_INIT, are set, too; their Off is ignored.
//
// It returns an error for an image that has no dynamic section, uses DT_REL, or has too few spare dynamic entries.
func ExtendDynamic(file *elfio.File, at uint64, relocs []DynReloc, entries ...elfio.Dyn) (*DynExtension, error) {
	f := newImage(file)
	d, err := f.dynamic()
	if err != nil {
		return nil, err
	}
	if d == nil {
		return nil, fmt.Errorf("image has no dynamic section, so nothing relocates it")
	}
	if len(relocs) > 0 && (d.value(elf.DT_RELSZ) != 0 || d.value(elf.DT_JMPREL) != 0 &&
		elf.DynTag(d.value(elf.DT_PLTREL)) == elf.DT_REL) {
		return nil, fmt.Errorf("image has relocations without addends (DT_REL), which cannot be extended")
	}
	if at%dynAlign != 0 {
		return nil, fmt.Errorf("address %#x of the dynamic tables is not aligned to %d", at, dynAlign)
	}
	x := &dynExtender{f: f, d: d, at: at, out: &DynExtension{}, added: map[string]uint32{}}
	if x.spare, err = f.SpareDynamic(); err != nil {
		return nil, err
	}
	for _, e := range entries {
		if err := x.set(e.Tag, e.Val); err != nil {
			return nil, err
		}
	}
	if len(relocs) > 0 {
		if err := x.symbols(relocs); err != nil {
			return nil, err
		}
		if err := x.relocs(relocs); err != nil {
			return nil, err
		}
	}
	return x.out, nil
}

type dynExtender struct {
	f     *image
	d     dynamicTable
	at    uint64
	out   *DynExtension
	spare []elfio.Dyn       // unused entries at the end of the dynamic section, the terminator left out
	added map[string]uint32 // index of every symbol referred to
}

// set gives a dynamic entry a value, in a spare entry if the image lacks it, or in one that can be done without.
func (x *dynExtender) set(tag elf.DynTag, v uint64) error {
	c := x.f.c
	if !c.Fits(v) {
		return fmt.Errorf("%v: value %#x does not fit the file's class", tag, v)
	}
	if e, ok := x.d[tag]; ok {
		w := make([]byte, c.WordSize())
		c.PutWord(w, v)
		x.out.Edits = append(x.out.Edits, elfio.RawEdit{Off: e.Off + c.WordSize(), New: w})
		return nil
	}
	if len(x.spare) == 0 {
		// How many of the relocations are relative, and come first, only saves dynamic linkers a look at their types.
		count, ok := x.d[elf.DT_RELACOUNT]
		if !ok {
			return fmt.Errorf("no spare entry in the dynamic section for %v", tag)
		}
		x.spare = []elfio.Dyn{count}
		delete(x.d, elf.DT_RELACOUNT)
	}
	w := make([]byte, c.DynSize())
	c.PutWord(w, uint64(tag))
	c.PutWord(w[c.WordSize():], v)
	x.out.Edits = append(x.out.Edits, elfio.RawEdit{Off: x.spare[0].Off, New: w})
	x.spare = x.spare[1:]
	return nil
}

// table returns the loaded bytes of a dynamic table.
func (x *dynExtender) table(what string, addr, size uint64) ([]byte, error) {
	b, off := x.f.From(addr)
	if size > uint64(len(b)) {
		return nil, elfio.FormatErrorf(what, off, "%#x bytes at address %#x end outside the loaded segments", size, addr)
	}
	return b[:size], nil
}

// put appends a table and returns its address.
func (x *dynExtender) put(parts ...[]byte) uint64 {
	for len(x.out.Data)%dynAlign != 0 {
		x.out.Data = append(x.out.Data, 0)
	}
	at := x.at + uint64(len(x.out.Data))
	for _, p := range parts {
		x.out.Data = append(x.out.Data, p...)
	}
	return at
}

// moved notes that the section of that type at address old has a copy.
func (x *dynExtender) moved(t elf.SectionType, old, addr, size uint64) {
	for i, s := range x.f.Sections {
		if s.Type == t && s.Addr == old && s.Flags&elf.SHF_ALLOC != 0 && s.Size > 0 {
			x.out.Moved = append(x.out.Moved, Moved{i, addr, size})
			return
		}
	}
}

// symbols finds or adds the symbols the relocations refer to.
func (x *dynExtender) symbols(relocs []DynReloc) error {
	want := map[string]bool{}
	var names []string
	for _, r := range relocs {
		if r.Symbol != "" && !want[r.Symbol] {
			want[r.Symbol] = true
			names = append(names, r.Symbol)
		}
	}
	if len(names) == 0 {
		return nil
	}
	f, c, d := x.f, x.f.c, x.d
	have, err := f.DynamicSymbols()
	if err != nil {
		return err
	}
	for _, s := range have {
		if _, ok := x.added[s.Name]; !ok && want[s.Name] {
			x.added[s.Name] = s.Index
		}
	}
	names = slices.DeleteFunc(names, func(n string) bool { _, ok := x.added[n]; return ok })
	if len(names) == 0 {
		return nil
	}
	n := uint64(len(have)) + 1
	if d.value(elf.DT_SYMTAB) == 0 || d.value(elf.DT_STRTAB) == 0 {
		return fmt.Errorf("image has no dynamic symbol table")
	}
	syms, err := x.table("dynamic symbol table", d.value(elf.DT_SYMTAB), n*c.SymSize())
	if err != nil {
		return err
	}
	strs, err := x.table("dynamic string table", d.value(elf.DT_STRTAB), d.value(elf.DT_STRSZ))
	if err != nil {
		return err
	}
	var newSyms, newStrs, newVers []byte
	for _, name := range names {
		e := make([]byte, c.SymSize())
		c.WriteSym(e, raw.Sym{Name: uint32(d.value(elf.DT_STRSZ)) + uint32(len(newStrs)),
			Info: elf.ST_INFO(elf.STB_WEAK, elf.STT_NOTYPE)})
		x.added[name] = uint32(n) + uint32(len(newSyms))/uint32(c.SymSize())
		newSyms = append(newSyms, e...)
		newStrs = append(append(newStrs, name...), 0)
		newVers = c.Order.AppendUint16(newVers, 1) // VER_NDX_GLOBAL: any version
	}
	at := x.put(syms, newSyms)
	x.moved(elf.SHT_DYNSYM, d.value(elf.DT_SYMTAB), at, uint64(len(syms)+len(newSyms)))
	if err := x.set(elf.DT_SYMTAB, at); err != nil {
		return err
	}
	at = x.put(strs, newStrs)
	size := uint64(len(strs) + len(newStrs))
	x.moved(elf.SHT_STRTAB, d.value(elf.DT_STRTAB), at, size)
	if err := x.set(elf.DT_STRTAB, at); err != nil {
		return err
	}
	if err := x.set(elf.DT_STRSZ, size); err != nil {
		return err
	}
	if d.value(elf.DT_VERSYM) != 0 {
		vers, err := x.table("DT_VERSYM", d.value(elf.DT_VERSYM), n*2)
		if err != nil {
			return err
		}
		at = x.put(vers, newVers)
		x.moved(elf.SHT_GNU_VERSYM, d.value(elf.DT_VERSYM), at, uint64(len(vers)+len(newVers)))
		if err := x.set(elf.DT_VERSYM, at); err != nil {
			return err
		}
	}
	return nil
}

// A relocTable is one of the two tables of relocations with addends, by the entries of the dynamic section.
type relocTable struct{ start, size, other elf.DynTag }

// relocTable chooses the table that is to have more relocations: DT_RELA, or the PLT's, which is smaller in programs that
// can be loaded anywhere, and is applied behind it. Indices of its entries are in the PLT, and stay.
func (x *dynExtender) relocTable(relocs []DynReloc) (t relocTable, otherValue uint64) {
	d := x.d
	all := !slices.ContainsFunc(relocs, func(r DynReloc) bool { return !r.Irelative })
	if n := d.value(elf.DT_PLTRELSZ); all && n > 0 && n < d.value(elf.DT_RELASZ) {
		return relocTable{elf.DT_JMPREL, elf.DT_PLTRELSZ, elf.DT_PLTREL}, uint64(elf.DT_RELA)
	}
	return relocTable{elf.DT_RELA, elf.DT_RELASZ, elf.DT_RELAENT}, x.f.c.RelaSize()
}

// relocs copies and extends a table of relocations.
func (x *dynExtender) relocs(relocs []DynReloc) error {
	f, c, d := x.f, x.f.c, x.d
	t, other := x.relocTable(relocs)
	old, err := x.table(t.start.String(), d.value(t.start), d.value(t.size))
	if err != nil {
		return err
	}
	var extra []byte
	for _, r := range relocs {
		if !c.Fits(r.Off) {
			return fmt.Errorf("relocation at %#x does not fit the file's class", r.Off)
		}
		e := make([]byte, c.RelaSize())
		w := c.Writer(e)
		w.Word(r.Off)
		if c.Is64 {
			w.Word(uint64(x.added[r.Symbol])<<32 | uint64(r.Type))
		} else {
			w.Word(uint64(x.added[r.Symbol])<<8 | uint64(r.Type&0xff))
		}
		w.Word(uint64(r.Addend))
		extra = append(extra, e...)
	}
	at := x.put(old, extra)
	size := uint64(len(old) + len(extra))
	if len(old) > 0 {
		x.moved(elf.SHT_RELA, d.value(t.start), at, size)
	}
	for _, e := range []struct {
		tag elf.DynTag
		v   uint64
	}{{t.start, at}, {t.size, size}, {t.other, other}} {
		if cur, ok := d[e.tag]; ok && cur.Val == e.v {
			continue
		}
		if err := x.set(e.tag, e.v); err != nil {
			return fmt.Errorf("%w (image of %v)", err, f.Header.Type)
		}
	}
	return nil
}
