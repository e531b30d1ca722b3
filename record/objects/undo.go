package objects

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/elfio/object"
)

// What is needed to undo stands behind everything else in the file, where no section header refers to it: linkers,
// strip and objcopy leave it behind. Little-endian on every machine:
//
//	edits     {u64 offset, u32 n, n bytes the original had there}...
//	u64       size of the original
//	u32       index of the first inserted symbol
//	u32       number of inserted symbols
//	u32       size of edits
//	u32       FNV-1a hash of all before
//	8 bytes   "FENTRYMC"

const (
	trailerMagic = "FENTRYMC"
	trailerFixed = 8 + 4 + 4 + 4 + 4 + 8
)

type undoEdit struct {
	off uint64
	old []byte
}

type trailer struct {
	size            uint64
	first, inserted uint32
	edits           []undoEdit
}

// checksum is the 32-bit FNV-1a hash. A table-driven one would cost every start of the program more than all of its
// work on a small object.
func checksum(b []byte) uint32 {
	h := fnv.New32a()
	h.Write(b)
	return h.Sum32()
}

// encode returns the record as it is appended to an object.
func (t *trailer) encode() []byte {
	n := trailerFixed
	for _, e := range t.edits {
		n += 12 + len(e.old)
	}
	b := make([]byte, 0, n)
	le := binary.LittleEndian
	for _, e := range t.edits {
		b = le.AppendUint64(b, e.off)
		b = le.AppendUint32(b, uint32(len(e.old)))
		b = append(b, e.old...)
	}
	body := uint32(len(b))
	b = le.AppendUint64(b, t.size)
	b = le.AppendUint32(b, t.first)
	b = le.AppendUint32(b, t.inserted)
	b = le.AppendUint32(b, body)
	b = le.AppendUint32(b, checksum(b))
	return append(b, trailerMagic...)
}

// ErrNoTable is returned by Strip for an object without a table.
var ErrNoTable = errors.New("no table")

// errNoTrailer says that nothing has been recorded for undoing.
var errNoTrailer = errors.New("no undo record")

// readTrailer returns the record at the end of b.
func readTrailer(b []byte) (trailer, error) {
	if len(b) < trailerFixed || string(b[len(b)-8:]) != trailerMagic {
		return trailer{}, errNoTrailer
	}
	le := binary.LittleEndian
	fixed := b[len(b)-trailerFixed:]
	n := uint64(le.Uint32(fixed[16:]))
	if n > uint64(len(b)-trailerFixed) {
		return trailer{}, fmt.Errorf("undo record at offset %#x: %#x bytes of edits", len(b)-trailerFixed, n)
	}
	start := uint64(len(b)-trailerFixed) - n
	if checksum(b[start:len(b)-12]) != le.Uint32(fixed[20:]) {
		return trailer{}, fmt.Errorf("undo record at offset %#x: wrong checksum", start)
	}
	t := trailer{size: le.Uint64(fixed), first: le.Uint32(fixed[8:]), inserted: le.Uint32(fixed[12:])}
	if t.size > start {
		return trailer{}, fmt.Errorf("undo record at offset %#x: original of %#x bytes", start, t.size)
	}
	for e := b[start : start+n]; len(e) > 0; {
		if len(e) < 12 || uint64(le.Uint32(e[8:])) > uint64(len(e)-12) {
			return trailer{}, fmt.Errorf("undo record at offset %#x: cut off", start)
		}
		u := undoEdit{le.Uint64(e), e[12 : 12+le.Uint32(e[8:])]}
		if u.off > t.size || uint64(len(u.old)) > t.size-u.off {
			return trailer{}, fmt.Errorf("undo record at offset %#x: edit outside the original", start)
		}
		t.edits = append(t.edits, u)
		e = e[12+len(u.old):]
	}
	return t, nil
}

// Strip returns the object as it was before its table was added and its calls were turned into nops, byte for byte.
// That works for tables made by this package and by recordmcount; for those made by compilers and ld -r, which have
// no original, it returns an error. For an object without a table it returns ErrNoTable.
func Strip(b []byte) ([]byte, error) {
	// Objects can be changed more than once: sections added to a table, calls made nops later.
	for n := 0; ; n++ {
		t, err := readTrailer(b)
		switch {
		case errors.Is(err, errNoTrailer) && n > 0 && !tabled(b):
			return b, nil
		case errors.Is(err, errNoTrailer):
			orig, err := stripCompat(b)
			if n > 0 && errors.Is(err, errNoOriginal) {
				return b, nil // of the compiler's
			}
			return orig, err
		case err != nil:
			return nil, err
		case n == maxChanges:
			return nil, fmt.Errorf("more than %d undo records", maxChanges)
		}
		if b, err = t.restore(b); err != nil {
			return nil, err
		}
	}
}

// maxChanges is how often an object may have been changed. Each takes a copy of it to undo.
const maxChanges = 16

// tabled reports whether the object has a table.
func tabled(b []byte) bool {
	f, err := elfio.Parse(b)
	return err == nil && f.SectionIndex(TableName) >= 0
}

// restore returns the original.
func (t *trailer) restore(b []byte) ([]byte, error) {
	out := append(make([]byte, 0, t.size), b[:t.size]...)
	if t.inserted > 0 {
		f, err := elfio.Parse(b)
		if err != nil {
			return nil, err
		}
		symtab := uint32(0)
		for i := range f.Sections { // the last relocations are those of a table
			if s := &f.Sections[i]; s.Type == elf.SHT_REL || s.Type == elf.SHT_RELA {
				symtab = s.Link
			}
		}
		for i := range f.Sections {
			s := &f.Sections[i]
			if i == 0 || s.Type != elf.SHT_REL && s.Type != elf.SHT_RELA || s.Link != symtab || s.Off >= t.size ||
				s.Size > t.size-s.Off {
				continue
			}
			old, err := object.UnshiftSymbols(f, i, t.first, t.inserted)
			if err != nil {
				return nil, err
			}
			copy(out[s.Off:], old)
		}
	}
	for _, e := range t.edits {
		copy(out[e.off:], e.old)
	}
	return out, nil
}

func headerSize(f *elfio.File) int {
	if f.Is64() {
		return 64
	}
	return 52
}
