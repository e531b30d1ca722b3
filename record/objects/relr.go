package objects

import (
	"debug/elf"
	"fmt"
	"slices"

	"github.com/fentry-dev/fentry/elfio"
)

// shtRELR is SHT_RELR of the generic ABI: relative relocations in a compact form. The words they relocate hold the
// addends.
const shtRELR = elf.SectionType(19)

// packed makes the words of a sorted table that are not 0, and only those, be relocated by DT_RELR: a word that is
// relocated is never 0 when the program runs. It reports whether DT_RELR relocates the table at all.
func (st *sorter) packed(table int, values []uint64) (bool, error) {
	f := st.f
	t := &f.Sections[table]
	word := uint64(f.WordSize())
	for i := range f.Sections {
		s := &f.Sections[i]
		if s.Type != shtRELR || s.Flags&elf.SHF_ALLOC == 0 {
			continue
		}
		relocs, err := f.Relocs(i)
		if err != nil {
			return false, err
		}
		places := make([]uint64, 0, len(relocs))
		var was []uint64
		for _, r := range relocs {
			switch {
			case r.Off-t.Addr >= t.Size:
				places = append(places, r.Off)
			case (r.Off-t.Addr)%word != 0:
				return false, fmt.Errorf("section %d (%s) relocates %#x, which is no word of %s", i, s.Name, r.Off, TableName)
			default:
				was = append(was, r.Off)
			}
		}
		if len(was) == 0 {
			continue
		}
		var is []uint64
		for k, v := range values {
			if v != 0 {
				is = append(is, t.Addr+uint64(k)*word)
			}
		}
		if slices.Equal(was, is) {
			return true, nil
		}
		places = append(places, is...)
		slices.Sort(places)
		out := appendRELR(nil, slices.Compact(places), f)
		if uint64(len(out)) > s.Size {
			return true, fmt.Errorf("section %d (%s) at offset %#x: %#x bytes of relocations have no room in %#x", i, s.Name,
				s.Off, len(out), s.Size)
		}
		for uint64(len(out))+word <= s.Size {
			out = append(out, make([]byte, word)...)
			f.PutWord(out[uint64(len(out))-word:], 1) // a bitmap without bits
		}
		st.edits = append(st.edits, elfio.RawEdit{Off: s.Off, New: out})
		return true, nil
	}
	return false, nil
}

// appendRELR encodes sorted addresses: an even word is the address of a place, an odd one a bitmap of the 31 or 63
// words behind the last one covered.
func appendRELR(out []byte, places []uint64, f *elfio.File) []byte {
	word := uint64(f.WordSize())
	bits := 8*word - 1
	put := func(v uint64) {
		out = append(out, make([]byte, word)...)
		f.PutWord(out[uint64(len(out))-word:], v)
	}
	for len(places) > 0 {
		put(places[0])
		next := places[0] + word
		places = places[1:]
		for {
			var m uint64
			for len(places) > 0 && places[0]-next < bits*word && (places[0]-next)%word == 0 {
				m |= 1 << ((places[0] - next) / word)
				places = places[1:]
			}
			if m == 0 {
				break
			}
			put(m<<1 | 1)
			next += bits * word
		}
	}
	return out
}
