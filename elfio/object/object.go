package object

import (
	"bytes"
	"cmp"
	"debug/elf"
	"fmt"
	"slices"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/elfio/internal/raw"
	"github.com/fentry-dev/fentry/internal/bigslice"
)

// Adding to a relocatable object.
//
// An object's sections are in no order that anybody relies on, and linkers find everything by headers. So nothing
// moves: what grows (names, the symbol table, groups) is written anew behind the file with the new sections, and a new
// section header table refers to it. The order of what is appended is recordmcount's: names, headers, contents.

// Additions is what Extend adds to a relocatable object.
type Additions struct {
	// Symtab is the index of the symbol table that symbols are added to and new sections refer to.
	Symtab int
	// Locals are symbols inserted after the last local one. The first gets the index that FirstNew returns, the
	// others follow; global symbols move up, and everything that refers to them is rewritten.
	Locals []Symbol
	// Sections are appended in this order. The first gets the index len(File.Sections).
	Sections []Section
	// Fill, if not nil, writes the contents of Sections[i] into zeroed memory, if that has a Size.
	Fill func(i int, b []byte)
	// Edits are bytes of the file to overwrite.
	Edits []elfio.RawEdit
	// EditOld makes the changes of section header 0 and of the name table in the old header table, too, which nothing
	// refers to any more. recordmcount does so.
	EditOld bool
}

// Symbol is a symbol of binding STB_LOCAL.
type Symbol struct {
	Name    string // "" for a section symbol
	Type    elf.SymType
	Section uint32
	Value   uint64
}

// Section is a section to append. Fields are as in elfio.Section.
type Section struct {
	Name               string
	Type               elf.SectionType
	Flags              elf.SectionFlag
	Link, Info         uint32
	Addralign, Entsize uint64
	Data               []byte
	Size               int // without Data: bytes of zeroed memory for Additions.Fill
	Group              int // index of the SHT_GROUP section it becomes a member of, 0 if none
}

// FirstNew returns the index that the first of Additions.Locals gets in symbol table i: sh_info, the number of local
// symbols.
func FirstNew(f *elfio.File, i int) uint32 { return f.Sections[i].Info }

// Extend returns the object with the additions. Nothing existing moves: the section name table, the section headers,
// the new sections and whatever else grows are appended, and the ELF header refers to them. What they replace stays
// as bytes that no header refers to, so removing the appended part and reverting the edits restores the object.
func Extend(f *elfio.File, a Additions) (*elfio.Output, error) {
	if f.Header.Type != elf.ET_REL {
		return nil, elfio.FormatErrorf("ELF header", 0, "type %v, want a relocatable object", f.Header.Type)
	}
	if f.Header.Shstrndx == 0 || len(f.Sections) == 0 {
		return nil, elfio.FormatErrorf("ELF header", 0, "no section name table to add to")
	}
	if s := &f.Sections[f.Header.Shstrndx]; s.Type != elf.SHT_STRTAB {
		return nil, elfio.FormatErrorf(f.SectionLabel(int(f.Header.Shstrndx)), s.Off,
			"section name table of type %v, want SHT_STRTAB", s.Type)
	}
	e := &extender{f: f, c: raw.CodecOf(f.Raw()), a: a, edits: slices.Clone(a.Edits)}
	if len(a.Locals) > 0 {
		if err := e.insertSymbols(); err != nil {
			return nil, err
		}
	}
	if err := e.joinGroups(); err != nil {
		return nil, err
	}
	if err := e.layout(); err != nil {
		return nil, err
	}
	out, err := f.Rewrite(e.edits)
	if err != nil {
		return nil, err
	}
	out.Tail = [][]byte{e.tail}
	return out, nil
}

type extender struct {
	f       *elfio.File
	c       raw.Codec
	a       Additions
	changed map[int]*elfio.Section // headers that differ from the file's
	edits   []elfio.RawEdit
	symbols uint32          // how many symbols there were
	moved   []byte          // new contents of relocation sections
	inner   []elfio.RawEdit // edits not yet known to be inside a relocation section that is rewritten
	names   []byte          // symbol names for a name table that holds both
	grown   []grownSection  // sections of the file whose new contents are appended
	tail    []byte
}

// header returns section header i to be changed.
func (e *extender) header(i int) *elfio.Section {
	h := e.changed[i]
	if h == nil {
		if e.changed == nil {
			e.changed = map[int]*elfio.Section{}
		}
		h = new(elfio.Section)
		*h = e.f.Sections[i]
		e.changed[i] = h
	}
	return h
}

// grownSection is a section whose new contents are pre followed by ins followed by post.
type grownSection struct {
	header         int
	pre, ins, post []byte
}

