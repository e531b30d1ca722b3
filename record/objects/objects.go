package objects

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/internal/bigslice"
)

// TableName is the name of the section that holds the table of call sites.
const TableName = "__mcount_loc"

// Options of Parse. The zero value suits user programs.
type Options struct {
	// Compat appends one table for the whole object, laid out as recordmcount does.
	Compat bool
	// AllExec records the sites of every executable section. Otherwise those of sections that are not Listed become
	// nops, if the machine has one.
	AllExec bool
	// KeepCalls leaves the calls of sections that are not Listed as they are.
	KeepCalls bool
	// Nop turns every recorded call into nops, too.
	Nop bool
}

// Object is a relocatable object and the calls of profiling functions in it. It refers to the bytes given to Parse
// and never changes them; its methods are safe for concurrent use.
type Object struct {
	f      *elfio.File
	m      machine
	o      Options
	syms   *elfio.SymbolTable
	parts  []part
	marks  []uint64    // set of the symbols that are profiling functions
	groups map[int]int // section to the group it is a member of
	have   *table      // a table that is there already, nil for none
	nops   int         // calls that are nops already
}

// part is a relocation section of a text section.
type part struct {
	rel    elfio.RelocTable
	data   []byte // of the text section
	sites  []site
	taken  []uint32 // relocations that take the address of a profiling function
	listed bool
}

// site is a call, by the index of its relocation.
type site struct {
	rel uint32
	hit hit
}

// Open reads an object and parses it.
func Open(r io.ReaderAt, size int64, o Options) (*Object, error) {
	// The reader may lie about its size; what is not there is not allocated.
	var buf bytes.Buffer
	if n, err := io.Copy(&buf, io.NewSectionReader(r, 0, size)); err != nil {
		return nil, err
	} else if n != size {
		return nil, fmt.Errorf("%d bytes of %d: %w", n, size, io.ErrUnexpectedEOF)
	}
	return Parse(buf.Bytes(), o)
}

// Parse finds the calls of profiling functions in the relocatable object b, which must not change while the Object is
// in use.
func Parse(b []byte, o Options) (*Object, error) {
	f, err := elfio.Parse(b)
	if err != nil {
		return nil, err
	}
	if f.Header.Type != elf.ET_REL {
		return nil, fmt.Errorf("ELF header at offset 0x10: type %v, want a relocatable object", f.Header.Type)
	}
	m, err := machineOf(f)
	if err != nil {
		return nil, fmt.Errorf("ELF header at offset 0x12: %w", err)
	}
	ob := &Object{f: f, m: m, o: o}
	if err := ob.find(); err != nil {
		return nil, err
	}
	return ob, nil
}

// File returns the parsed object.
func (ob *Object) File() *elfio.File { return ob.f }

// find fills parts.
func (ob *Object) find() error {
	f := ob.f
	texts := 0
	for i := range f.Sections {
		if s := &f.Sections[i]; (s.Type == elf.SHT_REL || s.Type == elf.SHT_RELA) && s.Info < uint32(len(f.Sections)) &&
			isCode(&f.Sections[s.Info]) {
			texts++
		}
	}
	ob.parts = bigslice.Make[part](0, texts)
	budget := uint64(len(f.Raw()))
	var t elfio.RelocTable
	for i := range f.Sections {
		s := &f.Sections[i]
		if s.Type == elf.SectionType(shtCREL) && s.Info < uint32(len(f.Sections)) && isCode(&f.Sections[s.Info]) {
			return fmt.Errorf("%s: compact relocations are not supported", ob.label(i))
		}
		if s.Type != elf.SHT_REL && s.Type != elf.SHT_RELA || s.Size == 0 {
			continue
		}
		if s.Info == 0 || s.Info >= uint32(len(f.Sections)) {
			return fmt.Errorf("%s: relocates section %d of %d", ob.label(i), s.Info, len(f.Sections))
		}
		if !isCode(&f.Sections[s.Info]) {
			continue
		}
		if err := t.Open(f, i); err != nil {
			return err
		}
		if err := t.Check(); err != nil {
			return err
		}
		if s.Size > budget { // each has bytes of its own
			return fmt.Errorf("%s at offset %#x: overlaps other relocations", ob.label(i), s.Off)
		}
		budget -= s.Size
		if ob.syms == nil {
			var err error
			if ob.syms, err = f.SymbolTable(t.Symtab); err != nil {
				return err
			}
			ob.marks = ob.profiling()
		}
		if t.Symtab != ob.syms.Section {
			return fmt.Errorf("%s: symbol table %d, other sections use %d", ob.label(i), t.Symtab, ob.syms.Section)
		}
		if ob.marks == nil {
			continue
		}
		if err := ob.scan(&t); err != nil {
			return err
		}
	}
	if ob.syms == nil {
		for i := range f.Sections {
			if f.Sections[i].Type == elf.SHT_SYMTAB {
				var err error
				if ob.syms, err = f.SymbolTable(i); err != nil {
					return err
				}
				break
			}
		}
	}
	return ob.existing()
}

