package sitetable

import (
	"bytes"
	"fmt"
	"maps"
	"slices"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/elfio/inject"
)

// What is captured of calls is text, which the image's readers understand and its runtime never looks at: for each site id
// that has one, in their order, the id, the length of its text (4 bytes each), and that text.

const (
	notesMagic  = "FNOTES1\x00"
	notesHeader = 8 // bytes in front of a text
)

// AppendNotes appends the contents of .fentry.captures to b.
func AppendNotes(b []byte, notes map[uint32]string) []byte {
	b = append(b, notesMagic...)
	for _, id := range slices.Sorted(maps.Keys(notes)) {
		b = le.AppendUint32(b, id)
		b = le.AppendUint32(b, uint32(len(notes[id])))
		b = append(b, notes[id]...)
	}
	return b
}

// ParseNotes reads the contents of .fentry.captures, for ids from 1 to sites.
func ParseNotes(b []byte, sites uint32) (map[uint32]string, error) {
	rest, ok := bytes.CutPrefix(b, []byte(notesMagic))
	if !ok {
		return nil, fmt.Errorf("section %s: not what is captured of calls", NotesSection)
	}
	notes := make(map[uint32]string)
	for len(rest) > 0 {
		at := len(b) - len(rest)
		if len(rest) < notesHeader || uint64(le.Uint32(rest[4:])) > uint64(len(rest)-notesHeader) {
			return nil, fmt.Errorf("section %s: cut at offset %d", NotesSection, at)
		}
		id, n := le.Uint32(rest), le.Uint32(rest[4:])
		if _, twice := notes[id]; id == 0 || id > sites || twice {
			return nil, fmt.Errorf("section %s: bad id %d at offset %d", NotesSection, id, at)
		}
		notes[id] = string(rest[notesHeader:][:n])
		rest = rest[notesHeader+n:]
	}
	return notes, nil
}

// ReadNotes reads what an image with so many sites says of captures; nil: nothing.
func ReadNotes(f *elfio.File, sites uint32) (map[uint32]string, error) {
	f, err := inject.Described(f)
	if err != nil {
		return nil, err
	}
	i := f.SectionIndex(NotesSection)
	if i < 0 {
		return nil, nil
	}
	b, err := f.SectionData(i)
	if err != nil {
		return nil, err
	}
	return ParseNotes(b, sites)
}
