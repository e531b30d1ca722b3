package symbol

// Distributions keep debug information in files of their own. Where they may be is a convention (by build-id below
// /usr/lib/debug, or by the name in .gnu_debuglink, as gdb looks for them), so a file that is found must show that it
// is the image's: by the same build-id, or by the checksum that the link names.

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"path/filepath"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/internal/mapped"
)

// Options say where to look for names and lines.
type Options struct {
	// DebugDirs are the directories that hold separate debug files, which are found by build-id
	// (.build-id/ab/cdef.debug) or by the image's path and .gnu_debuglink. nil: DefaultDebugDir. Empty but not nil:
	// none.
	DebugDirs []string
	// Path is the image's path, for .gnu_debuglink. Open sets it.
	Path string
	// Fetch returns the path of a debug file by its build-id; it is asked when DebugDirs have none. nil: there is
	// nobody to ask.
	Fetch func(buildID []byte) (path string, err error)
	// Refused, if not nil, is called with the path of a debug file that is there and is not taken, and with why.
	Refused func(path string, why error)
}

// DefaultDebugDir is where distributions install separate debug files.
const DefaultDebugDir = "/usr/lib/debug"

// Open maps the file at path and reads its tables. Names and all other results remain valid until Close.
func Open(path string, o Options) (*Table, error) {
	m, err := mapped.Open(path)
	if err != nil {
		return nil, err
	}
	var f *elfio.File
	err = mapped.Guard(func() (err error) {
		f, err = elfio.Parse(m.Data)
		return err
	})
	if err != nil {
		m.Close()
		return nil, mapped.Named(path, err)
	}
	if o.Path == "" {
		o.Path = path
	}
	t, err := NewWith(f, o)
	if err != nil {
		m.Close()
		return nil, mapped.Named(path, err)
	}
	t.maps = append(t.maps, m)
	return t, nil
}

// Close releases the files that Open and the search for debug files have mapped. Tables made by New need it only if
// Line was called.
func (t *Table) Close() error {
	var first error
	for _, m := range t.maps {
		if err := m.Close(); err != nil && first == nil {
			first = err
		}
	}
	t.maps = nil
	return first
}

// debugFile returns the file that has the image's debug information: itself, or a separate one that is found and fits;
// nil when there is none.
func (t *Table) debugFile() *elfio.File {
	t.debugOnce.Do(func() {
		if hasDWARF(t.f) {
			t.debug = t.f
			return
		}
		for _, path := range t.debugCandidates() {
			t.looked = append(t.looked, path.path)
			if m, f := t.tryDebug(path); f != nil {
				t.maps = append(t.maps, m)
				t.debug = f
				return
			}
		}
		t.fetchDebug()
	})
	return t.debug
}

// fetchDebug asks for the debug file by Options.Fetch.
func (t *Table) fetchDebug() {
	id := t.f.BuildID()
	if t.opts.Fetch == nil || len(id) < 2 {
		return
	}
	path, err := t.opts.Fetch(id)
	if err != nil {
		return // names and lines are a convenience; who fetches says why there are none
	}
	t.looked = append(t.looked, path)
	if m, f := t.tryDebug(candidate{path: path}); f != nil {
		t.maps = append(t.maps, m)
		t.debug = f
	}
}

// Looked returns the paths at which names were looked for beside the image. As long as they lead to the same files, names
// stay the same, unless none was found there: then Options.Fetch may have some another time.
func (t *Table) Looked() (paths []string, found bool) { return t.looked, t.debug != nil }

// candidate is a place a debug file can be at, and what proves that it fits.
type candidate struct {
	path  string
	byCRC bool
	crc   uint32
}

// debugDirs are the directories that hold separate debug files.
func (t *Table) debugDirs() []string {
	if t.opts.DebugDirs == nil {
		return []string{DefaultDebugDir}
	}
	return t.opts.DebugDirs
}

// debugPath is the path of what debugFile returns, "" if it is not known.
func (t *Table) debugPath() string {
	if t.debug == t.f {
		return t.opts.Path
	}
	for _, m := range t.maps {
		if len(m.Data) > 0 && t.debug != nil && &m.Data[0] == &t.debug.Raw()[0] {
			return m.Path
		}
	}
	return ""
}

func (t *Table) debugCandidates() []candidate {
	dirs := t.debugDirs()
	var out []candidate
	if id := t.f.BuildID(); len(id) > 1 {
		for _, d := range dirs {
			out = append(out, candidate{path: filepath.Join(d, ".build-id", buildIDName(id))})
		}
	}
	name, crc, ok := t.debugLink()
	if !ok || t.opts.Path == "" {
		return out
	}
	dir := filepath.Dir(t.opts.Path)
	if abs, err := filepath.Abs(dir); err == nil {
		dir = abs // below DebugDirs as it is in the file system
	}
	places := []string{filepath.Join(dir, name), filepath.Join(dir, ".debug", name)}
	for _, d := range dirs {
		places = append(places, filepath.Join(d, dir, name))
	}
	for _, p := range places {
		out = append(out, candidate{path: p, byCRC: true, crc: crc})
	}
	return out
}

// debugLink reads .gnu_debuglink: a file name, ended by a zero byte and padded to four bytes, and the CRC-32 of that
// file.
func (t *Table) debugLink() (name string, crc uint32, ok bool) {
	i := t.f.SectionIndex(".gnu_debuglink")
	if i < 0 {
		return "", 0, false
	}
	b, err := t.f.SectionData(i)
	if err != nil {
		return "", 0, false
	}
	n := bytes.IndexByte(b, 0)
	if n <= 0 {
		return "", 0, false
	}
	at := (n + 4) &^ 3
	if at+4 > len(b) || filepath.Base(string(b[:n])) != string(b[:n]) {
		return "", 0, false
	}
	return string(b[:n]), t.f.Order().Uint32(b[at:]), true
}

// tryDebug maps a candidate and checks that it belongs to the image.
func (t *Table) tryDebug(c candidate) (*mapped.File, *elfio.File) {
	m, err := mapped.Open(c.path)
	if err != nil {
		return nil, nil
	}
	var f *elfio.File
	err = mapped.Guard(func() (err error) {
		if f, err = elfio.Parse(m.Data); err != nil {
			return err
		}
		return t.fits(f, c)
	})
	if err != nil {
		m.Close()
		if t.opts.Refused != nil {
			t.opts.Refused(c.path, err)
		}
		return nil, nil
	}
	return m, f
}

// fits returns an error unless a candidate's file has the image's debug information.
func (t *Table) fits(f *elfio.File, c candidate) error {
	switch {
	case !hasDWARF(f):
		return errors.New("it has no debug information")
	case f.Header.Machine != t.f.Header.Machine || f.Is64() != t.f.Is64():
		return errors.New("it is for another machine")
	case c.byCRC:
		if crc := crc32.ChecksumIEEE(f.Raw()); crc != c.crc {
			return fmt.Errorf("its checksum is %08x, and .gnu_debuglink names %08x", crc, c.crc)
		}
	case !bytes.Equal(f.BuildID(), t.f.BuildID()):
		return errors.New("it has another build-id")
	}
	return nil
}
