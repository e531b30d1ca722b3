package objects

import (
	"bytes"
	"debug/elf"
	"fmt"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/elfio/object"
	"github.com/fentry-dev/fentry/internal/bigslice"
)

// Result is the result of recording an object.
type Result struct {
	Output   *elfio.Output // the new object, nil if there is nothing to change
	Recorded int           // entries added to a table
	Nopped   int           // calls turned into nops
	Tabled   bool          // a table was there already
}

// Output plans the object with its table.
func (ob *Object) Output() (Result, error) {
	b := builder{ob: ob}
	res := Result{Tabled: ob.have != nil}
	if err := b.tables(); err != nil {
		return res, err
	}
	if ob.o.Nop || ob.have == nil && !ob.o.KeepCalls {
		if err := b.nops(); err != nil {
			return res, err
		}
	}
	res.Recorded, res.Nopped = b.recorded, b.nopped
	if b.recorded+b.nopped == 0 {
		return res, nil
	}
	var err error
	if res.Output, err = b.output(); err != nil {
		return res, err
	}
	return res, nil
}

type builder struct {
	ob       *Object
	add      object.Additions
	tabled   [][]run // the sites of each table in add.Sections
	undo     []undoEdit
	recorded int
	nopped   int
	beyond   bool // something has been done that recordmcount never does
}

// run is the sites of one part that go into one table.
type run struct {
	p     *part
	sites []site
	base  base
	first uint32 // index of the first per-site symbol
}

// base is the symbol the entries of a section are relative to.
type base struct {
	sym   uint32
	value uint64
}

// tables plans the table sections.
func (b *builder) tables() error {
	ob := b.ob
	runs := make([]run, 0, len(ob.parts))
	for i := range ob.parts {
		p := &ob.parts[i]
		if !ob.recorded(p) || len(p.sites) == 0 {
			continue
		}
		sites := p.sites
		if ob.have != nil {
			sites = nil
			for _, s := range p.sites {
				if !ob.have.covers(p.rel.Target, p.start(s), uint64(s.hit.len)) {
					sites = append(sites, s)
				}
			}
		}
		if len(sites) > 0 {
			runs = append(runs, run{p: p, sites: sites})
			b.recorded += len(sites)
		}
	}
	if len(runs) == 0 {
		return nil
	}
	var err error
	if ob.groups, err = ob.memberships(); err != nil {
		return err
	}
	b.add.Symtab = ob.syms.Section
	b.add.Sections = bigslice.Make[object.Section](0, 2*len(runs)+1)
	b.add.Fill, b.tabled = b.fill, make([][]run, 0, len(runs))
	if err := b.bases(runs); err != nil {
		return err
	}
	var whole []run
	if ob.o.Compat {
		for _, r := range runs {
			if ob.groups[r.p.rel.Target] == 0 {
				whole = append(whole, r)
			}
		}
	}
	if len(whole) > 0 {
		b.table(whole, false)
	}
	b.beyond = len(whole) < len(runs)
	for i := range runs {
		if !ob.o.Compat || ob.groups[runs[i].p.rel.Target] != 0 {
			b.table(runs[i:i+1], true)
		}
	}
	return nil
}

// bases finds a symbol for each section, or plans one.
func (b *builder) bases(runs []run) error {
	ob := b.ob
	first := object.FirstNew(ob.f, ob.syms.Section)
	local := func(l object.Symbol) uint32 {
		b.add.Locals = append(b.add.Locals, l)
		return first + uint32(len(b.add.Locals)) - 1
	}
	if ob.m.exact {
		for i := range runs {
			r := &runs[i]
			r.first = first + uint32(len(b.add.Locals))
			for _, s := range r.sites {
				local(object.Symbol{Name: ".Lmcount", Type: elf.STT_NOTYPE, Section: uint32(r.p.rel.Target), Value: r.p.start(s)})
			}
		}
		return nil
	}
	found := make([]base, len(ob.f.Sections))
	want := len(runs)
	for _, r := range runs {
		found[r.p.rel.Target].sym = wanted
	}
	for i := 1; i < ob.syms.Len() && want > 0; i++ {
		sec := ob.syms.SectionOf(i)
		if sec == 0 || sec >= uint32(len(found)) || found[sec].sym != wanted || !b.serves(i) {
			continue
		}
		sym, v := uint32(i), ob.syms.At(i).Value
		found[sec] = base{sym, v}
		want--
	}
	if want > 0 {
		b.add.Locals = make([]object.Symbol, 0, want)
	}
	for _, r := range runs {
		t := r.p.rel.Target
		if found[t].sym == wanted {
			found[t] = base{sym: local(object.Symbol{Type: elf.STT_SECTION, Section: uint32(t)}) | made}
		}
	}
	for i := range runs {
		r := &runs[i]
		r.base = found[r.p.rel.Target]
		if r.base.sym&made != 0 {
			r.base.sym &^= made
		} else if r.base.sym >= first {
			r.base.sym += uint32(len(b.add.Locals)) // a global symbol, moved by the new ones
		}
	}
	return nil
}

