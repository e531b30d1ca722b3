package record

import (
	"debug/elf"
	"fmt"
	"slices"
	"sort"

	"github.com/fentry-dev/fentry/elfio"
)

// region is a piece of executable code the file has the bytes of.
type region struct {
	addr uint64
	data []byte
	name string // section name, "" when the image has no section headers
	// exact is false when the region is a whole segment, which can hold headers and tables besides code.
	exact bool
}

func (r *region) end() uint64 { return r.addr + uint64(len(r.data)) }

// code is all executable code of an image, sorted by address, without overlaps. It remembers the region that was asked
// for last: a copy is for one goroutine only.
type code struct {
	regions []region
	last    int
}

// findCode takes the executable sections that are loaded where they say, or, without section headers, the executable
// segments.
func findCode(f *elfio.File) (*code, error) {
	if err := checkSegments(f); err != nil {
		return nil, err
	}
	c := &code{}
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
		c.regions = append(c.regions, region{addr: s.Addr, data: b, name: s.Name, exact: true})
	}
	if len(c.regions) == 0 {
		for _, p := range f.Progs {
			if p.Type != elf.PT_LOAD || p.Flags&elf.PF_X == 0 || p.Filesz == 0 || p.Filesz > uint64(len(f.Raw())) {
				continue
			}
			b, err := f.Bytes(p.Vaddr, int(p.Filesz))
			if err != nil {
				return nil, err
			}
			c.regions = append(c.regions, region{addr: p.Vaddr, data: b})
		}
	}
	slices.SortStableFunc(c.regions, func(a, b region) int { return cmpUint(a.addr, b.addr) })
	total := 0
	for i := range c.regions {
		r := &c.regions[i]
		total += len(r.data)
		if r.end() < r.addr || i > 0 && c.regions[i-1].end() > r.addr {
			return nil, fmt.Errorf("executable code %s at %#x overlaps other code", r.name, r.addr)
		}
	}
	if total > len(f.Raw()) {
		return nil, fmt.Errorf("executable sections of %d bytes in a file of %d: they overlap in the file", total, len(f.Raw()))
	}
	return c, nil
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
	slices.SortFunc(loads, func(a, b elfio.Prog) int { return cmpUint(a.Vaddr, b.Vaddr) })
	for i, p := range loads {
		if p.Vaddr+p.Memsz < p.Vaddr || i > 0 && loads[i-1].Vaddr+loads[i-1].Memsz > p.Vaddr {
			return fmt.Errorf("PT_LOAD segment at %#x overlaps another one", p.Vaddr)
		}
	}
	return nil
}

// find returns the region that holds addr, nil when none does.
func (c *code) find(addr uint64) *region {
	if c.last < len(c.regions) {
		if r := &c.regions[c.last]; addr-r.addr < uint64(len(r.data)) {
			return r
		}
	}
	i := sort.Search(len(c.regions), func(i int) bool { return c.regions[i].addr > addr }) - 1
	if i < 0 || addr >= c.regions[i].end() {
		return nil
	}
	c.last = i
	return &c.regions[i]
}

// at returns the bytes from addr to the end of its region, nil when addr is not in code.
func (c *code) at(addr uint64) []byte {
	r := c.find(addr)
	if r == nil {
		return nil
	}
	return r.data[addr-r.addr:]
}

// upTo returns the bytes of [addr, end), fewer when the region ends before.
func (c *code) upTo(addr, end uint64) []byte {
	b := c.at(addr)
	if end < addr {
		return nil
	}
	if n := end - addr; n < uint64(len(b)) {
		b = b[:n]
	}
	return b
}

func cmpUint(a, b uint64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}
