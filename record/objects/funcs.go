package objects

import (
	"cmp"
	"debug/elf"
	"fmt"
	"iter"
	"slices"
	"sort"

	"github.com/fentry-dev/fentry/elfio"
)

// Functions is an index from places in sections to functions.
type Functions struct {
	ob   *Object
	syms map[int][]elfio.Symbol // by section, sorted by value
}

// Functions indexes the function symbols of the object.
func (ob *Object) Functions() (*Functions, error) {
	fs := &Functions{ob: ob, syms: map[int][]elfio.Symbol{}}
	if ob.syms == nil {
		return fs, nil
	}
	mask := ^uint64(0)
	if !ob.m.funcs {
		mask = ^uint64(1) // bit 0 of an Arm function says that it is Thumb code
	}
	for i := 1; i < ob.syms.Len(); i++ {
		sec := int(ob.syms.SectionOf(i))
		if sec == 0 || elf.ST_TYPE(ob.syms.Info(i)) != elf.STT_FUNC {
			continue
		}
		s := ob.syms.At(i)
		s.Value &= mask
		fs.syms[sec] = append(fs.syms[sec], s)
	}
	for _, l := range fs.syms {
		slices.SortStableFunc(l, func(a, b elfio.Symbol) int {
			return cmp.Or(cmp.Compare(a.Value, b.Value), cmp.Compare(b.Bind(), a.Bind()))
		})
	}
	return fs, nil
}

// At returns the name of the function that covers an offset in a section, and the distance from its start; "" if no
// symbol covers it.
func (fs *Functions) At(section int, off uint64) (name string, delta uint64) {
	l := fs.syms[section]
	i := sort.Search(len(l), func(i int) bool { return l[i].Value > off }) - 1
	if i < 0 {
		return "", 0
	}
	for i > 0 && l[i-1].Value == l[i].Value {
		i--
	}
	return string(fs.ob.syms.Name(int(l[i].Index))), off - l[i].Value
}

// Patchable yields the entries of __patchable_function_entries, which compilers write for
// -fpatchable-function-entry: the first of the nops of each function. Such functions need no other table.
func (ob *Object) Patchable() iter.Seq2[Site, error] {
	return func(yield func(Site, error) bool) {
		f := ob.f
		for i := range f.Sections {
			s := &f.Sections[i]
			if s.Type != elf.SHT_REL && s.Type != elf.SHT_RELA || s.Info == 0 || s.Info >= uint32(len(f.Sections)) ||
				f.Sections[s.Info].Name != patchableName {
				continue
			}
			if err := ob.tableEntries(i, func(sec int, off uint64) bool {
				return yield(Site{Section: sec, Off: off, Call: off, Reloc: off, Form: FormPatchable, Listed: true, Tabled: true},
					nil)
			}); err != nil {
				yield(Site{}, err)
				return
			}
		}
	}
}

const patchableName = "__patchable_function_entries"

// tableEntries calls do with the section and offset every relocation of a table, section i, makes its word point to.
// do returns whether to go on.
func (ob *Object) tableEntries(i int, do func(section int, off uint64) bool) error {
	f := ob.f
	t, err := f.RelocTable(i)
	if err != nil {
		return err
	}
	syms := ob.syms
	if syms == nil || syms.Section != t.Symtab {
		if syms, err = f.SymbolTable(t.Symtab); err != nil {
			return err
		}
	}
	data, err := f.SectionData(t.Target)
	if err != nil {
		return err
	}
	for k := range t.Len() {
		r := t.At(k)
		if r.Type == 0 {
			continue
		}
		if uint64(r.Sym) >= uint64(syms.Len()) || r.Off > uint64(len(data)) ||
			uint64(len(data))-r.Off < uint64(f.WordSize()) {
			return fmt.Errorf("%s: entry %d at offset %#x: symbol %d of %d, place %#x of %#x bytes", ob.label(i), k,
				t.FileOff(k), r.Sym, syms.Len(), r.Off, len(data))
		}
		add := uint64(r.Addend)
		if !t.Rela || ob.m.inPlace {
			add = f.Word(data[r.Off:])
			if !f.Is64() {
				add = uint64(int64(int32(add)))
			}
		}
		off := syms.At(int(r.Sym)).Value + add
		if !f.Is64() {
			off = uint64(uint32(off))
		}
		if !do(int(syms.SectionOf(int(r.Sym))), off) {
			return nil
		}
	}
	return nil
}

// Entries yields the places that entries of the object's tables name, as a section and an offset in it, sorted by
// both.
func (ob *Object) Entries() iter.Seq2[int, uint64] {
	return func(yield func(int, uint64) bool) {
		if ob.have == nil {
			return
		}
		sections := make([]int, 0, len(ob.have.entries))
		for s := range ob.have.entries {
			sections = append(sections, s)
		}
		slices.Sort(sections)
		for _, s := range sections {
			for _, off := range ob.have.entries[s] {
				if !yield(s, off) {
					return
				}
			}
		}
	}
}