// Marks of base.sym. Symbol indices are below them: a table of 2^31 symbols would have 32 GB at least.
const (
	wanted = ^uint32(0)
	made   = uint32(1) << 31
)

// serves reports whether symbol i can be a base. What it names must not be replaced by another definition, at link
// time (weak symbols) or at run time (global symbols of shared objects); recordmcount minds only the former.
func (b *builder) serves(i int) bool {
	s := b.ob.syms.At(i)
	switch s.Type() {
	case elf.STT_GNU_IFUNC, elf.STT_TLS:
		return false
	case elf.STT_FUNC:
		if !b.ob.m.funcs {
			return false
		}
	}
	if b.ob.f.Header.Machine == elf.EM_MIPS && s.Other&0xf0 != 0 {
		return false // MIPS16 or microMIPS code: an address with bit 0 set
	}
	switch s.Bind() {
	case elf.STB_LOCAL:
		return true
	case elf.STB_GLOBAL:
		vis := elf.ST_VISIBILITY(s.Other)
		return b.ob.o.Compat || vis == elf.STV_HIDDEN || vis == elf.STV_INTERNAL
	}
	return false
}

// table adds the sections of one table.
func (b *builder) table(runs []run, linked bool) {
	ob := b.ob
	f := ob.f
	n := 0
	for _, r := range runs {
		n += len(r.sites)
	}
	word := uint64(f.WordSize())
	t := object.Section{
		Name: TableName, Type: elf.SHT_PROGBITS, Flags: elf.SHF_ALLOC, Addralign: word, Entsize: word, Size: n * int(word),
	}
	rt := object.Section{
		Name: ".rel" + TableName, Type: elf.SHT_REL, Link: uint32(ob.syms.Section), Addralign: word,
		Info: uint32(len(f.Sections) + len(b.add.Sections)), Entsize: uint64(f.RelocSize(ob.m.rela)),
		Size: n * f.RelocSize(ob.m.rela),
	}
	if ob.m.rela {
		rt.Name, rt.Type = ".rela"+TableName, elf.SHT_RELA
	}
	if linked {
		target := runs[0].p.rel.Target
		if !ob.o.Compat {
			// Writable, so that position-independent images can relocate it; kept or dropped with the text it lists. Beside a
			// table of the whole object the flags have to be those of that one: mold would make two output sections of them.
			t.Flags |= elf.SHF_WRITE | elf.SHF_LINK_ORDER
			t.Link = uint32(target)
			rt.Flags |= elf.SHF_INFO_LINK
		}
		if g := ob.groups[target]; g != 0 {
			t.Flags |= elf.SHF_GROUP
			rt.Flags |= elf.SHF_GROUP
			t.Group, rt.Group = g, g
		}
	}
	b.add.Sections = append(b.add.Sections, t, rt)
	b.tabled = append(b.tabled, runs)
}

// fill writes section i of those that are added: tables and their relocations alternate.
func (b *builder) fill(i int, out []byte) {
	runs := b.tabled[i/2]
	switch {
	case i%2 == 1:
		b.relocs(runs, out)
	case b.ob.m.addendsInPlace():
		f := b.ob.f
		word := f.WordSize()
		b.entries(runs, func(i int, _ uint32, addend uint64) { f.PutWord(out[i*word:], addend) })
	}
}

// entries calls do for every entry of a table, with the symbol it is relative to and the distance from there.
func (b *builder) entries(runs []run, do func(i int, sym uint32, addend uint64)) {
	i := 0
	for k := range runs {
		r := &runs[k]
		for n, s := range r.sites {
			if b.ob.m.exact {
				do(i, r.first+uint32(n), 0)
			} else {
				do(i, r.base.sym, r.p.start(s)-r.base.value)
			}
			i++
		}
	}
}

