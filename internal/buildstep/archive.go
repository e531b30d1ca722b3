package buildstep

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/fentry-dev/fentry/elfio/ar"
	"github.com/fentry-dev/fentry/internal/safefile"
	"github.com/fentry-dev/fentry/record/objects"
)

// Members of a thin archive are files of their own, so what is done to such an archive is done to them; the archive
// repeats their sizes. Some of these files can be archives. GNU ar makes a member of each of theirs, by the name of the
// archive and the offset in it; those offsets change with the archive and are corrected. llvm-ar makes one member of
// such an archive, which again can be thin.

// maxNesting is how many thin archives deep members are looked for: an archive could be its own member. And each file
// is worked on once, because few archives that name each other many times would otherwise make very many.
const maxNesting = 8

// archive works on the members of an archive. Members that are not ELF files, such as those with debug information of
// other compilers, stay as they are.
func archive(path string, b []byte, o Options, out *Outcome) (io.WriterTo, error) {
	a, err := ar.Parse(b)
	if err != nil {
		return nil, err
	}
	if a.Thin {
		return thin(path, a, o, out)
	}
	replaced := map[int]ar.Contents{}
	for i, m := range a.Members {
		data := a.Data(m)
		if !bytes.HasPrefix(data, []byte("\x7fELF")) {
			continue
		}
		c, err := object(data, m.Name, o, out)
		if err != nil {
			return nil, fmt.Errorf("member %s at offset %#x: %w", m.Name, m.Off, err)
		}
		if c != nil {
			replaced[i] = c
		}
	}
	if len(replaced) == 0 || o.ReadOnly {
		return nil, nil
	}
	return a.Replace(replaced)
}

// thin works on the files that the members of a thin archive stand for.
func thin(path string, a *ar.Archive, o Options, out *Outcome) (io.WriterTo, error) {
	if o.depth++; o.depth > maxNesting {
		return nil, fmt.Errorf("thin archives are nested more than %d deep", maxNesting)
	}
	if o.seen == nil {
		o.seen = map[string]bool{}
	}
	replaced := map[int]ar.Contents{}
	nested := map[string]map[uint64]placed{}
	for i, m := range a.Members {
		file := m.Name
		if !filepath.IsAbs(file) {
			file = filepath.Join(filepath.Dir(path), file)
		}
		var now ar.Contents
		if !m.Nested {
			size, err := thinMember(file, m.Name, o, out)
			if err != nil {
				return nil, err
			}
			if size >= 0 && size != int64(m.Size) {
				now = sized(size)
			}
		} else {
			if nested[file] == nil {
				var err error
				if nested[file], err = nestedArchive(file, m.Name, o, out); err != nil {
					return nil, err
				}
			}
			p, ok := nested[file][m.Inner]
			if !ok {
				return nil, fmt.Errorf("%s has no member at offset %d: it has changed since this archive was made; "+
					"make this one again", file, m.Inner)
			}
			if p.Size() != int64(m.Size) || p.inner != m.Inner {
				now = p
			}
		}
		if now != nil {
			replaced[i] = now
		}
	}
	if len(replaced) == 0 || o.ReadOnly {
		return nil, nil
	}
	return a.Replace(replaced)
}

// thinMember works on the file of a member and returns the size it has then, -1 if it is left alone.
func thinMember(file, name string, o Options, out *Outcome) (int64, error) {
	if o.seen[file] {
		return sizeOf(file)
	}
	o.seen[file] = true
	var magic [8]byte
	f, err := safefile.Open(file)
	if err != nil {
		return 0, err
	}
	_, err = io.ReadFull(f, magic[:])
	f.Close()
	if err != nil || !bytes.HasPrefix(magic[:], []byte("\x7fELF")) && !ar.Is(magic[:]) {
		return -1, nil
	}
	if inspect := o.Inspect; inspect != nil {
		o.Inspect = func(member string, ob *objects.Object, res objects.Result) error {
			if member == "" {
				return inspect(name, ob, res)
			}
			return inspect(name+"("+member+")", ob, res)
		}
	}
	res, err := File(file, o)
	if err != nil {
		return 0, err
	}
	out.Prereqs = append(append(out.Prereqs, file), res.Prereqs...)
	out.Changed = out.Changed || res.Changed
	out.Tabled = out.Tabled || res.Tabled
	out.Recorded += res.Recorded
	out.Nopped += res.Nopped
	out.Unrecorded = append(out.Unrecorded, res.Unrecorded...)
	return sizeOf(file)
}

func sizeOf(file string) (int64, error) {
	in, err := Open(file)
	if err != nil {
		return 0, err
	}
	defer in.Close()
	return in.stat.Size, nil
}

// placed is where a member of another archive is, and how large.
type placed struct {
	sized
	inner uint64
}

func (p placed) Inner() uint64 { return p.inner }

// nestedArchive works on an archive that members of a thin one are members of. The result says for the offset of each
// header where that header is now.
func nestedArchive(file, name string, o Options, out *Outcome) (map[uint64]placed, error) {
	before, err := headers(file)
	if err != nil {
		return nil, err
	}
	if _, err := thinMember(file, name, o, out); err != nil {
		return nil, err
	}
	after, err := headers(file)
	if err == nil && len(after) != len(before) {
		err = errors.New("members have come or gone while the archive was worked on")
	}
	if err != nil {
		return nil, withPath(file, err)
	}
	now := make(map[uint64]placed, len(before))
	for i, m := range before {
		now[m.Header] = placed{sized(after[i].Size), after[i].Header}
	}
	return now, nil
}

// headers returns the members of an archive.
func headers(file string) ([]ar.Member, error) {
	in, err := Open(file)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	b, err := in.Bytes()
	if err != nil {
		return nil, err
	}
	a, err := ar.Parse(b)
	if err != nil {
		return nil, withPath(file, err)
	}
	return a.Members, nil
}

// sized is contents of which only the size matters.
type sized int64

func (s sized) Size() int64                      { return int64(s) }
func (s sized) WriteTo(io.Writer) (int64, error) { return 0, nil }
