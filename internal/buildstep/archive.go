package buildstep

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/fentry-dev/fentry/elfio/ar"
	"github.com/fentry-dev/fentry/record/objects"
)

// archive works on the members of an archive. Members that are not ELF files, such as those with debug information of
// other compilers, stay as they are.
func archive(path string, b []byte, o Options, out *Outcome) (io.WriterTo, error) {
	a, err := ar.Parse(b)
	if err != nil {
		return nil, err
	}
	replaced := map[int]ar.Contents{}
	for i, m := range a.Members {
		if a.Thin {
			size, err := thinMember(path, m, o, out)
			if err != nil {
				return nil, err
			}
			if size >= 0 && size != int64(m.Size) {
				replaced[i] = sized(size)
			}
			continue
		}
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

// thinMember works on the file a member of a thin archive stands for, and returns the size it has then, -1 for one
// that is left alone.
func thinMember(archive string, m ar.Member, o Options, out *Outcome) (int64, error) {
	if m.Name == "" {
		return -1, nil
	}
	file := m.Name
	if !filepath.IsAbs(file) {
		file = filepath.Join(filepath.Dir(archive), file)
	}
	var magic [4]byte
	f, err := os.Open(file)
	if err != nil {
		return 0, err
	}
	_, err = io.ReadFull(f, magic[:])
	f.Close()
	if err != nil || string(magic[:]) != "\x7fELF" {
		return -1, nil
	}
	if inspect := o.Inspect; inspect != nil {
		o.Inspect = func(_ string, ob *objects.Object, res objects.Result) error { return inspect(m.Name, ob, res) }
	}
	res, err := File(file, o)
	if err != nil {
		return 0, err
	}
	out.Prereqs = append(out.Prereqs, file)
	out.Changed = out.Changed || res.Changed
	out.Tabled = out.Tabled || res.Tabled
	out.Recorded += res.Recorded
	out.Nopped += res.Nopped
	out.Unrecorded = append(out.Unrecorded, res.Unrecorded...)
	fi, err := os.Stat(file)
	if err != nil {
		return 0, err
	}
	return fi.Size(), nil
}

// sized is contents of which only the size matters.
type sized int64

func (s sized) Size() int64                      { return int64(s) }
func (s sized) WriteTo(io.Writer) (int64, error) { return 0, nil }
