package patch

import (
	"debug/elf"
	"errors"
	"fmt"
	"strings"

	"github.com/fentry-dev/fentry/arch"
	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/elfio/inject"
	"github.com/fentry-dev/fentry/internal/sitetable"
)

// A patched image is checked against what it says of itself (internal/sitetable), without the plan that it was made by.

// Info describes what fentry has added to an image.
type Info struct {
	ImageID uint64
	Tracer  Tracer
	Sites   []SiteEntry // by site id, from 1; Sites[0] is the one with id 1
	BuildID []byte      // build-id of the original image
	Added   uint64      // bytes of what has been added, by its sections
}

// SiteEntry is a row of the table of traced sites.
type SiteEntry struct{ Func, Addr uint64 }

// Inspect reads what fentry has added to an image. It returns [ErrNotPatched] if fentry has not patched the image.
func Inspect(f *elfio.File) (*Info, error) {
	f, err := inject.Described(f)
	if err != nil {
		return nil, err
	}
	info, rows, err := sitetable.Read(f)
	if errors.Is(err, sitetable.ErrNone) {
		return nil, ErrNotPatched
	}
	if err != nil {
		return nil, err
	}
	in := &Info{
		ImageID: info.Image, Tracer: Tracer(info.Tracer), BuildID: info.BuildID, Sites: make([]SiteEntry, rows.Len()),
	}
	for i := range f.Sections {
		if s := &f.Sections[i]; strings.HasPrefix(s.Name, ".fentry") && s.Type != elf.SHT_NOBITS {
			in.Added += s.Size
		}
	}
	for i := range in.Sites {
		r := rows.At(i)
		in.Sites[i] = SiteEntry{Func: r.Func, Addr: r.Site}
	}
	return in, nil
}

// Verify checks that a patched image is consistent: every site must lead to its own thunk, and Undo must give a file
// with the recorded checksum. It returns what was found.
func Verify(image []byte) (*Info, error) {
	f, err := elfio.Parse(image)
	if err != nil {
		return nil, err
	}
	if f, err = inject.Described(f); err != nil {
		return nil, err
	}
	in, err := Inspect(f)
	if err != nil {
		return nil, err
	}
	m, err := machineFor(f)
	if err != nil {
		return nil, err
	}
	i := f.SectionIndex(".fentry.thunks")
	if i < 0 {
		return nil, fmt.Errorf("section .fentry.thunks is missing")
	}
	s := f.Sections[i]
	size := s.Size / uint64(max(len(in.Sites), 1)) // of a thunk
	if s.Size != uint64(len(in.Sites))*size || size > arch.ThunkSize {
		return nil, fmt.Errorf("section .fentry.thunks: %d bytes for %d sites", s.Size, len(in.Sites))
	}
	for k, e := range in.Sites {
		want := s.Addr + uint64(k)*size
		to, err := m.thunkOf(f, e.Addr)
		if err != nil {
			return nil, fmt.Errorf("site %d at %#x: %w", k+1, e.Addr, err)
		}
		if to != want {
			return nil, fmt.Errorf("site %d at %#x leads to %#x, not to its thunk at %#x", k+1, e.Addr, to, want)
		}
	}
	if _, err := inject.Undo(image); err != nil {
		return nil, err
	}
	return in, nil
}
