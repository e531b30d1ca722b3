package code

import (
	"cmp"
	"debug/elf"
	"fmt"
	"slices"
	"sort"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/elfio/inject"
)

// Region is a contiguous range of executable code with its bytes in the file.
type Region struct {
	Addr uint64
	Data []byte // sub-slice of the image, read-only
	Name string // section name; in an image without section headers that of what fentry has added there, else ""
	// Exact is false if the region is a whole segment, which can hold headers and tables besides code.
	Exact bool
}

// End returns the address after the region.
func (r *Region) End() uint64 { return r.Addr + uint64(len(r.Data)) }

// Text is all executable code of an image. It caches the region looked up last, so it must not be used by several
// goroutines at once; each can use a copy.
type Text struct {
	Regions []Region // sorted by address, without overlaps
	last    int
}

// New returns the code in the executable sections of f that are loaded at their addresses or, without section
// headers, in the executable segments. Images that load two things at one address are refused: nothing about their
// code is certain.
func New(f *elfio.File) (*Text, error) {
	if err := checkSegments(f); err != nil {
		return nil, err
	}
	t := &Text{}
	for i := range f.Sections {
		s := &f.Sections[i]
		const want = elf.SHF_ALLOC | elf.SHF_EXECINSTR
		if s.Flags&want != want || s.Type == elf.SHT_NOBITS || s.Size == 0 {
			continue
		}
		if off, ok := f.Offset(s.Addr); !ok || off != s.Off {
			continue // a header that tells a different story from what is loaded
		}
		if s.Size > uint64(len(f.Raw())) {
			return nil, fmt.Errorf("section %d (%s) at offset %#x: larger than the file", i, s.Name, s.Off)
		}
		b, err := f.Bytes(s.Addr, int(s.Size))
		if err != nil {
			return nil, err
		}
		t.Regions = append(t.Regions, Region{Addr: s.Addr, Data: b, Name: s.Name, Exact: true})
	}
	if len(t.Regions) == 0 {
		patched, err := inject.Described(f)
		if err != nil {
			return nil, err
		}
		for _, p := range f.Progs {
			if p.Type != elf.PT_LOAD || p.Flags&elf.PF_X == 0 || p.Filesz == 0 || p.Filesz > uint64(len(f.Raw())) {
				continue
			}
			b, err := f.Bytes(p.Vaddr, int(p.Filesz))
			if err != nil {
				return nil, err
			}
			t.Regions = append(t.Regions, Region{Addr: p.Vaddr, Data: b, Name: addedTo(patched, p)})
		}
	}
	slices.SortStableFunc(t.Regions, func(a, b Region) int { return cmp.Compare(a.Addr, b.Addr) })
	total := 0
	for i := range t.Regions {
		r := &t.Regions[i]
		total += len(r.Data)
		if r.End() < r.Addr || i > 0 && t.Regions[i-1].End() > r.Addr {
			return nil, fmt.Errorf("executable code %s at %#x overlaps other code", r.Name, r.Addr)
		}
	}
	if total > len(f.Raw()) {
		return nil, fmt.Errorf("executable sections of %d bytes in a file of %d: they overlap in the file", total,
			len(f.Raw()))
	}
	return t, nil
}

// addedTo is the name of code that has been added to an image without section headers as a segment, "" for another one.
func addedTo(patched *elfio.File, p elfio.Prog) string {
	for _, s := range patched.Sections {
		if s.Flags&elf.SHF_EXECINSTR != 0 && s.Addr-p.Vaddr < p.Filesz {
			return s.Name
		}
	}
	return ""
}

// checkSegments refuses images that load two things at one address: nothing is certain about their code.
func checkSegments(f *elfio.File) error {
	var loads []elfio.Prog
	for _, p := range f.Progs {
		if p.Type != elf.PT_LOAD {
			continue
		}
		if p.Filesz > p.Memsz {
			return fmt.Errorf("PT_LOAD segment at %#x: more bytes in the file than in memory", p.Vaddr)
		}
		loads = append(loads, p)
	}
	slices.SortFunc(loads, func(a, b elfio.Prog) int { return cmp.Compare(a.Vaddr, b.Vaddr) })
	for i, p := range loads {
		if p.Vaddr+p.Memsz < p.Vaddr || i > 0 && loads[i-1].Vaddr+loads[i-1].Memsz > p.Vaddr {
			return fmt.Errorf("PT_LOAD segment at %#x overlaps another one", p.Vaddr)
		}
	}
	return nil
}

// Region returns the region that holds addr, or nil if there is none.
func (t *Text) Region(addr uint64) *Region {
	if t.last < len(t.Regions) {
		if r := &t.Regions[t.last]; addr-r.Addr < uint64(len(r.Data)) {
			return r
		}
	}
	i := sort.Search(len(t.Regions), func(i int) bool { return t.Regions[i].Addr > addr }) - 1
	if i < 0 || addr >= t.Regions[i].End() {
		return nil
	}
	t.last = i
	return &t.Regions[i]
}

// From returns the bytes from addr to the end of its region, or nil if addr is not in code.
func (t *Text) From(addr uint64) []byte {
	r := t.Region(addr)
	if r == nil {
		return nil
	}
	return r.Data[addr-r.Addr:]
}

// Range returns the bytes of [addr, end), or fewer if the region ends before end.
func (t *Text) Range(addr, end uint64) []byte {
	b := t.From(addr)
	if end < addr {
		return nil
	}
	if n := end - addr; n < uint64(len(b)) {
		b = b[:n]
	}
	return b
}
