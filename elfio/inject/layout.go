package inject

import (
	"debug/elf"
	"fmt"
	"strings"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/elfio/internal/raw"
)

// Where an injection goes.
//
// Code that is injected refers to itself, to its memory and to the image by distance, so all addresses must be known
// before it is linked, and its size is known only afterwards. Hence the order: zeroed memory, whose size a linker can
// tell beforehand, behind the last bss; then the new segment, above everything, where it can be as large as it needs to
// be. Layout depends on the image and on sizes only, and Into computes it again and compares: a plan for another image
// is refused, never carried out.

// Layout says where in an image an injection goes. It depends only on the image and on the amount of zeroed memory
// wanted, so code can be linked for its addresses before anything is written.
type Layout struct {
	RX      uint64 // address of Injection.RX[0]; aligned to at least 64
	RXOff   uint64 // its offset in the new file
	RW      uint64 // address of RWSize bytes of zeroed, writable memory; 0 if none was asked for
	RWSize  uint64
	RWAlign uint64

	TLSSize  uint64 // bytes of zeroed thread-local memory; 0 if none was asked for
	TLSAlign uint64
	TLS      uint64 // its offset from the thread pointer

	// EhFrame says whether PT_GNU_EH_FRAME can point to a table in RX: the image has that program header, or there is
	// a slot for one.
	EhFrame bool
	// Slot names what the new program headers replace, comma-separated, in the order used:
	// "null", "room", "property-note", "merge", "move-notes", "phdr", "note", "move-hash", "merge-data", "build-id-note".
	Slot string

	Segment    uint64 // address of the new read-execute segment; what "move-notes" and "move-hash" moved is before RX
	SegmentOff uint64 // its file offset
	Align      uint64 // its p_align
	// RWSegment is the address of the PT_LOAD made for RW if no writable segment could grow, else 0.
	RWSegment    uint64
	RWSegmentOff uint64
}

// rwStub is the number of zero file bytes a writable segment of our own starts with. Kernels before 6.6
// skip a PT_LOAD with p_filesz 0 that is not the last one.
const rwStub = 64

// fileAlign is what new segments are aligned to in the file. It need not be the page size: their addresses are the same as
// their offsets modulo that (congruent), so kernels map them with what is before them in the file, on pages that no other
// segment has. On arm64 that saves 32 KiB on average.
const fileAlign = 0x1000

// rxAlign is the alignment of Layout.RX.
const rxAlign = 64

// pageSize returns the largest page size kernels of the machine use, the unit in which segments must
// not share memory. psABIs: "maximum page size".
func (f *image) pageSize() uint64 {
	switch f.Header.Machine {
	case elf.EM_AARCH64, elf.EM_PPC64, elf.EM_PPC, elf.EM_MIPS, elf.EM_LOONGARCH:
		return 0x10000
	case elf.EM_SPARCV9:
		return 0x2000
	}
	return 0x1000
}

// Memory is zeroed memory to be added to an image. Alignments are powers of two.
type Memory struct {
	RW, RWAlign   uint64 // writable memory; alignment 0: 16
	TLS, TLSAlign uint64 // thread-local memory: see [ExtendTLS]
}

// NewLayout lays out an injection with the given memory.
//
// RW follows the bss of the highest writable segment, which grows; if the next segment leaves no room, RW gets a
// segment of its own. RX is a new segment above everything loaded. Its contents go to the end of the file. The
// program header table keeps its place and needs slots: see [Layout.Slot].
//
// It returns ErrInjected for an image that has an injection, and errors for relocatable objects, core files and
// images whose program header table has no slot to spare.
func NewLayout(f *elfio.File, m Memory) (Layout, error) {
	p, err := newImage(f).plan(Layout{RWSize: m.RW, RWAlign: m.RWAlign, TLSSize: m.TLS, TLSAlign: m.TLSAlign})
	if err != nil {
		return Layout{}, err
	}
	return p.Layout, nil
}

