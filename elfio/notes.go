package elfio

import (
	"debug/elf"
	"fmt"
	"sort"

	"github.com/fentry-dev/fentry/elfio/internal/raw"
)

// Note is an entry of a PT_NOTE segment or SHT_NOTE section.
type Note struct {
	Name    string // owner without the terminating NUL, such as "GNU"
	Type    uint32
	Desc    []byte // sub-slice of Raw
	Off     uint64 // file offset of the note's header
	DescOff uint64 // file offset of Desc
}

// Note types of the owner "GNU" (the Linux extensions to the gABI).
const (
	ntGNUBuildID  = 3
	NTGNUProperty = 5
)

// Notes returns the notes of all PT_NOTE segments and of the SHT_NOTE sections outside them, sorted by file offset.
func (f *File) Notes() ([]Note, error) {
	type area struct {
		label     func(int) string
		i         int
		off, size uint64
		align     uint64
	}
	var areas []area
	for i, p := range f.Progs {
		if p.Type == elf.PT_NOTE && p.Filesz != 0 {
			areas = append(areas, area{f.ProgLabel, i, p.Off, p.Filesz, p.Align})
		}
	}
	for i, s := range f.Sections {
		if s.Type == elf.SHT_NOTE && s.Size != 0 {
			areas = append(areas, area{f.SectionLabel, i, s.Off, s.Size, s.Addralign})
		}
	}
	// The longer of two areas that start alike comes first; what lies inside an area already read is skipped.
	sort.SliceStable(areas, func(i, j int) bool {
		if areas[i].off != areas[j].off {
			return areas[i].off < areas[j].off
		}
		return areas[i].size > areas[j].size
	})
	var out []Note
	var done uint64
	for _, a := range areas {
		b, ok := raw.Slice(f.raw, a.off, a.size)
		if !ok {
			return nil, FormatErrorf(a.label(a.i), a.off, "%#x bytes end outside the file of %#x bytes", a.size, len(f.raw))
		}
		if a.off < done {
			continue
		}
		done = a.off + a.size
		var err error
		if out, err = f.notes(out, b, a.off, a.align, a.label(a.i)); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// notes reads one area. The name is padded to 4 bytes; the descriptor to 4, or to 8 where the area is 8-aligned.
func (f *File) notes(out []Note, b []byte, off, align uint64, what string) ([]Note, error) {
	if align != 8 {
		align = 4
	}
	for pos := uint64(0); uint64(len(b))-pos >= 12; {
		h := b[pos:]
		namesz, descsz, typ := uint64(f.c.Order.Uint32(h)), uint64(f.c.Order.Uint32(h[4:])), f.c.Order.Uint32(h[8:])
		descPos, _ := raw.AlignUp(pos+12+namesz, align)
		name, ok := raw.Slice(b, pos+12, namesz)
		desc, ok2 := raw.Slice(b, descPos, descsz)
		if !ok || !ok2 {
			return nil, FormatErrorf(what, off+pos, "note of %#x name and %#x descriptor bytes ends outside it", namesz, descsz)
		}
		out = append(out, Note{Name: string(raw.CString(name)), Type: typ, Desc: desc, Off: off + pos,
			DescOff: off + descPos})
		pos, _ = raw.AlignUp(descPos+descsz, align)
		if pos > uint64(len(b)) {
			break
		}
	}
	return out, nil
}

// BuildID returns the descriptor of the NT_GNU_BUILD_ID note, or nil if there is none or the notes are malformed.
func (f *File) BuildID() []byte {
	if n := f.buildIDNote(); n != nil {
		return n.Desc
	}
	return nil
}

func (f *File) buildIDNote() *Note {
	notes, err := f.Notes()
	if err != nil {
		return nil
	}
	for i := range notes {
		if notes[i].Name == "GNU" && notes[i].Type == ntGNUBuildID && len(notes[i].Desc) > 0 {
			return &notes[i]
		}
	}
	return nil
}

// BuildIDEdit returns the edit that replaces the image's build-id by id, which must have the same length. Tools such
// as perf and debuginfod cache by build-id and would otherwise take an injected image for the original.
func (f *File) BuildIDEdit(id []byte) (RawEdit, error) {
	n := f.buildIDNote()
	if n == nil {
		return RawEdit{}, fmt.Errorf("image has no build-id")
	}
	if len(id) != len(n.Desc) {
		return RawEdit{}, FormatErrorf("build-id", n.DescOff, "%d bytes cannot replace its %d", len(id), len(n.Desc))
	}
	return RawEdit{Off: n.DescOff, New: id}, nil
}

// Guarded reports whether loaders guard the image's code on AArch64: indirect branches have to go to landing pads
// (GNU_PROPERTY_AARCH64_FEATURE_1_BTI; ELF for the Arm 64-bit Architecture, "Program property"). If its notes cannot be
// read, it is believed to be so.
func (f *File) Guarded() bool {
	const feature1, bti = 0xc0000000, 1
	if f.Header.Machine != elf.EM_AARCH64 {
		return false
	}
	notes, err := f.Notes()
	if err != nil {
		return true
	}
	o := f.Order()
	for _, n := range notes {
		if n.Name != "GNU" || n.Type != NTGNUProperty {
			continue
		}
		for d := n.Desc; len(d) >= 8; {
			size := uint64(o.Uint32(d[4:]))
			if size > uint64(len(d)-8) {
				break
			}
			if o.Uint32(d) == feature1 && size >= 4 && o.Uint32(d[8:])&bti != 0 {
				return true
			}
			d = d[min(8+(size+7)&^7, uint64(len(d))):]
		}
	}
	return false
}
