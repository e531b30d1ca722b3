package trace

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
)

// maxSymLine bounds a line of a .sym file: C++ names of some 100 kB have been
// seen.
const maxSymLine = 4 << 20

// loadSymbols finds each image's functions: the directory's .sym file, or what
// Options.Resolve has.
func (t *Trace) loadSymbols(o Options) {
	t.syms = make([]SymTable, len(t.Images))
	t.names = make([]nameCache, len(t.Images))
	for i := range t.Images {
		im := &t.Images[i]
		tab, err := openSym(filepath.Join(t.Dir, im.ID.String()+SymExt))
		switch {
		case err == nil:
			t.syms[i] = tab
			im.merge(&tab.image)
			if im.Sites == 0 && len(tab.funcs) > 0 {
				im.Sites = len(tab.funcs) - 1
			}
		case !missing(err):
			t.problem(err)
		}
		if t.syms[i] == nil && o.Resolve != nil {
			tab, err := o.Resolve(*im)
			if err != nil {
				t.problem(fmt.Errorf("image %s: no symbols: %w", im.label(), err))
			} else {
				t.syms[i] = tab
			}
		}
		t.names[i].names = makeNames(im.Sites)
	}
}

func (im *Image) label() string {
	if im.Path != "" {
		return im.Path
	}
	return im.ID.String()
}

// A symFile is a parsed .sym file. Functions that are not traced, id 0, are left
// out: no event names them.
type symFile struct {
	image Image
	funcs []Func // by id
}

func (s *symFile) Func(id uint32) (Func, bool) {
	if int64(id) >= int64(len(s.funcs)) || id == 0 {
		return Func{}, false
	}
	f := s.funcs[id]
	return f, f != Func{}
}

func openSym(path string) (*symFile, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	s, err := parseSym(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}

// parseSym parses the text of a .sym file.
func parseSym(r io.Reader) (*symFile, error) {
	s := new(symFile)
	sc := bufio.NewScanner(r)
	sc.Buffer(make([]byte, 64<<10), maxSymLine)
	for n := 1; sc.Scan(); n++ {
		line := sc.Bytes()
		if len(line) == 0 {
			continue
		}
		if line[0] == '#' {
			key, val, _ := bytes.Cut(bytes.TrimLeft(line, "# "), []byte(": "))
			switch string(key) {
			case "path":
				s.image.Path = string(val)
			case "build-id":
				s.image.BuildID = string(val)
			case "machine":
				s.image.Machine = string(val)
			}
			continue
		}
		if err := s.line(line); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
	}
	if err := sc.Err(); err != nil {
		return nil, err
	}
	return s, nil
}

func (s *symFile) line(line []byte) error {
	f := bytes.SplitN(line, []byte{'\t'}, 6)
	if len(f) != 6 {
		return fmt.Errorf("%d fields, want 6", len(f))
	}
	id, err := strconv.ParseUint(string(f[0]), 10, 32)
	if err != nil {
		return fmt.Errorf("id: %w", err)
	}
	if id == 0 {
		return nil
	}
	// Sorted and without gaps: otherwise one line could ask for 2^31 entries.
	if len(s.funcs) == 0 {
		s.funcs = append(s.funcs, Func{})
	}
	if id != uint64(len(s.funcs)) {
		return fmt.Errorf("id %d, want %d", id, len(s.funcs))
	}
	var v [3]uint64
	for i, b := range f[1:4] {
		if v[i], err = strconv.ParseUint(string(bytes.TrimPrefix(b, []byte("0x"))), 16, 64); err != nil {
			return errors.Unwrap(err)
		}
	}
	s.funcs = append(s.funcs, Func{Addr: v[0], Size: v[1], Site: v[2], Kind: string(f[4]), Name: string(f[5])})
	return nil
}
