package inject

import (
	"debug/elf"
	"encoding/binary"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/elfio/internal/raw"
)

// What was added, by name. Section headers say where it is; in an image that has none the undo record does: one behind
// the other, the uvarint length of a section's name, the name, and the uvarints type, flags, address and size.

// maxDescribed is how many sections an undo record may describe.
const maxDescribed = 1 << 16

// Described returns the image with headers of the sections that have been added to it: itself if it has section headers,
// or a copy with those that the undo record describes, and no others. An image without an injection comes back as it is.
func Described(file *elfio.File) (*elfio.File, error) {
	if len(file.Sections) > 0 {
		return file, nil
	}
	rec, off, err := newImage(file).undoBytes()
	if rec == nil || err != nil {
		return file, err
	}
	b, err := descriptions(rec, off)
	if len(b) == 0 || err != nil {
		return file, err
	}
	out := *file
	out.Sections, err = described(file, b, off)
	return &out, err
}

// describe appends what the undo record says of the added sections whose contents are in the file.
func (j *injector) describe() (b []byte) {
	for i := range j.in.Sections {
		s := &j.in.Sections[i]
		if s.Flags&elf.SHF_ALLOC == 0 || s.Type == elf.SHT_NOBITS || !j.inRX(s.Addr, s.Size) {
			continue
		}
		b = append(binary.AppendUvarint(b, uint64(len(s.Name))), s.Name...)
		for _, v := range []uint64{uint64(s.Type), uint64(s.Flags), s.Addr, s.Size} {
			b = binary.AppendUvarint(b, v)
		}
	}
	return b
}

// descriptions is the part of an undo record at an offset that describe has made.
func descriptions(rec []byte, off uint64) ([]byte, error) {
	if len(rec) >= undoHeader+undoTrailer && string(rec[:len(undoMagic)]) == undoMagic {
		rest, stored := rec[undoHeader:len(rec)-undoTrailer], binary.LittleEndian.Uint64(rec[48:])
		if stored <= uint64(len(rest)) {
			return rest[stored:], nil
		}
	}
	return nil, elfio.FormatErrorf("undo record", off, "no record of this version")
}

// described decodes what describe has made, for an image with it in the record at an offset.
func described(f *elfio.File, b []byte, off uint64) ([]elfio.Section, error) {
	sections, ok := make([]elfio.Section, 1), true // the first is none, as in a file
	uv := func() uint64 {
		v, n := binary.Uvarint(b)
		ok = ok && n > 0
		b = b[max(n, 0):]
		return v
	}
	for len(b) > 0 && len(sections) <= maxDescribed {
		n := uv()
		name, fits := raw.Slice(b, 0, n)
		b = b[len(name):]
		s := elfio.Section{
			Name: string(name), Type: elf.SectionType(uv()), Flags: elf.SectionFlag(uv()), Addr: uv(), Size: uv(), Addralign: 1,
		}
		data, at := f.From(s.Addr)
		if !ok || !fits || s.Size > uint64(len(data)) {
			return nil, elfio.FormatErrorf("undo record", off, "section %d that it describes is cut or not loaded", len(sections))
		}
		s.Off = at
		sections = append(sections, s)
	}
	if len(b) > 0 {
		return nil, elfio.FormatErrorf("undo record", off, "describes more than %d sections", maxDescribed)
	}
	return sections, nil
}