const shtCREL = 0x40000014 // LLVM: relocations in a compact encoding

// scan adds the part of one relocation section, if it has anything of interest.
func (ob *Object) scan(t *elfio.RelocTable) error {
	data, err := ob.f.SectionData(t.Target)
	if err != nil {
		return err
	}
	outside, n := -1, 0
	t.Scan(ob.marks, func(int) { n++ })
	if n == 0 {
		return nil
	}
	ob.parts = append(ob.parts,
		part{rel: *t, data: data, listed: Listed(ob.f.Sections[t.Target].Name), sites: make([]site, 0, n)})
	p := &ob.parts[len(ob.parts)-1]
	c := ob.code(data)
	t.Scan(ob.marks, func(i int) {
		r := t.At(i)
		if r.Off >= uint64(len(data)) {
			if outside < 0 {
				outside = i
			}
			return
		}
		if r.Type == 0 {
			ob.nops++
			return // R_*_NONE: a call that has been turned into nops
		}
		switch h, ok := ob.m.call(&c, r.Off, r.Type); {
		case !ok:
			p.taken = append(p.taken, uint32(i))
		case h.form != formMore && !(ob.m.joined && p.again(r.Off, h)):
			p.sites = append(p.sites, site{uint32(i), h})
		}
	})
	if outside >= 0 {
		return fmt.Errorf("%s: entry %d at offset %#x: relocates %#x, outside %s of %#x bytes", ob.label(t.Section), outside,
			t.FileOff(outside), t.At(outside).Off, ob.label(t.Target), len(data))
	}
	if len(p.sites)+len(p.taken) == 0 {
		ob.parts = ob.parts[:len(ob.parts)-1]
	}
	return nil
}

// again reports whether the call of h, whose relocation is at off, is that of the last site.
func (p *part) again(off uint64, h hit) bool {
	n := len(p.sites)
	if n == 0 {
		return false
	}
	last := &p.sites[n-1]
	return h.at(off) == last.hit.at(p.rel.At(int(last.rel)).Off)
}

// code is for reading a section's instructions.
func (ob *Object) code(data []byte) code { return code{data, orderOf(ob.f), ob.f.Is64()} }

// recorded reports whether the part's sites go into a table.
func (ob *Object) recorded(p *part) bool { return p.listed || ob.o.AllExec }

// start is the offset of a site's first byte in its section.
func (p *part) start(s site) uint64 { return s.hit.start(p.rel.At(int(s.rel)).Off) }

func (ob *Object) label(i int) string {
	if n := ob.f.Sections[i].Name; n != "" {
		return fmt.Sprintf("section %d (%s)", i, n)
	}
	return fmt.Sprintf("section %d", i)
}

// profiling returns the set of symbols that are profiling functions, nil when there are none.
func (ob *Object) profiling() []uint64 {
	names := profilingNames(ob.syms.Strings())
	if len(names) == 0 {
		return nil
	}
	lo, hi := ^uint32(0), uint32(0)
	for n := range names {
		lo, hi = min(lo, n), max(hi, n)
	}
	var marks []uint64
	for i := range ob.syms.Len() {
		n := ob.syms.NameOff(i)
		if n < lo || n > hi {
			continue
		}
		reserved, ok := names[n]
		if !ok || i == 0 {
			continue
		}
		// A static function that happens to be called mcount is not the profiling function.
		if s := ob.syms.At(i); s.Defined() && s.Bind() == elf.STB_LOCAL && !reserved {
			continue
		}
		if marks == nil {
			marks = make([]uint64, ob.syms.Len()/64+1)
		}
		marks[i/64] |= 1 << (i % 64)
	}
	return marks
}

// profilingNames returns the offsets in a string table of the names of profiling functions, with one dot before them
// or none, and whether the name is one only an implementation may define. Every machine may use any of them:
//
//	__fentry__        -mfentry
//	mcount            x86, SuperH, Arm of clang
//	_mcount           the others
//	__gnu_mcount_nc   Arm EABI
func profilingNames(strs []byte) map[uint32]bool {
	out := map[uint32]bool{}
	add := func(at int, reserved bool) {
		out[uint32(at)] = reserved
		if at > 0 && strs[at-1] == '.' {
			out[uint32(at-1)] = reserved
		}
	}
	each := func(name string, do func(at int)) {
		pat := []byte(name + "\x00")
		for from := 0; ; {
			k := bytes.Index(strs[from:], pat)
			if k < 0 {
				return
			}
			do(from + k)
			from += k + len(pat)
		}
	}
	each("mcount", func(at int) {
		add(at, false)
		if at > 0 && strs[at-1] == '_' {
			add(at-1, true)
		}
	})
	each("__fentry__", func(at int) { add(at, true) })
	each("__gnu_mcount_nc", func(at int) { add(at, true) })
	return out
}

