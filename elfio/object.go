package elfio

import (
	"cmp"
	"debug/elf"
	"fmt"
	"slices"
)

// ObjectAdditions is what Extend adds to a relocatable object.
type ObjectAdditions struct {
	// Symtab is the index of the symbol table the symbols are added to and the sections refer to.
	Symtab int
	// Locals are symbols inserted behind the last local one. The first gets the index FirstNew returns, the others
	// follow; global symbols move up, and everything that refers to them is rewritten.
	Locals []LocalSymbol
	// Sections are appended in this order. The first gets the index len(File.Sections).
	Sections []ObjectSection
	// Edits are bytes of the file to overwrite.
	Edits []RawEdit
	// EditOld makes the changes of section headers 0 and of the name table in the old header table too, which nothing
	// refers to any more: recordmcount does.
	EditOld bool
}

// LocalSymbol is a symbol of binding STB_LOCAL.
type LocalSymbol struct {
	Name    string // "" for a section symbol
	Type    elf.SymType
	Section uint32
	Value   uint64
}

// ObjectSection is a section to be appended. Fields are those of Section.
type ObjectSection struct {
	Name               string
	Type               elf.SectionType
	Flags              elf.SectionFlag
	Link, Info         uint32
	Addralign, Entsize uint64
	Data               []byte
	Size               int          // with Fill: how many bytes
	Fill               func([]byte) // writes the contents instead of Data, into zeroed memory
	Group              int          // index of the SHT_GROUP section it becomes a member of, 0 for none
}

// FirstNew returns the index the first of ObjectAdditions.Locals gets in symbol table i: sh_info, the number of
// local symbols.
func (f *File) FirstNew(i int) uint32 { return f.Sections[i].Info }

// WordSize is the size of an address in this file, in bytes.
func (f *File) WordSize() int { return int(f.c.wordSize()) }

// PutWord stores an address-sized word in the file's byte order.
func (f *File) PutWord(b []byte, v uint64) { f.c.putWord(b, v) }

// Word reads an address-sized word in the file's byte order.
func (f *File) Word(b []byte) uint64 { return f.c.word(b) }

// Rewrite returns the file with edits and something appended to it. The edits must be inside the file and disjoint.
func (f *File) Rewrite(edits []RawEdit, tail []byte) *Output {
	edits = slices.Clone(edits)
	slices.SortStableFunc(edits, func(a, b RawEdit) int { return cmp.Compare(a.Off, b.Off) })
	return &Output{Edits: edits, Tail: tail, orig: f.raw}
}

// Extend returns the object with the additions. Nothing that is there moves: a grown section name table, the
// section headers, the new sections and whatever else grows are appended, and the ELF header refers to them. What
// they replace stays behind as bytes no header refers to, so taking the appended part off and putting the edited
// bytes back restores the object.
func (f *File) Extend(a ObjectAdditions) (*Output, error) {
	if f.Header.Type != elf.ET_REL {
		return nil, formatErr("ELF header", 0, "type %v, want a relocatable object", f.Header.Type)
	}
	if f.Header.Shstrndx == 0 || len(f.Sections) == 0 {
		return nil, formatErr("ELF header", 0, "no section name table to add to")
	}
	if s := &f.Sections[f.Header.Shstrndx]; s.Type != elf.SHT_STRTAB {
		return nil, formatErr(f.sectionLabel(int(f.Header.Shstrndx)), s.Off, "section name table of type %v, want SHT_STRTAB", s.Type)
	}
	e := &extender{f: f, a: a, edits: slices.Clone(a.Edits)}
	e.headers = append(make([]Section, 0, len(f.Sections)+len(a.Sections)+1), f.Sections...)
	e.grown = make([]grownSection, 0, len(a.Sections)+8)
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
	slices.SortStableFunc(e.edits, func(a, b RawEdit) int { return cmp.Compare(a.Off, b.Off) })
	return &Output{Edits: e.edits, Tail: e.tail, orig: f.raw}, nil
}

type extender struct {
	f       *File
	a       ObjectAdditions
	headers []Section
	edits   []RawEdit
	inner   []RawEdit      // edits not yet known to be inside a relocation section that is rewritten
	names   []byte         // symbol names for a name table that holds both
	grown   []grownSection // contents that are appended
	tail    []byte
}

// grownSection is a section whose contents are appended, pre followed by ins followed by post.
type grownSection struct {
	header         int
	pre, ins, post []byte
	fill           func([]byte)
	n              int // size of what fill writes
}

func (g *grownSection) size() int { return len(g.pre) + len(g.ins) + len(g.post) + g.n }

