package inject

import (
	"cmp"
	"debug/elf"
	"fmt"
	"iter"
	"slices"
	"sort"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/elfio/internal/raw"
	"github.com/fentry-dev/fentry/internal/bigslice"
)

// Carrying out an injection.
//
// The result is the original with edits and a tail, never a copy: images have hundreds of megabytes, and most of them
// stays as it is. Everything is decided before the first byte is made: program headers, then the tail from the new
// segment on, then section headers, which need the places of the rest. The undo record comes late, because it says
// which ranges change, and is needed by nothing but the section header table behind it. The headers, whose place but
// not whose contents the undo record needs, are filled in at the end.

// Injection is what Inject adds to an image and changes in it.
type Injection struct {
	Layout Layout // from Layout, for the same image
	// RX is the contents of the new read-execute segment from Layout.RX on.
	RX []byte
	// RWSize is how many bytes of the memory at Layout.RW are used; 0: all of Layout.RWSize.
	RWSize uint64
	// Entry is the new e_entry; 0: it stays.
	Entry uint64
	// EhFrameHdr is the address and size, inside RX, of the new search table for PT_GNU_EH_FRAME and section
	// .eh_frame_hdr; zeroes: they stay. ehframe.MergeHeader makes one.
	EhFrameHdr [2]uint64
	// Sections get section headers. One at the address of EhFrameHdr is ignored: that table is section .eh_frame_hdr,
	// the image's own or a new one. Parts of RX and the end of RW that they do not cover get sections
	// .fentry.rx and .fentry.bss, because strip and objcopy drop what no section covers. An image without section
	// headers gets none; see [Described].
	Sections []Section
	// Moved are existing sections whose contents have been copied, usually grown, to RX.
	Moved []Moved
	// SymbolRuns and then Symbols are added to .symtab, if the image has one.
	SymbolRuns []SymbolRun
	Symbols    []Symbol
	// Edits are file bytes to overwrite, not overlapping, in any order. Sorted ones save time.
	Edits []elfio.RawEdit
	// TakeEdits hands over the slice Edits: it is sorted in place, and extended in place if it has capacity.
	TakeEdits bool
}

// Section is a section to add. Alloc sections lie in RX or RW, NOBITS ones in RW.
type Section struct {
	Name    string
	Type    elf.SectionType
	Flags   elf.SectionFlag
	Addr    uint64 // 0 for sections without SHF_ALLOC
	Size    uint64 // of alloc sections
	Align   uint64
	Entsize uint64
	Link    string // name of the section for sh_link, "" if none
	Data    []byte // contents of non-alloc sections
	Replace bool   // a non-alloc section of the image with the same name gets these contents; else there are two
}

// Moved is an existing section whose contents now lie in RX.
type Moved struct {
	Section int // index in File.Sections
	Addr    uint64
	Size    uint64
}

// Symbol is a symbol to add to .symtab.
type Symbol struct {
	Name  string
	Value uint64
	Size  uint64
	Info  byte // elf.ST_INFO(bind, type)
	Other byte // visibility
	// Section is the name of the section the symbol is defined in. "": the added section that holds
	// Value, or SHN_ABS if none does.
	Section string
}

// SymbolRun is a run of symbols of one section, size and kind, such as those of thunks, that need not all be in
// memory.
type SymbolRun struct {
	Section string // name of the section they are defined in
	Size    uint64
	Info    byte
	Prefix  string                    // prefix of all names
	N       int                       // how many
	All     iter.Seq2[string, uint64] // their names and values
	// NameBytes is the approximate size of all names in bytes, each with its prefix and one byte more.
	NameBytes int
}

// Into returns the image with the injection. Nothing of the original moves: what is added follows it. [Undo] takes it
// out again. The output refers to the bytes of the file and of the injection: neither may be changed while it is in
// use.
func Into(file *elfio.File, in Injection) (*elfio.Output, error) {
	f := newImage(file)
	p, err := f.plan(in.Layout)
	if err != nil {
		return nil, err
	}
	if p.Layout != in.Layout {
		return nil, fmt.Errorf("the layout belongs to another image: %+v, want %+v", in.Layout, p.Layout)
	}
	if in.RWSize == 0 {
		in.RWSize = p.RWSize
	}
	if in.RWSize > p.RWSize {
		return nil, fmt.Errorf("%#x bytes of zeroed memory, the layout has %#x", in.RWSize, p.RWSize)
	}
	if len(in.RX) == 0 {
		return nil, fmt.Errorf("the read-execute segment is empty")
	}
	j := &injector{f: f, in: in, plan: p, tail: tail{start: uint64(len(f.raw))}}
	if err := j.run(); err != nil {
		return nil, err
	}
	return &elfio.Output{Edits: j.edits, Orig: f.raw, Tail: j.tail.parts}, nil
}