// relocs writes the relocations of a table.
func (b *builder) relocs(runs []run, out []byte) {
	m, word := &b.ob.m, uint64(b.ob.f.WordSize())
	size, w, inPlace := b.ob.f.RelocSize(m.rela), b.ob.f.RelocWriter(m.rela), m.addendsInPlace()
	b.entries(runs, func(i int, sym uint32, addend uint64) {
		if inPlace {
			addend = 0
		}
		w.Put(out[i*size:(i+1)*size], elfio.Reloc{Off: uint64(i) * word, Type: m.abs, Sym: sym, Addend: int64(addend)})
	})
}

// nops plans to turn the calls of sections that are not recorded into nops; with Options.Nop all calls, and one that
// cannot be is an error.
func (b *builder) nops() error {
	ob := b.ob
	if ob.m.nop == nil && !ob.o.Nop {
		return nil
	}
	for i := range ob.parts {
		p := &ob.parts[i]
		if ob.recorded(p) && !ob.o.Nop {
			continue
		}
		off, c := ob.f.Sections[p.rel.Target].Off, ob.code(p.data)
		for _, s := range p.sites {
			r := p.rel.At(int(s.rel))
			var at uint64
			var nop []byte
			if ob.m.nop != nil {
				at, nop = ob.m.nop(&c, s.hit, r.Off)
			}
			if nop == nil {
				if ob.o.Nop {
					return fmt.Errorf("%s at offset %#x: no nops are known for the %v of machine %v", ob.label(p.rel.Target),
						s.hit.start(r.Off),
						s.hit.form, ob.f.Header.Machine)
				}
				continue
			}
			// GNU ld refuses a relocation of type R_X86_64_NONE whose symbol is another module's.
			sym, classic := uint32(0), p.classic(s) && ob.f.Header.Machine != elf.EM_386
			if ob.o.Compat && classic {
				sym = r.Sym
			}
			b.edit(off+at, nop)
			b.edit(p.rel.FileOff(int(s.rel)), p.rel.With(int(s.rel), sym, 0))
			b.nopped++
			b.beyond = b.beyond || !classic
		}
	}
	return nil
}

// classic reports whether the call is of a form recordmcount turns into nops.
func (p *part) classic(s site) bool {
	return !p.listed && s.hit.form == FormCall
}

func (b *builder) edit(off uint64, bytes []byte) {
	raw := b.ob.f.Raw()
	b.add.Edits = append(b.add.Edits, elfio.RawEdit{Off: off, New: bytes})
	b.undo = append(b.undo, undoEdit{off, raw[off : off+uint64(len(bytes))]})
}

// output puts the object together. What recordmcount would have written is written without an undo record, because
// stripCompat can do without.
func (b *builder) output() (*elfio.Output, error) {
	ob := b.ob
	t := trailer{size: uint64(len(ob.f.Raw())), edits: b.undo}
	var out *elfio.Output
	if len(b.add.Sections) == 0 {
		var err error
		if out, err = ob.f.Rewrite(b.add.Edits); err != nil {
			return nil, err
		}
	} else {
		t.first, t.inserted = object.FirstNew(ob.f, ob.syms.Section), uint32(len(b.add.Locals))
		t.edits = append([]undoEdit{{0, ob.f.Raw()[:headerSize(ob.f)]}}, t.edits...)
		b.add.EditOld = ob.o.Compat
		if b.add.EditOld { // both are changed in the old table, too
			for _, i := range []uint32{0, ob.f.Header.Shstrndx} {
				h := ob.f.Header
				at := h.Shoff + uint64(i)*uint64(h.Shentsize)
				t.edits = append(t.edits, undoEdit{at, ob.f.Raw()[at : at+uint64(h.Shentsize)]})
			}
		}
		var err error
		if out, err = object.Extend(ob.f, b.add); err != nil {
			return nil, fmt.Errorf("adding %s: %w", TableName, err)
		}
	}
	if !ob.o.Compat || b.beyond || len(b.add.Locals) > 0 || len(b.add.Sections) > 2 || !b.restorable(out) {
		out.Tail = append(out.Tail, t.encode())
	}
	return out, nil
}

// restorable reports whether stripCompat makes the object again of out. It nearly always does; what stood where nops
// are now can be another relocation than it assumes, and calls may have been nops before.
func (b *builder) restorable(out *elfio.Output) bool {
	ob := b.ob
	if b.nopped == 0 && ob.nops == 0 {
		return object.Restorable(ob.f) && ob.namesFound()
	}
	orig, err := stripCompat(out.Bytes())
	return err == nil && bytes.Equal(orig, ob.f.Raw())
}