func (g *grownSection) size() int { return len(g.pre) + len(g.ins) + len(g.post) }

func (s *Section) size() int {
	return max(s.Size, len(s.Data))
}

// layout appends in the order recordmcount does: names, headers, contents.
func (e *extender) layout() error {
	f, c := e.f, e.c
	names, err := f.SectionData(int(f.Header.Shstrndx))
	if err != nil {
		return err
	}
	if uint64(len(names)) > 1<<31 {
		return elfio.FormatErrorf(f.SectionLabel(int(f.Header.Shstrndx)), f.Sections[f.Header.Shstrndx].Off,
			"too large to be added to")
	}
	added, nameOff := sectionNames(len(names)+len(e.names), e.a.Sections)
	added = append(e.names, added...)
	start := uint64(len(f.Raw()))
	nameSize := uint64(len(names) + len(added))
	h := e.header(int(f.Header.Shstrndx))
	h.Off, h.Size = start, nameSize
	shoff, ok := raw.AlignUp(start+nameSize, c.WordSize())
	shnum := len(f.Sections) + len(e.a.Sections)
	at := shoff + uint64(shnum)*c.ShdrSize()
	for i := range e.grown {
		g := &e.grown[i]
		h := e.header(g.header)
		var fits bool
		if at, fits = raw.AlignUp(at, max(h.Addralign, 1)); !fits || h.Addralign > maxTableAlign {
			return elfio.FormatErrorf(f.SectionLabel(g.header), h.Off, "alignment %#x", h.Addralign)
		}
		h.Off, h.Size = at, uint64(g.size())
		at += h.Size
	}
	contents := at
	for i := range e.a.Sections {
		s := &e.a.Sections[i]
		var fits bool
		if at, fits = raw.AlignUp(at, max(s.Addralign, 1)); !fits {
			return fmt.Errorf("new section %s: alignment %#x", s.Name, s.Addralign)
		}
		at += uint64(s.size())
	}
	if !ok || !c.Fits(at) {
		return fmt.Errorf("the object would grow beyond what its class can hold (%#x bytes)", at)
	}
	e.tail = bigslice.Make[byte](int(at-start), int(at-start))
	copy(e.tail, names)
	copy(e.tail[len(names):], added)
	e.fileHeader(shoff, shnum)
	e.write(shoff, contents, nameOff)
	return nil
}

// write fills the tail from the section headers on, which are at shoff; the new sections' contents begin at contents.
func (e *extender) write(shoff, contents uint64, nameOff func(string) uint32) {
	f, c, start := e.f, e.c, uint64(len(e.f.Raw()))
	out := e.tail[shoff-start:]
	put := func(h *elfio.Section) {
		f.PutSection(out, h)
		out = out[c.ShdrSize():]
	}
	for i := range f.Sections {
		if h := e.changed[i]; h != nil {
			put(h)
		} else {
			put(&f.Sections[i])
		}
	}
	at := contents
	for i := range e.a.Sections {
		s := &e.a.Sections[i]
		at, _ = raw.AlignUp(at, max(s.Addralign, 1))
		h := elfio.Section{
			NameOff: nameOff(s.Name), Type: s.Type, Flags: s.Flags, Link: s.Link, Info: s.Info,
			Off: at, Size: uint64(s.size()), Addralign: s.Addralign, Entsize: s.Entsize,
		}
		put(&h)
		b := e.tail[at-start : at-start+h.Size : at-start+h.Size]
		if copy(b, s.Data); s.Size > 0 && e.a.Fill != nil {
			e.a.Fill(i, b)
		}
		at += h.Size
	}
	if e.a.EditOld {
		for _, i := range []uint32{0, f.Header.Shstrndx} {
			if h := e.changed[int(i)]; h != nil && *h != f.Sections[i] {
				b := make([]byte, c.ShdrSize())
				f.PutSection(b, h)
				e.edits = append(e.edits, elfio.RawEdit{Off: f.Header.Shoff + uint64(i)*uint64(f.Header.Shentsize), New: b})
			}
		}
	}
	for i := range e.grown {
		g := &e.grown[i]
		b := e.tail[e.header(g.header).Off-start:]
		b = b[copy(b, g.pre):]
		b = b[copy(b, g.ins):]
		copy(b, g.post)
	}
}

// maxTableAlign is the largest alignment a section that is written anew may have. None but hostile ones has more than a
// page, and each costs as much space in the file.
const maxTableAlign = 1 << 16