// injector carries out one injection.
type injector struct {
	f     *image
	in    Injection
	plan  *injectionPlan
	progs []elfio.Prog    // new program headers
	tail  tail            // what follows the original
	rx    int             // the part of the tail that is Injection.RX
	ownRX bool            // that part has been copied, and may be changed
	edits []elfio.RawEdit // sorted, once they are complete
	extra []elfio.RawEdit // besides those of the caller

	sections        []elfio.Section // new section headers, the undo record's last
	shoff           uint64          // new section header table
	shnum, shstrndx uint32
}

// inRX reports whether the range is inside RX.
func (j *injector) inRX(addr, n uint64) bool {
	_, ok := raw.Slice(j.in.RX, addr-j.plan.RX, n)
	return ok && addr >= j.plan.RX
}

func (j *injector) inRW(addr, n uint64) bool {
	return addr >= j.plan.RW && addr-j.plan.RW <= j.in.RWSize && n <= j.in.RWSize-(addr-j.plan.RW)
}

// rxOff returns the file offset of an address of the new segment.
func (j *injector) rxOff(addr uint64) uint64 { return addr - j.plan.Segment + j.plan.SegmentOff }

func (j *injector) run() error {
	if err := j.programHeaders(); err != nil {
		return err
	}
	if err := j.checkEdits(); err != nil {
		return err
	}
	hash, err := j.f.movedDynamic(j.plan)
	if err != nil {
		return err
	}
	j.extra = append(j.extra, hash...)
	j.segment()
	withSections := len(j.f.Sections) > 0
	if withSections {
		if err := j.planSections(); err != nil {
			return err
		}
	}
	// The undo record needs to know which ranges change, not what they change to.
	hdr := elfio.RawEdit{Off: 0, New: make([]byte, j.f.c.EhdrSize())}
	t := j.tableSpan()
	table := elfio.RawEdit{Off: t.off, New: make([]byte, t.n)}
	j.extra = append(j.extra, hdr, table)
	if err := j.mergeEdits(); err != nil {
		return err
	}
	var sections []byte
	if !withSections {
		sections = j.describe()
	}
	undo := encodeUndo(j.f.raw, j.edits, sections)
	off := j.tail.align(8)
	j.tail.put(undo)
	if withSections {
		j.writeSectionHeaders(off, uint64(len(undo)))
	}
	j.fillHeaders(hdr.New, table.New)
	return nil
}

