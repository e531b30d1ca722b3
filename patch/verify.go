package patch

import (
	"fmt"

	"github.com/fentry-dev/fentry/arch"
	"github.com/fentry-dev/fentry/elfio"
)

// Info is what fentry put into an image.
type Info struct {
	ImageID uint64
	Tracer  Tracer
	Sites   []SiteEntry // by site id, from 1; Sites[0] is the one with id 1
	BuildID []byte      // build-id of the image as it was
}

// SiteEntry is one row of the table of traced sites.
type SiteEntry struct{ Func, Addr uint64 }

// Inspect reads what fentry put into an image. An image that fentry did not
// patch gives [ErrNotPatched].
func Inspect(f *elfio.File) (*Info, error) {
	i := f.SectionIndex(".fentry.info")
	if i < 0 {
		return nil, ErrNotPatched
	}
	b, err := f.SectionData(i)
	if err != nil {
		return nil, err
	}
	if len(b) < infoHeader || string(b[:8]) != InfoMagic {
		return nil, fmt.Errorf("section .fentry.info: %d bytes, not the description of a patched image", len(b))
	}
	n := le.Uint32(b[24:])
	if uint64(n) > uint64(len(b)-infoHeader) {
		return nil, fmt.Errorf("section .fentry.info: build-id of %d bytes in %d bytes", n, len(b)-infoHeader)
	}
	in := &Info{ImageID: le.Uint64(b[8:]), Tracer: Tracer(le.Uint32(b[16:])), BuildID: b[infoHeader : infoHeader+n]}
	return in, in.readSites(f, le.Uint32(b[20:]))
}

func (in *Info) readSites(f *elfio.File, want uint32) error {
	i := f.SectionIndex(".fentry.sites")
	if i < 0 {
		return fmt.Errorf("patched by fentry, but section .fentry.sites is missing")
	}
	b, err := f.SectionData(i)
	if err != nil {
		return err
	}
	if len(b) < 16 || string(b[:8]) != SiteTableMagic {
		return fmt.Errorf("section .fentry.sites: not a table of sites")
	}
	n := le.Uint64(b[8:])
	if n != uint64(want) || uint64(len(b)-16)/16 < n {
		return fmt.Errorf("section .fentry.sites: %d bytes for %d sites, the note says %d", len(b), n, want)
	}
	in.Sites = make([]SiteEntry, n)
	for k := range in.Sites {
		e := b[16+16*k:]
		in.Sites[k] = SiteEntry{le.Uint64(e), le.Uint64(e[8:])}
	}
	return nil
}

// Verify checks a patched image against itself: every site must lead to its own
// thunk, and undoing must give a file whose checksum is the recorded one. It
// returns what was found.
func Verify(image []byte) (*Info, error) {
	f, err := elfio.Parse(image)
	if err != nil {
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
	if s.Size != uint64(len(in.Sites))*arch.ThunkSize {
		return nil, fmt.Errorf("section .fentry.thunks: %d bytes for %d sites", s.Size, len(in.Sites))
	}
	for k, e := range in.Sites {
		want := s.Addr + uint64(k)*arch.ThunkSize
		to, err := m.thunkOf(f, e.Addr)
		if err != nil {
			return nil, fmt.Errorf("site %d at %#x: %w", k+1, e.Addr, err)
		}
		if to != want {
			return nil, fmt.Errorf("site %d at %#x leads to %#x, not to its thunk at %#x", k+1, e.Addr, to, want)
		}
	}
	if _, err := elfio.Uninject(image); err != nil {
		return nil, err
	}
	return in, nil
}
