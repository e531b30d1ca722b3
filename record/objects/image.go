package objects

import (
	"cmp"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sort"

	"github.com/fentry-dev/fentry/elfio"
)

// ImageResult is the result of NopImage and SortImage.
type ImageResult struct {
	Output  *elfio.Output // nil if there is nothing to change
	Sites   int           // calls found, or entries in tables
	Changed int           // calls turned into nops, or entries zeroed
}

// A Call is a profiling call in a linked image: its address and its bytes.
type Call struct {
	Addr  uint64
	Bytes []byte
}

// NopImage plans to turn the profiling calls of a linked image into nops. find returns them; for arm64, those that
// __mcount_loc lists are added, because a stripped image may not show them. find is a parameter because code that
// finds calls in images needs packages that start slowly, which builds that only add tables do without.
func NopImage(f *elfio.File, find func(*elfio.File) ([]Call, error)) (ImageResult, error) {
	var res ImageResult
	if m := f.Header.Machine; m != elf.EM_X86_64 && m != elf.EM_AARCH64 {
		return res, fmt.Errorf("nops for linked images of machine %v are not supported", m)
	}
	calls, err := find(f)
	if err != nil {
		return res, err
	}
	if f.Header.Machine == elf.EM_AARCH64 {
		listed, err := tabledCalls(f)
		if err != nil {
			return res, err
		}
		calls = append(calls, listed...)
		slices.SortFunc(calls, func(a, b Call) int { return cmp.Compare(a.Addr, b.Addr) })
		calls = slices.CompactFunc(calls, func(a, b Call) bool { return a.Addr == b.Addr })
	}
	var edits []elfio.RawEdit
	for _, c := range calls {
		res.Sites++
		nop := nopsX64(uint8(min(len(c.Bytes), 255)))
		if f.Header.Machine == elf.EM_AARCH64 {
			nop = nil
			if isBL(c.Bytes) {
				nop = []byte{0x1f, 0x20, 0x03, 0xd5}
			}
		}
		if off, ok := f.Offset(c.Addr); ok && nop != nil {
			edits = append(edits, elfio.RawEdit{Off: off, New: nop})
		}
	}
	res.Changed = len(edits)
	if len(edits) > 0 {
		if res.Output, err = f.Rewrite(edits); err != nil {
			return res, err
		}
	}
	return res, nil
}

// tabledCalls returns the calls that entries of an arm64 image's tables name.
func tabledCalls(f *elfio.File) ([]Call, error) {
	t, err := imageTables(f)
	if err != nil {
		return nil, err
	}
	var calls []Call
	for _, sec := range t {
		for _, e := range sec.entries {
			if b, err := f.Bytes(e.value, 4); err == nil && e.value != 0 && isBL(b) {
				calls = append(calls, Call{Addr: e.value, Bytes: b})
			}
		}
	}
	return calls, nil
}

// isBL reports whether the four bytes are an arm64 bl.
func isBL(b []byte) bool { return len(b) == 4 && binary.LittleEndian.Uint32(b)>>26 == 0b100101 }

// imageTable is a table of a linked image.
type imageTable struct {
	section int
	entries []imageEntry
}

// imageEntry is a word of a table.
type imageEntry struct {
	value uint64 // address it has at load address 0
	rel   int    // section of the relocation that makes it, 0 for none
	index int    // and its number there
}

