package objects

import (
	"bytes"
	"cmp"
	"debug/elf"
	"fmt"
	"iter"
	"slices"
	"sort"

	"github.com/fentry-dev/fentry/arch/amd64"
)

// Functions is an index from places in sections to functions.
type Functions struct {
	ob   *Object
	syms map[int][]fn // by section, sorted by value
}

// fn is a function symbol: few words, because an object may have millions.
type fn struct {
	value uint64
	sym   uint32
}

// Functions indexes the function symbols of the object.
func (ob *Object) Functions() (*Functions, error) {
	fs := &Functions{ob: ob, syms: map[int][]fn{}}
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
		fs.syms[sec] = append(fs.syms[sec], fn{ob.syms.At(i).Value & mask, uint32(i)})
	}
	for _, l := range fs.syms {
		slices.SortStableFunc(l, func(a, b fn) int {
			if c := cmp.Compare(a.value, b.value); c != 0 {
				return c
			}
			return cmp.Compare(elf.ST_BIND(ob.syms.Info(int(b.sym))), elf.ST_BIND(ob.syms.Info(int(a.sym))))
		})
	}
	return fs, nil
}

// At returns the name of the function that covers an offset in a section, and the distance from its start; "" if no
// symbol covers it.
func (fs *Functions) At(section int, off uint64) (name string, delta int64) {
	l := fs.syms[section]
	i := sort.Search(len(l), func(i int) bool { return l[i].value > off }) - 1
	if i < 0 {
		return "", 0
	}
	return fs.name(l, i), int64(off - l[i].value)
}

// Of is At for a site. The nops of -fpatchable-function-entry=N,M begin M nops in front of the function they belong to,
// so the distance is negative then.
func (fs *Functions) Of(s Site) (name string, delta int64) {
	if s.Form == FormPatchable {
		l := fs.syms[s.Section]
		i := sort.Search(len(l), func(i int) bool { return l[i].value >= s.Off })
		if i < len(l) && l[i].value-s.Off <= maxInFront && fs.nops(s.Section, s.Off, l[i].value) {
			return fs.name(l, i), -int64(l[i].value - s.Off)
		}
	}
	return fs.At(s.Section, s.Off)
}

// maxInFront is how many bytes of nops in front of a function are taken for its own.
const maxInFront = 256

// nops reports whether nothing but no-operation instructions, as compilers write them for -fpatchable-function-entry,
// is between two offsets.
func (fs *Functions) nops(section int, from, to uint64) bool {
	f := fs.ob.f
	if section <= 0 || section >= len(f.Sections) {
		return false
	}
	data, err := f.SectionData(section)
	if err != nil || to > uint64(len(data)) {
		return false
	}
	for b := data[from:to]; len(b) > 0; {
		n := nopSize(f.Header.Machine, orderOf(f), b)
		if n == 0 {
			return false
		}
		b = b[n:]
	}
	return true
}

// nopSize returns how long the no-operation instruction at the beginning of b is, 0 if there is none.
func nopSize(m elf.Machine, order byteOrder, b []byte) int {
	word := func(w uint32) []byte { return order.AppendUint32(nil, w) }
	half := func(h uint16) []byte { return order.AppendUint16(nil, h) }
	var forms [][]byte
	switch m {
	case elf.EM_X86_64, elf.EM_386:
		p := 0
		for p < len(b) && (b[p] == 0x66 || b[p] == 0x2e) {
			p++
		}
		if bytes.HasPrefix(b[p:], []byte{0x90}) || bytes.HasPrefix(b[p:], []byte{0x0f, 0x1f}) {
			if in, err := amd64.Decode(b); err == nil {
				return in.Len
			}
		}
		return 0
	case elf.EM_AARCH64: // instructions are little-endian in either byte order
		forms = [][]byte{{0x1f, 0x20, 0x03, 0xd5}}
	case elf.EM_ARM:
		forms = [][]byte{half(0xbf00), word(0xe320f000), word(0xe1a00000)}
	case elf.EM_PPC, elf.EM_PPC64:
		forms = [][]byte{word(0x60000000)}
	case elf.EM_S390: // nopr
		forms = [][]byte{half(0x0700)}
	case elf.EM_SPARCV9:
		forms = [][]byte{word(0x01000000)}
	case elf.EM_MIPS:
		forms = [][]byte{word(0)}
	case elf.EM_SH:
		forms = [][]byte{half(0x0009)}
	case elf.EM_RISCV:
		forms = [][]byte{half(0x0001), word(0x00000013)}
	case elf.EM_LOONGARCH:
		forms = [][]byte{word(0x03400000)}
	}
	for _, n := range forms {
		if bytes.HasPrefix(b, n) {
			return len(n)
		}
	}
	return 0
}

// name returns the name of the first of the symbols that have the value of the i-th.
func (fs *Functions) name(l []fn, i int) string {
	for i > 0 && l[i-1].value == l[i].value {
		i--
	}
	return string(fs.ob.syms.Name(int(l[i].sym)))
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