// injectionPlan is a Layout with what Inject needs to carry it out.
type injectionPlan struct {
	Layout
	grow  int          // index of the program header in File.Progs that grows, -1 for none
	progs []elfio.Prog // the program headers that stay, before anything is added or grown
	slots []string     // Layout.Slot
	moved movedBlock
	tls   elfio.Prog // the image's PT_TLS, extended; only if Layout.TLSSize is not 0
}

// plan lays out what is wanted: sizes and alignments.
func (f *image) plan(wanted Layout) (*injectionPlan, error) {
	if err := f.injectable(); err != nil {
		return nil, err
	}
	rw, rwAlign := wanted.RWSize, wanted.RWAlign
	if rwAlign == 0 {
		rwAlign = 16
	}
	if rwAlign&(rwAlign-1) != 0 {
		return nil, fmt.Errorf("alignment %#x of the zeroed memory is no power of two", rwAlign)
	}
	p := &injectionPlan{grow: -1}
	p.RWSize, p.RWAlign = rw, rwAlign
	p.TLSSize, p.TLSAlign = wanted.TLSSize, wanted.TLSAlign
	need, err := f.planSegments(p)
	if err != nil {
		return nil, err
	}
	if err := f.planTLS(p); err != nil {
		return nil, err
	}
	if p.TLSSize > 0 && f.ProgIndex(elf.PT_TLS) < 0 {
		need++
	}
	hasEh := f.ProgIndex(elf.PT_GNU_EH_FRAME) >= 0
	p.EhFrame = true
	if !hasEh {
		need++
	}
	err = f.planSlots(p, need)
	if err != nil && !hasEh {
		p.EhFrame = false
		err = f.planSlots(p, need-1)
	}
	if err != nil {
		return nil, err
	}
	p.Slot = strings.Join(p.slots, ",")
	p.RX, p.RXOff = p.Segment, p.SegmentOff
	if n := p.moved.size(); n > 0 {
		d, _ := raw.AlignUp(rxAlign+p.moved.start%rxAlign+n, rxAlign)
		p.RX += d
		p.RXOff += d
	}
	return p, nil
}

// planSegments finds places for the zeroed memory and for the new segment, and says how many program headers they need.
func (f *image) planSegments(p *injectionPlan) (need int, err error) {
	rw, page := p.RWSize, f.pageSize()
	p.Align = page
	end := uint64(0) // of everything loaded
	for i, s := range f.Progs {
		if s.Type != elf.PT_LOAD {
			continue
		}
		e := s.Vaddr + s.Memsz
		if e < s.Vaddr || !f.c.Fits(e) {
			return 0, elfio.FormatErrorf(f.ProgLabel(i), s.Off, "memory %#x+%#x exceeds the address space", s.Vaddr, s.Memsz)
		}
		end = max(end, e)
		if s.Align > p.Align && s.Align&(s.Align-1) == 0 && s.Align <= 1<<30 {
			p.Align = s.Align
		}
	}
	need = 1
	off, ok := raw.AlignUp(uint64(len(f.raw)), fileAlign)
	if rw > 0 {
		if !f.growRW(p) {
			// RX has no known size yet, so this segment goes first.
			need++
			p.RWSegmentOff = off
			p.RWSegment, ok = congruent(end, off, page, p.Align)
			start, ok2 := raw.AlignUp(p.RWSegment+rwStub, p.RWAlign)
			p.RW = start
			off += page
			if !ok || !ok2 {
				return 0, fmt.Errorf("no address space for %#x bytes of zeroed memory", rw)
			}
		}
		if p.RW+rw < p.RW {
			return 0, fmt.Errorf("no address space for %#x bytes of zeroed memory", rw)
		}
		end = max(end, p.RW+rw)
	}
	var ok2 bool
	p.SegmentOff = off
	p.Segment, ok2 = congruent(end, off, page, p.Align)
	if !ok || !ok2 || !f.c.Fits(p.Segment+1<<20) {
		return 0, fmt.Errorf("no address space for a segment above %#x", end)
	}
	return need, nil
}

