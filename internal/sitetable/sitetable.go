// Package sitetable is what a patched image says of itself: the section .fentry.sites, which gives each site id its
// function, .fentry.info, which says what the image was before, and .fentry.captures, what is captured of calls. Package
// patch writes them; who reads a trace that a patched program wrote alone finds the functions of its ids there.
//
// The sections are loaded, or strip would drop them, and little-endian, as the images are. They are no ELF notes,
// because checkers refuse notes of owners they do not know.
package sitetable

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/elfio/inject"
)

// The sections.
const (
	SitesSection = ".fentry.sites"
	InfoSection  = ".fentry.info"
	NotesSection = ".fentry.captures" // there if something is captured of calls
)

const (
	// .fentry.sites: the magic, the number of rows, an address that sites count from, and how many bytes a distance has (8 bytes
	// each); for every id, from 1, how far its site is behind that address, 4 bytes each; and then for every id how far its
	// function is in front of its site, which is nothing for most, modulo 4 GiB if it has 4 bytes. Branches reach less than 4
	// bytes count, and a large program has hundreds of thousands of rows.
	sitesMagic  = "FSITES3\x00"
	SitesHeader = 32 // bytes in front of the sites
	SiteSize    = 4  // bytes of a site

	// .fentry.info: the magic, the image id (8 bytes), the tracer, the number of rows and the length of the original
	// build-id (4 bytes each), and that build-id.
	infoMagic  = "FINFO1\x00\x00"
	infoHeader = 28 // bytes in front of the build-id
)

var le = binary.LittleEndian

// ErrNone is returned by [Read] for an image without .fentry.info: nobody has patched it.
var ErrNone = errors.New("no section " + InfoSection)

// A Row is a traced function. Addresses are as in the file. That of another image's function, which calls come to by a
// stub, is the address of the word that has it.
type Row struct{ Func, Site uint64 }

// Width is how many bytes the distance between the function and its site needs: 0, 1 or 4.
func (r Row) Width() int {
	switch d := r.Site - r.Func; {
	case d == 0:
		return 0
	case d <= math.MaxUint8:
		return 1
	}
	return 4
}

// PutSite writes the site to the first [SiteSize] bytes of b, for a table whose addresses count from base. It returns an
// error if the row's are below, or 4 GiB and more behind it.
func (r Row) PutSite(b []byte, base uint64) error {
	if r.Func-base > math.MaxUint32 || r.Site-base > math.MaxUint32 {
		return fmt.Errorf("function at %#x, site at %#x: out of reach from %#x", r.Func, r.Site, base)
	}
	le.PutUint32(b, uint32(r.Site-base))
	return nil
}

// PutDistance writes the distance to b, which has 1 or 4 bytes, and at least as many as it needs.
func (r Row) PutDistance(b []byte) {
	if len(b) == 1 {
		b[0] = byte(r.Site - r.Func)
		return
	}
	le.PutUint32(b, uint32(r.Site-r.Func))
}

// PutHeader writes what is in front of n sites to the first [SitesHeader] bytes of b, for distances of so many bytes.
func PutHeader(b []byte, n int, base uint64, width int) {
	copy(b, sitesMagic)
	le.PutUint64(b[8:], uint64(n))
	le.PutUint64(b[16:], base)
	le.PutUint64(b[24:], uint64(width))
}

// Rows are the rows of a table in the file's own memory.
type Rows struct {
	base      uint64
	sites     []byte
	distances []byte
	width     int
}

// ParseRows reads the contents of .fentry.sites.
func ParseRows(b []byte) (Rows, error) {
	if len(b) < SitesHeader || string(b[:8]) != sitesMagic {
		return Rows{}, fmt.Errorf("section %s: not a table of sites", SitesSection)
	}
	n, width := le.Uint64(b[8:]), le.Uint64(b[24:])
	if width != 0 && width != 1 && width != 4 {
		return Rows{}, fmt.Errorf("section %s: distances of %d bytes", SitesSection, width)
	}
	if uint64(len(b)-SitesHeader)/(SiteSize+width) < n {
		return Rows{}, fmt.Errorf("section %s: %d bytes for %d sites", SitesSection, len(b), n)
	}
	sites, distances := b[SitesHeader:][:n*SiteSize], b[SitesHeader+n*SiteSize:][:n*width]
	return Rows{le.Uint64(b[16:]), sites, distances, int(width)}, nil
}

// Len is the number of rows; ids are 1 to Len.
func (r Rows) Len() int { return len(r.sites) / SiteSize }

// At returns row i, which is that of id i+1.
func (r Rows) At(i int) Row {
	site, distance := le.Uint32(r.sites[i*SiteSize:]), uint32(0)
	switch r.width {
	case 1:
		distance = uint32(r.distances[i])
	case 4:
		distance = le.Uint32(r.distances[4*i:])
	}
	return Row{r.base + uint64(site-distance), r.base + uint64(site)}
}

// Info is what .fentry.info says.
type Info struct {
	Image   uint64 // image id, as in traces
	Tracer  uint32 // in the numbers of patch.Tracer
	Sites   uint32 // number of rows of .fentry.sites
	BuildID []byte // of the image as it was, nil if it had none
}

// Append appends the contents of the section to b.
func (in *Info) Append(b []byte) []byte {
	b = append(b, infoMagic...)
	b = le.AppendUint64(b, in.Image)
	b = le.AppendUint32(b, in.Tracer)
	b = le.AppendUint32(b, in.Sites)
	b = le.AppendUint32(b, uint32(len(in.BuildID)))
	return append(b, in.BuildID...)
}

// ParseInfo reads the contents of .fentry.info. The build-id is part of b.
func ParseInfo(b []byte) (Info, error) {
	if len(b) < infoHeader || string(b[:8]) != infoMagic {
		return Info{}, fmt.Errorf("section %s: %d bytes, not the description of a patched image", InfoSection, len(b))
	}
	in := Info{Image: le.Uint64(b[8:]), Tracer: le.Uint32(b[16:]), Sites: le.Uint32(b[20:])}
	n := le.Uint32(b[24:])
	if uint64(n) > uint64(len(b)-infoHeader) {
		return Info{}, fmt.Errorf("section %s: build-id of %d bytes in %d bytes", InfoSection, n, len(b)-infoHeader)
	}
	if n > 0 {
		in.BuildID = b[infoHeader:][:n:n]
	}
	return in, nil
}

// Read reads both sections of an image. The error is [ErrNone] for one that nobody has patched. What is returned refers
// to the image's bytes.
func Read(f *elfio.File) (Info, Rows, error) {
	f, err := inject.Described(f)
	if err != nil {
		return Info{}, Rows{}, err
	}
	i := f.SectionIndex(InfoSection)
	if i < 0 {
		return Info{}, Rows{}, ErrNone
	}
	b, err := f.SectionData(i)
	if err != nil {
		return Info{}, Rows{}, err
	}
	in, err := ParseInfo(b)
	if err != nil {
		return Info{}, Rows{}, err
	}
	if i = f.SectionIndex(SitesSection); i < 0 {
		return Info{}, Rows{}, fmt.Errorf("patched by fentry, but section %s is missing", SitesSection)
	}
	if b, err = f.SectionData(i); err != nil {
		return Info{}, Rows{}, err
	}
	rows, err := ParseRows(b)
	if err == nil && uint64(rows.Len()) != uint64(in.Sites) {
		err = fmt.Errorf("section %s: %d sites, section %s says %d", SitesSection, rows.Len(), InfoSection, in.Sites)
	}
	if err != nil {
		return Info{}, Rows{}, err
	}
	return in, rows, nil
}
