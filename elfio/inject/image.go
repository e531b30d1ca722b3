package inject

import (
	"cmp"
	"debug/elf"
	"slices"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/elfio/internal/raw"
)

// image is a file with what an injection looks at again and again.
type image struct {
	*elfio.File
	raw   []byte
	c     raw.Codec
	hdr   raw.Header   // as stored: counts are not resolved
	loads []elfio.Prog // PT_LOAD only, sorted by Vaddr
}

func newImage(f *elfio.File) *image {
	x := &image{File: f, raw: f.Raw(), c: raw.CodecOf(f.Raw())}
	x.hdr = x.c.ReadHeader(x.raw)
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD {
			x.loads = append(x.loads, p)
		}
	}
	slices.SortStableFunc(x.loads, func(a, b elfio.Prog) int { return cmp.Compare(a.Vaddr, b.Vaddr) })
	return x
}

// load returns the PT_LOAD segment that holds addr in its memory image.
func (f *image) load(addr uint64) (elfio.Prog, bool) {
	for _, p := range slices.Backward(f.loads) {
		if p.Vaddr <= addr {
			return p, addr-p.Vaddr < p.Memsz
		}
	}
	return elfio.Prog{}, false
}

// sectionOfType returns the index of the first section of that type, -1 when there is none.
func (f *image) sectionOfType(t elf.SectionType) int {
	return slices.IndexFunc(f.Sections, func(s elfio.Section) bool { return s.Type == t })
}

// dynamicTable is the dynamic section by tag, without DT_NEEDED, of which there may be several.
type dynamicTable map[elf.DynTag]elfio.Dyn

// value is what a tag has, 0 where it is absent.
func (d dynamicTable) value(t elf.DynTag) uint64 { return d[t].Val }

// dynamic reads the dynamic section; nil when the image has none.
func (f *image) dynamic() (dynamicTable, error) {
	entries, err := f.Dynamic()
	if err != nil || entries == nil {
		return nil, err
	}
	d := make(dynamicTable, len(entries))
	for _, e := range entries {
		if e.Tag != elf.DT_NEEDED {
			d[e.Tag] = e
		}
	}
	return d, nil
}