// programHeaders builds the new program header table.
func (j *injector) programHeaders() error {
	f, p := j.f, j.plan
	progs := slices.Clone(p.progs)
	if p.grow >= 0 && j.in.RWSize > 0 {
		i := slices.Index(progs, f.Progs[p.grow])
		progs[i].Memsz = p.RW + j.in.RWSize - progs[i].Vaddr
	}
	for i, q := range progs {
		if p.moved.moves(q.Off, q.Filesz) && q.Type != elf.PT_LOAD && q.Type != elf.PT_PHDR {
			d := q.Off - p.moved.start
			at := p.movedAddr() + d
			progs[i].Off = j.rxOff(at)
			progs[i].Paddr += at - q.Vaddr
			progs[i].Vaddr = at
		}
	}
	var loads []elfio.Prog
	if p.RWSegment != 0 {
		loads = append(loads, elfio.Prog{Type: elf.PT_LOAD, Flags: elf.PF_R | elf.PF_W, Off: p.RWSegmentOff,
			Vaddr: p.RWSegment, Paddr: p.RWSegment,
			Filesz: rwStub, Memsz: p.RW + j.in.RWSize - p.RWSegment, Align: p.Align})
	}
	size := p.RX - p.Segment + uint64(len(j.in.RX))
	if p.Segment+size < p.Segment || !f.c.Fits(p.Segment+size) {
		return fmt.Errorf("a segment of %#x bytes at %#x exceeds the address space", size, p.Segment)
	}
	loads = append(loads, elfio.Prog{Type: elf.PT_LOAD, Flags: elf.PF_R | elf.PF_X, Off: p.SegmentOff,
		Vaddr: p.Segment, Paddr: p.Segment, Filesz: size, Memsz: size, Align: p.Align})
	last := 0 // index behind the highest PT_LOAD
	for i, q := range progs {
		if q.Type == elf.PT_LOAD && (last == 0 || q.Vaddr >= progs[last-1].Vaddr) {
			last = i + 1
		}
	}
	progs = slices.Insert(progs, last, loads...)
	if eh := j.in.EhFrameHdr; eh[1] != 0 {
		// Rules for thunks look at the code that a return address points to, and processors
		// with memory protection keys or FEAT_PAN3 do not let them, if it can be executed only.
		for i := range progs {
			if q := &progs[i]; q.Type == elf.PT_LOAD && q.Flags&elf.PF_X != 0 {
				q.Flags |= elf.PF_R
			}
		}
		if !j.inRX(eh[0], eh[1]) {
			return fmt.Errorf("the .eh_frame_hdr at %#x+%#x is outside the new segment at %#x+%#x", eh[0], eh[1], p.RX,
				len(j.in.RX))
		}
		h := elfio.Prog{Type: elf.PT_GNU_EH_FRAME, Flags: elf.PF_R, Off: j.rxOff(eh[0]), Vaddr: eh[0], Paddr: eh[0],
			Filesz: eh[1], Memsz: eh[1], Align: 4}
		if i := slices.IndexFunc(progs, func(q elfio.Prog) bool { return q.Type == elf.PT_GNU_EH_FRAME }); i >= 0 {
			progs[i] = h
		} else if p.EhFrame {
			progs = append(progs, h)
		} else {
			return elfio.FormatErrorf("program header table", f.Header.Phoff, "no slot for PT_GNU_EH_FRAME")
		}
	}
	progs = j.tlsHeader(progs)
	for i := range progs {
		if progs[i].Type == elf.PT_PHDR {
			progs[i].Filesz = uint64(len(progs)) * f.c.PhdrSize()
			progs[i].Memsz = progs[i].Filesz
		}
	}
	j.progs = progs
	return nil
}

// movedAddr is the new address of the moved block. Alignment up to rxAlign is kept. It is not the start of the segment:
// llvm-strip takes the first program header with an offset, which is PT_INTERP's then, for what holds all others.
func (p *injectionPlan) movedAddr() uint64 { return p.Segment + rxAlign + p.moved.start%rxAlign }

// tableSpan is what the ELF header and the program header table overwrite.
func (j *injector) tableSpan() span {
	n := max(len(j.progs), len(j.f.Progs))
	return span{j.f.Header.Phoff, uint64(n) * j.f.c.PhdrSize()}
}

// checkEdits validates the caller's edits. One inside the moved block changes the copy.
func (j *injector) checkEdits() error {
	own := []span{{0, j.f.c.EhdrSize()}, j.tableSpan()}
	size, moved := uint64(len(j.f.raw)), j.plan.moved.size() > 0
	for i := range j.in.Edits {
		e := &j.in.Edits[i]
		n := uint64(len(e.New))
		if e.Off > size || n > size-e.Off {
			return fmt.Errorf("edit at offset %#x: %d bytes end outside the file of %#x bytes", e.Off, n, size)
		}
		if n == 0 || moved && j.plan.moved.moves(e.Off, n) {
			continue
		}
		for _, o := range own {
			if e.Off < o.off+o.n && o.off < e.Off+n {
				return fmt.Errorf("edit at offset %#x overlaps the headers at %#x+%#x", e.Off, o.off, o.n)
			}
		}
	}
	return nil
}