// imageTables reads the tables of a linked image with the relative relocations that fill them.
func imageTables(f *elfio.File) ([]imageTable, error) {
	if f.Header.Type != elf.ET_EXEC && f.Header.Type != elf.ET_DYN {
		return nil, fmt.Errorf("type %v, want a linked image", f.Header.Type)
	}
	var out []imageTable
	word := uint64(f.WordSize())
	for i := range f.Sections {
		s := &f.Sections[i]
		if s.Name != TableName || s.Type != elf.SHT_PROGBITS || s.Flags&elf.SHF_ALLOC == 0 {
			continue
		}
		data, err := f.SectionData(i)
		if err != nil {
			return nil, err
		}
		if uint64(len(data))%word != 0 {
			return nil, fmt.Errorf("section %d (%s) at offset %#x: %#x bytes are not whole words", i, s.Name, s.Off, len(data))
		}
		t := imageTable{section: i, entries: make([]imageEntry, uint64(len(data))/word)}
		for k := range t.entries {
			t.entries[k].value = f.Word(data[uint64(k)*word:])
		}
		out = append(out, t)
	}
	if len(out) == 0 {
		return nil, nil
	}
	relative := f.RelativeType()
	for i := range f.Sections {
		s := &f.Sections[i]
		if s.Type != elf.SHT_REL && s.Type != elf.SHT_RELA || s.Flags&elf.SHF_ALLOC == 0 {
			continue
		}
		var t elfio.RelocTable
		if err := t.Open(f, i); err != nil {
			return nil, err
		}
		for k := range t.Len() {
			r := t.At(k)
			for j := range out {
				ts := &f.Sections[out[j].section]
				if r.Off-ts.Addr >= ts.Size || r.Type == 0 {
					continue
				}
				if r.Type != relative || (r.Off-ts.Addr)%word != 0 {
					return nil, fmt.Errorf("section %d (%s): relocation %d at offset %#x of type %d in %s is not relative", i,
						s.Name, k, t.FileOff(k), r.Type, TableName)
				}
				e := &out[j].entries[(r.Off-ts.Addr)/word]
				e.rel, e.index = i, k
				if t.Rela {
					e.value = uint64(r.Addend)
				}
			}
		}
	}
	return out, nil
}

// before is how far in front of a function's symbol an entry may lie: nops of -fpatchable-function-entry=N,M and the
// like (the kernel's sorttable allows as much).
const before = 8

// SortImage plans to sort the tables of a linked image by address and to zero entries that are in no function: those
// of functions that the linker has dropped or replaced by another definition (weak functions). If the image has no
// symbol table, nothing is zeroed; if only static functions have lost their symbols (ld -x, strip -x), their entries
// are.
func SortImage(f *elfio.File) (ImageResult, error) {
	var res ImageResult
	tables, err := imageTables(f)
	if err != nil {
		return res, err
	}
	syms, err := f.Symbols()
	if err != nil {
		return res, err
	}
	fs := newExtents(f, syms)
	st := sorter{f: f, relocs: map[int]*elfio.RelocTable{}, dropped: map[int][]int{}}
	for _, t := range tables {
		n, err := st.table(t, fs)
		if err != nil {
			return res, err
		}
		res.Sites += len(t.entries)
		res.Changed += n
	}
	if err := st.reorder(); err != nil {
		return res, err
	}
	if len(st.edits) > 0 {
		if res.Output, err = f.Rewrite(st.edits); err != nil {
			return res, err
		}
	}
	return res, nil
}

// extents are the functions of an image, sorted; end is the largest end so far, because functions can nest.
type extents struct{ start, end []uint64 }

func newExtents(f *elfio.File, syms []elfio.Symbol) *extents {
	mask := ^uint64(0)
	if f.Header.Machine == elf.EM_ARM {
		mask = ^uint64(1)
	}
	var fn []elfio.Symbol
	for _, s := range syms {
		if (s.Type() == elf.STT_FUNC || s.Type() == elf.STT_GNU_IFUNC) && s.Defined() {
			s.Value &= mask
			fn = append(fn, s)
		}
	}
	if len(fn) == 0 {
		return nil
	}
	slices.SortFunc(fn, func(a, b elfio.Symbol) int {
		if a.Value < b.Value {
			return -1
		} else if a.Value > b.Value {
			return 1
		}
		return 0
	})
	e := &extents{}
	top := uint64(0)
	for _, s := range fn {
		top = max(top, s.Value+max(s.Size, 1))
		e.start, e.end = append(e.start, s.Value), append(e.end, top)
	}
	return e
}

func (e *extents) covers(a uint64) bool {
	if e == nil {
		return true
	}
	i := sort.Search(len(e.start), func(i int) bool { return e.start[i] > a })
	return i > 0 && a < e.end[i-1] || i < len(e.start) && e.start[i]-a <= before
}

type sorter struct {
	f       *elfio.File
	edits   []elfio.RawEdit
	relocs  map[int]*elfio.RelocTable
	dropped map[int][]int // relocations to be made R_*_NONE
}