// injectable refuses what cannot take an injection.
func (f *image) injectable() error {
	switch f.Header.Type {
	case elf.ET_EXEC, elf.ET_DYN:
	default:
		return elfio.FormatErrorf("ELF header", 16, "%v: only executables and shared objects take an injection",
			f.Header.Type)
	}
	if len(f.loads) == 0 {
		return elfio.FormatErrorf("program header table", f.Header.Phoff, "no PT_LOAD segment")
	}
	if uint64(f.Header.Phentsize) != f.c.PhdrSize() {
		return elfio.FormatErrorf("ELF header", 0, "program header entries have %d bytes, want %d", f.Header.Phentsize,
			f.c.PhdrSize())
	}
	if f.hdr.Phnum == 0xffff {
		return elfio.FormatErrorf("ELF header", 0, "program headers are numbered in section header 0: no slot can be changed")
	}
	if f.Header.Phoff < f.c.EhdrSize() {
		return elfio.FormatErrorf("program header table", f.Header.Phoff, "overlaps the ELF header")
	}
	for i, p := range f.Progs {
		if p.Type != elf.PT_LOAD {
			continue
		}
		if p.Filesz > p.Memsz {
			return elfio.FormatErrorf(f.ProgLabel(i), p.Off, "%#x bytes in the file, %#x in memory", p.Filesz, p.Memsz)
		}
		if _, err := f.ProgData(i); err != nil {
			return err
		}
	}
	for i, s := range f.Sections {
		if s.Type == elf.SHT_NOBITS && s.Flags&elf.SHF_EXECINSTR != 0 && s.Size > 0 {
			return elfio.FormatErrorf(f.SectionLabel(i), s.Off, "has no contents: this is a separate debug file")
		}
	}
	if f.injected() {
		return ErrInjected
	}
	if i := f.SectionIndex(".gnu.prelink_undo"); i >= 0 {
		return elfio.FormatErrorf(f.SectionLabel(i), f.Sections[i].Off,
			"the image is prelinked; undo that first (prelink -u)")
	}
	return nil
}

// injected reports whether the image carries an injection.
func (f *image) injected() bool {
	for i := range f.Sections {
		if strings.HasPrefix(f.Sections[i].Name, ".fentry.") {
			return true
		}
	}
	_, ok := trailer(f.raw)
	return ok
}

// congruent returns the lowest address from end on that starts a page of its own and is congruent to
// the file offset modulo align.
func congruent(end, off, page, align uint64) (addr uint64, ok bool) {
	addr, ok = raw.AlignUp(end, page)
	addr += (off - addr) & (align - 1)
	return addr, ok && addr >= end
}

// growRW puts RW behind the highest writable segment. It fails when there is none or the next segment
// is in the way.
func (f *image) growRW(p *injectionPlan) bool {
	last := -1
	for i, s := range f.Progs {
		if s.Type == elf.PT_LOAD && s.Flags&elf.PF_W != 0 && (last < 0 || s.Vaddr >= f.Progs[last].Vaddr) {
			last = i
		}
	}
	if last < 0 {
		return false
	}
	s := f.Progs[last]
	start := s.Vaddr + s.Memsz
	for _, r := range f.Progs {
		// The dynamic linker makes whole pages of RELRO read-only; lld may round its end up beyond the segment's.
		if r.Type == elf.PT_GNU_RELRO && r.Vaddr+r.Memsz >= start && r.Vaddr < start {
			var ok bool
			if start, ok = raw.AlignUp(r.Vaddr+r.Memsz, p.Align); !ok {
				return false
			}
		}
	}
	start, ok := raw.AlignUp(start, p.RWAlign)
	if !ok || start+p.RWSize < start || !f.c.Fits(start+p.RWSize) {
		return false
	}
	for _, o := range f.Progs {
		if o.Type == elf.PT_LOAD && o.Vaddr > s.Vaddr && start+p.RWSize > o.Vaddr&^(f.pageSize()-1) {
			return false
		}
	}
	p.grow, p.RW = last, start
	return true
}