// layout appends in the order recordmcount does: names, headers, contents.
func (e *extender) layout() error {
	f, c := e.f, e.f.c
	names, err := f.SectionData(int(f.Header.Shstrndx))
	if err != nil {
		return err
	}
	if uint64(len(names)) > 1<<31 {
		return formatErr(f.sectionLabel(int(f.Header.Shstrndx)), f.Sections[f.Header.Shstrndx].Off, "too large to be added to")
	}
	added, nameOff := sectionNames(len(names)+len(e.names), e.a.Sections)
	added = append(e.names, added...)
	for i := range e.a.Sections {
		s := &e.a.Sections[i]
		h := Section{
			NameOff: nameOff[s.Name], Type: s.Type, Flags: s.Flags, Link: s.Link, Info: s.Info,
			Addralign: s.Addralign, Entsize: s.Entsize,
		}
		e.headers = append(e.headers, h)
		e.grown = append(e.grown, grownSection{header: len(e.headers) - 1, pre: s.Data, fill: s.Fill, n: s.Size})
	}
	at := uint64(len(f.raw))
	nameSize := uint64(len(names) + len(added))
	e.headers[f.Header.Shstrndx].Off, e.headers[f.Header.Shstrndx].Size = at, nameSize
	shoff, ok := alignUp(at+nameSize, c.wordSize())
	shnum := uint64(len(e.headers))
	at = shoff + shnum*c.shdrSize()
	for i := range e.grown {
		g := &e.grown[i]
		h := &e.headers[g.header]
		var fits bool
		if at, fits = alignUp(at, max(h.Addralign, 1)); !fits || h.Addralign > maxTableAlign {
			return formatErr(f.sectionLabel(g.header), h.Off, "alignment %#x", h.Addralign)
		}
		h.Off, h.Size = at, uint64(g.size())
		at += h.Size
	}
	if !ok || !c.fits(at) {
		return fmt.Errorf("the object would grow beyond what its class can hold (%#x bytes)", at)
	}
	start := uint64(len(f.raw))
	e.tail = make([]byte, at-start, at-start+trailerRoom)
	copy(e.tail, names)
	copy(e.tail[len(names):], added)
	e.header(shoff)
	for i, h := range e.headers {
		c.writeSection(e.tail[shoff-start+uint64(i)*c.shdrSize():], h)
	}
	if e.a.EditOld {
		for _, i := range []uint32{0, f.Header.Shstrndx} {
			if e.headers[i] != f.Sections[i] {
				b := make([]byte, c.shdrSize())
				c.writeSection(b, e.headers[i])
				e.edits = append(e.edits, RawEdit{f.Header.Shoff + uint64(i)*uint64(f.Header.Shentsize), b})
			}
		}
	}
	for i := range e.grown {
		g := &e.grown[i]
		b := e.tail[e.headers[g.header].Off-start:]
		b = b[copy(b, g.pre):]
		b = b[copy(b, g.ins):]
		b = b[copy(b, g.post):]
		if g.fill != nil {
			g.fill(b[:g.n:g.n])
		}
	}
	return nil
}

// maxTableAlign is the largest alignment a section that is written anew may have. None but hostile ones has more than a page, and
// each costs as much space in the file.
const maxTableAlign = 1 << 16

// trailerRoom is spare capacity of Output.Tail, so that a caller can append to it without a copy.
const trailerRoom = 1 << 10

// header writes the ELF header with the new table and the count of sections, which moves to section header 0 when it
// does not fit (gABI, "ELF Header": e_shnum).
func (e *extender) header(shoff uint64) {
	h := e.f.hdr
	h.shoff = shoff
	h.shentsize = uint16(e.f.c.shdrSize())
	n := uint64(len(e.headers))
	if n >= uint64(elf.SHN_LORESERVE) || h.shnum == 0 {
		h.shnum = 0
		e.headers[0].Size = n
	} else {
		h.shnum = uint16(n)
	}
	b := make([]byte, e.f.c.ehdrSize())
	e.f.c.writeHeader(b, h)
	e.edits = append(e.edits, RawEdit{0, b})
}

// sectionNames returns the strings to append to a name table of base bytes, and where each name is. A name that is
// the end of another one shares its bytes.
func sectionNames(base int, list []ObjectSection) ([]byte, map[string]uint32) {
	at := map[string]uint32{}
	var distinct []string
	for i := range list {
		if _, ok := at[list[i].Name]; !ok {
			at[list[i].Name] = 0
			distinct = append(distinct, list[i].Name)
		}
	}
	slices.SortStableFunc(distinct, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	var added []byte
	var whole []string
	for _, n := range distinct {
		shared := false
		for _, w := range whole {
			if len(w) > len(n) && w[len(w)-len(n):] == n {
				at[n], shared = at[w]+uint32(len(w)-len(n)), true
				break
			}
		}
		if !shared {
			at[n] = uint32(base + len(added))
			added = append(append(added, n...), 0)
			whole = append(whole, n)
		}
	}
	return added, at
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
			return formatErr("section header table", f.Header.Shoff, "section %d is no group", g)
		}
		if members[g] == nil {
			order = append(order, g)
		}
		members[g] = f.c.order.AppendUint32(members[g], uint32(len(f.Sections)+i))
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

// RestoreHeaders undoes in b, the old part of the object f that Extend has made with EditOld, what concerns headers: n
// section headers are at shoff, and the name table is size bytes at off.
func (f *File) RestoreHeaders(b []byte, shoff uint64, n int, off, size uint64) {
	h := f.hdr
	h.shoff, h.shnum = shoff, uint16(n)
	null := f.Sections[0]
	null.Size = 0
	if n >= int(elf.SHN_LORESERVE) {
		h.shnum, null.Size = 0, uint64(n)
	}
	f.c.writeHeader(b, h)
	f.c.writeSection(b[shoff:], null)
	names := f.Sections[f.Header.Shstrndx]
	names.Off, names.Size = off, size
	f.c.writeSection(b[shoff+uint64(f.Header.Shstrndx)*uint64(f.Header.Shentsize):], names)
}