// table sorts one table and returns how many entries it zeroed.
func (st *sorter) table(t imageTable, fs *extents) (zeroed int, err error) {
	f := st.f
	word := uint64(f.WordSize())
	s := &f.Sections[t.section]
	data, err := f.SectionData(t.section)
	if err != nil {
		return 0, err
	}
	values := make([]uint64, len(t.entries))
	relocated := 0
	for i, e := range t.entries {
		values[i] = e.value
		if e.rel != 0 {
			relocated++
		}
		if e.value != 0 && !fs.covers(e.value) {
			values[i] = 0
			zeroed++
		}
	}
	slices.Sort(values)
	if f.Header.Type == elf.ET_DYN && relocated == 0 {
		switch ok, err := st.packed(t.section, values); {
		case err != nil:
			return 0, err
		case !ok && zeroed > 0:
			return 0, errors.New(TableName + " has no relocations that could be dropped")
		}
	}
	out := make([]byte, len(data))
	for i, v := range values {
		e := &t.entries[i]
		if e.rel == 0 {
			f.PutWord(out[uint64(i)*word:], v)
			if v != 0 && relocated > 0 {
				return 0, fmt.Errorf("entry %d of %s at offset %#x has no relocation, others have", i, TableName,
					s.Off+uint64(i)*word)
			}
			continue
		}
		rt := st.relocs[e.rel]
		if rt == nil {
			rt = new(elfio.RelocTable)
			if err := rt.Open(f, e.rel); err != nil {
				return 0, err
			}
			st.relocs[e.rel] = rt
		}
		if !rt.Rela || f.Word(data[uint64(i)*word:]) != 0 { // some linkers store the addend in the word too
			f.PutWord(out[uint64(i)*word:], v)
		}
		r := rt.At(e.index)
		if v == 0 {
			st.dropped[e.rel] = append(st.dropped[e.rel], e.index)
			continue
		}
		if rt.Rela && uint64(r.Addend) != v {
			r.Addend = int64(v)
			b := slices.Clone(rt.Entry(e.index))
			f.PutReloc(b, r, true)
			st.edits = append(st.edits, elfio.RawEdit{Off: rt.FileOff(e.index), New: b})
		}
	}
	if !slices.Equal(out, data) {
		st.edits = append(st.edits, elfio.RawEdit{Off: s.Off, New: out})
	}
	return zeroed, nil
}

// reorder moves the relocations that do nothing now behind the relative ones: dynamic linkers apply the first
// DT_RELACOUNT of them without looking at their type.
func (st *sorter) reorder() error {
	f := st.f
	if len(st.dropped) == 0 {
		return nil
	}
	dyn, err := f.Dynamic()
	if err != nil {
		return err
	}
	for sec, list := range st.dropped {
		rt := st.relocs[sec]
		drop := make(map[int]bool, len(list))
		for _, i := range list {
			drop[i] = true
		}
		first := f.Sections[sec].Off
		changed := map[uint64][]byte{}
		var rest []elfio.RawEdit
		for _, e := range st.edits {
			if e.Off >= first && e.Off-first < f.Sections[sec].Size {
				changed[e.Off] = e.New
			} else {
				rest = append(rest, e)
			}
		}
		relative, block := f.RelativeType(), 0
		for relative != 0 && block < rt.Len() && rt.At(block).Type == relative {
			block++
		}
		var keep, none []byte
		moved := 0
		for i := range rt.Len() {
			b, ok := changed[rt.FileOff(i)]
			if !ok {
				b = rt.Entry(i)
			}
			switch {
			case !drop[i]:
				keep = append(keep, b...)
			case i < block:
				r := rt.At(i)
				r.Type, r.Sym, r.Addend = 0, 0, 0
				b = slices.Clone(b)
				f.PutReloc(b, r, rt.Rela)
				none = append(none, b...)
				moved++
			default:
				r := rt.At(i)
				r.Type, r.Sym, r.Addend = 0, 0, 0
				b = slices.Clone(b)
				f.PutReloc(b, r, rt.Rela)
				keep = append(keep, b...)
			}
		}
		size := uint64(f.RelocSize(rt.Rela))
		at := uint64(block-moved) * size
		all := slices.Concat(keep[:at], none, keep[at:])
		st.edits = append(rest, elfio.RawEdit{Off: first, New: all})
		for _, d := range dyn {
			tag := uint64(0x6ffffff9) // DT_RELACOUNT
			if !rt.Rela {
				tag = 0x6ffffffa // DT_RELCOUNT
			}
			if uint64(d.Tag) != tag {
				continue
			}
			b := make([]byte, f.WordSize())
			f.PutWord(b, min(d.Val, uint64(block-moved)))
			st.edits = append(st.edits, elfio.RawEdit{Off: d.Off + uint64(f.WordSize()), New: b})
		}
	}
	return nil
}