// Site is one reference to a profiling function.
type Site struct {
	Section int    // index of the text section
	Off     uint64 // offset in it of the first byte a tracer may overwrite
	Len     int    // size of the site in bytes
	Call    uint64 // offset of the call instruction
	Reloc   uint64 // offset of the relocated place
	Form    Form
	Callee  string // the profiling function
	Listed  bool   // the sites of the section are recorded
	Tabled  bool   // an entry of an existing table names the site
}

// Sites yields all references to profiling functions, in the order of the relocation sections and of the relocations
// in them. Those of FormAddress are not calls and never recorded.
func (ob *Object) Sites() iter.Seq[Site] {
	return func(yield func(Site) bool) {
		for i := range ob.parts {
			p := &ob.parts[i]
			taken := p.taken
			for _, s := range p.sites {
				for len(taken) > 0 && taken[0] < s.rel {
					if !yield(ob.address(p, taken[0])) {
						return
					}
					taken = taken[1:]
				}
				r := p.rel.At(int(s.rel))
				start := s.hit.start(r.Off)
				if !yield(Site{
					Section: p.rel.Target, Off: start, Len: int(s.hit.len),
					Call: s.hit.at(r.Off), Reloc: r.Off,
					Form: s.hit.form, Callee: string(ob.syms.Name(int(r.Sym))), Listed: ob.recorded(p),
					Tabled: ob.have.covers(p.rel.Target, start, uint64(s.hit.len)),
				}) {
					return
				}
			}
			for _, t := range taken {
				if !yield(ob.address(p, t)) {
					return
				}
			}
		}
	}
}

// Unrecorded returns the names of the sections whose calls are not recorded, in the order of their relocations.
func (ob *Object) Unrecorded() []string {
	var out []string
	for i := range ob.parts {
		if p := &ob.parts[i]; len(p.sites) > 0 && !ob.recorded(p) {
			out = append(out, ob.f.Sections[p.rel.Target].Name)
		}
	}
	return out
}

// Tabled reports whether the object has a table already.
func (ob *Object) Tabled() bool { return ob.have != nil }

func (ob *Object) address(p *part, i uint32) Site {
	r := p.rel.At(int(i))
	return Site{Section: p.rel.Target, Off: r.Off, Call: r.Off, Reloc: r.Off, Form: FormAddress,
		Callee: string(ob.syms.Name(int(r.Sym))), Listed: ob.recorded(p)}
}

// memberships returns which group every section is a member of.
func (ob *Object) memberships() (map[int]int, error) {
	f := ob.f
	out := map[int]int{}
	budget := len(f.Raw())
	for i := range f.Sections {
		if f.Sections[i].Type != elf.SHT_GROUP {
			continue
		}
		data, err := f.SectionData(i)
		if err != nil {
			return nil, err
		}
		if budget -= len(data); budget < 0 {
			return nil, errors.New("section groups overlap")
		}
		for at := 4; at+4 <= len(data); at += 4 {
			out[int(f.Order().Uint32(data[at:]))] = i
		}
	}
	return out, nil
}

// table is what entries of a table name: offsets in text sections, sorted.
type table struct {
	section int
	entries map[int][]uint64
	n       int
}

// covers reports whether an entry lies in [off, off+n) of a section: at the instruction, or inside it where another
// tool has put it.
func (t *table) covers(section int, off, n uint64) bool {
	if t == nil {
		return false
	}
	l := t.entries[section]
	i, _ := slices.BinarySearch(l, off)
	return i < len(l) && l[i]-off < n
}

// existing reads the tables that are there.
func (ob *Object) existing() error {
	f := ob.f
	for i := range f.Sections {
		s := &f.Sections[i]
		if s.Type != elf.SHT_REL && s.Type != elf.SHT_RELA || s.Info == 0 || s.Info >= uint32(len(f.Sections)) ||
			f.Sections[s.Info].Name != TableName {
			continue
		}
		if ob.have == nil {
			ob.have = &table{section: int(s.Info), entries: map[int][]uint64{}}
		}
		if err := ob.tableEntries(i, func(sec int, off uint64) bool {
			ob.have.entries[sec] = append(ob.have.entries[sec], off)
			ob.have.n++
			return true
		}); err != nil {
			return err
		}
	}
	if ob.have != nil {
		for _, l := range ob.have.entries {
			slices.Sort(l)
		}
	}
	return nil
}