// mergeEdits sorts the edits of the caller, which usually are sorted, and the few others into one list.
func (j *injector) mergeEdits() error {
	byOff := func(a, b elfio.RawEdit) int { return cmp.Compare(a.Off, b.Off) }
	moved := j.plan.moved.size() > 0
	drop := func(e *elfio.RawEdit) bool {
		return len(e.New) == 0 || moved && j.plan.moved.moves(e.Off, uint64(len(e.New)))
	}
	in := j.in.Edits
	for i := 1; i < len(in); i++ {
		if in[i].Off < in[i-1].Off {
			for k := i; k < len(in); k++ {
				if !drop(&in[k]) {
					j.extra = append(j.extra, in[k])
				}
			}
			in = in[:i]
			break
		}
	}
	slices.SortStableFunc(j.extra, byOff)
	if moved || slices.ContainsFunc(in, func(e elfio.RawEdit) bool { return len(e.New) == 0 }) {
		in = slices.DeleteFunc(slices.Clone(in), func(e elfio.RawEdit) bool { return drop(&e) })
	}
	if !j.in.TakeEdits {
		in = append(bigslice.Make[elfio.RawEdit](0, len(in)+len(j.extra)), in...)
	}
	// From the end, so that nothing has to be out of the way.
	n, extra := len(in)-1, j.extra
	j.edits = bigslice.Grow(in, len(extra))[:len(in)+len(extra)]
	for to := len(j.edits) - 1; len(extra) > 0; to-- {
		if last := &extra[len(extra)-1]; n >= 0 && j.edits[n].Off > last.Off {
			j.edits[to] = j.edits[n]
			n--
		} else {
			j.edits[to], extra = *last, extra[:len(extra)-1]
		}
	}
	return disjoint(j.edits)
}

func disjoint(sorted []elfio.RawEdit) error {
	for i := 1; i < len(sorted); i++ {
		if a, b := &sorted[i-1], &sorted[i]; a.Off+uint64(len(a.New)) > b.Off {
			return fmt.Errorf("edits at offsets %#x (%d bytes) and %#x overlap", a.Off, len(a.New), b.Off)
		}
	}
	return nil
}

// segment appends the file contents of the new segments.
func (j *injector) segment() {
	p := j.plan
	j.tail.padTo(p.SegmentOff) // a writable segment's file bytes are zeroes, like padding
	if p.moved.size() > 0 {
		j.tail.padTo(j.rxOff(p.movedAddr()))
		block := slices.Clone(j.f.raw[p.moved.start:p.moved.end])
		for _, e := range j.in.Edits {
			if p.moved.moves(e.Off, uint64(len(e.New))) {
				copy(block[e.Off-p.moved.start:], e.New)
			}
		}
		j.tail.put(block)
		j.tail.padTo(p.RXOff)
	}
	j.rx = len(j.tail.parts)
	j.tail.put(j.in.RX)
}

// ownedRX is the contents of the new segment, to be changed: the caller's are not touched.
func (j *injector) ownedRX() []byte {
	if !j.ownRX {
		j.tail.parts[j.rx] = slices.Clone(j.in.RX)
		j.ownRX = true
	}
	return j.tail.parts[j.rx]
}

// fillHeaders encodes the new ELF header and program header table.
func (j *injector) fillHeaders(hdr, table []byte) {
	f := j.f
	h := f.hdr
	h.Phnum = uint16(len(j.progs))
	if j.in.Entry != 0 {
		h.Entry = j.in.Entry
	}
	if len(f.Sections) > 0 {
		h.Shoff = j.shoff
		h.Shentsize = uint16(f.c.ShdrSize())
		h.Shnum, h.Shstrndx = uint16(j.shnum), uint16(j.shstrndx)
		if j.shnum >= uint32(elf.SHN_LORESERVE) {
			h.Shnum = 0
		}
		if j.shstrndx >= uint32(elf.SHN_LORESERVE) {
			h.Shstrndx = uint16(elf.SHN_XINDEX)
		}
	}
	f.c.WriteHeader(hdr, h)
	for i, q := range j.progs {
		f.PutProg(table[uint64(i)*f.c.PhdrSize():], q)
	}
}

// sortSections orders added sections by address, the non-alloc ones behind.
func sortSections(s []Section) {
	sort.SliceStable(s, func(a, b int) bool {
		x, y := s[a].Flags&elf.SHF_ALLOC != 0, s[b].Flags&elf.SHF_ALLOC != 0
		if x != y {
			return x
		}
		return x && s[a].Addr < s[b].Addr
	})
}