// fileHeader writes the ELF header with the new table and the count of sections, which moves to section header 0 when
// it does not fit (gABI, "ELF Header": e_shnum).
func (e *extender) fileHeader(shoff uint64, n int) {
	h := e.c.ReadHeader(e.f.Raw())
	h.Shoff = shoff
	h.Shentsize = uint16(e.c.ShdrSize())
	if n >= int(elf.SHN_LORESERVE) || h.Shnum == 0 {
		h.Shnum = 0
		e.header(0).Size = uint64(n)
	} else {
		h.Shnum = uint16(n)
	}
	b := make([]byte, e.c.EhdrSize())
	e.c.WriteHeader(b, h)
	e.edits = append(e.edits, elfio.RawEdit{Off: 0, New: b})
}

// sectionNames returns the strings to append to a name table of base bytes, and what tells where each name is. A name
// that is the end of another one shares its bytes.
func sectionNames(base int, list []Section) ([]byte, func(name string) uint32) {
	// There are two or three names, thousands of times over.
	var distinct []string
	index := map[string]uint32{}
	at := make([]uint32, 0, 4)
	known := func(name string) int {
		for i := range min(len(distinct), 4) {
			if distinct[i] == name {
				return i
			}
		}
		if i, ok := index[name]; ok {
			return int(i)
		}
		return -1
	}
	for i := range list {
		if n := list[i].Name; known(n) < 0 {
			index[n] = uint32(len(distinct))
			distinct = append(distinct, n)
		}
	}
	at = append(at, make([]uint32, len(distinct))...)
	order := make([]int, len(distinct))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(len(distinct[b]), len(distinct[a])) })
	var added []byte
	var whole []int
	for _, i := range order {
		n, shared := distinct[i], false
		for _, k := range whole {
			if w := distinct[k]; len(w) > len(n) && w[len(w)-len(n):] == n {
				at[i], shared = at[k]+uint32(len(w)-len(n)), true
				break
			}
		}
		if !shared {
			at[i] = uint32(base + len(added))
			added = append(append(added, n...), 0)
			whole = append(whole, i)
		}
	}
	return added, func(name string) uint32 { return at[known(name)] }
}

// joinGroups appends the new members to their groups.
func (e *extender) joinGroups() error {
	f := e.f
	members := map[int][]byte{}
	var order []int
	for i := range e.a.Sections {
		g := e.a.Sections[i].Group
		if g == 0 {
			continue
		}
		if g >= len(f.Sections) || f.Sections[g].Type != elf.SHT_GROUP {
			return elfio.FormatErrorf("section header table", f.Header.Shoff, "section %d is no group", g)
		}
		if members[g] == nil {
			order = append(order, g)
		}
		members[g] = e.c.Order.AppendUint32(members[g], uint32(len(f.Sections)+i))
	}
	for _, g := range order {
		data, err := f.SectionData(g)
		if err != nil {
			return err
		}
		e.grown = append(e.grown, grownSection{header: g, pre: data, ins: members[g]})
	}
	return nil
}

// RestoreHeaders undoes changes of headers in b, the original part of the object f that Extend has made with EditOld:
// there are n section headers at shoff, and the name table is size bytes at off.
func RestoreHeaders(f *elfio.File, b []byte, shoff uint64, n int, off, size uint64) {
	for _, e := range oldHeaders(f, shoff, n, off, size) {
		copy(b[e.Off:], e.New)
	}
}

func oldHeaders(f *elfio.File, shoff uint64, n int, off, size uint64) []elfio.RawEdit {
	c := raw.CodecOf(f.Raw())
	h := c.ReadHeader(f.Raw())
	h.Shoff, h.Shnum = shoff, uint16(n)
	null := f.Sections[0]
	null.Size = 0
	if n >= int(elf.SHN_LORESERVE) {
		h.Shnum, null.Size = 0, uint64(n)
	}
	names := f.Sections[f.Header.Shstrndx]
	names.Off, names.Size = off, size
	header, first, last := make([]byte, c.EhdrSize()), make([]byte, c.ShdrSize()), make([]byte, c.ShdrSize())
	c.WriteHeader(header, h)
	f.PutSection(first, &null)
	f.PutSection(last, &names)
	return []elfio.RawEdit{{Off: 0, New: header}, {Off: shoff, New: first},
		{Off: shoff + uint64(f.Header.Shstrndx)*uint64(f.Header.Shentsize), New: last}}
}

// Restorable reports whether RestoreHeaders, given the offsets in f, would write the headers of f as they are. It is
// false only for files with data in fields that should be zero.
func Restorable(f *elfio.File) bool {
	names := &f.Sections[f.Header.Shstrndx]
	for _, e := range oldHeaders(f, f.Header.Shoff, len(f.Sections), names.Off, names.Size) {
		if b, ok := raw.Slice(f.Raw(), e.Off, uint64(len(e.New))); !ok || !bytes.Equal(b, e.New) {
			return false
		}
	}
	return true
}
