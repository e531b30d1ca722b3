package trace

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
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
			if n := len(tab.funcs); im.Sites == 0 && n > 0 {
				im.Sites = int(tab.funcs[n-1].id)
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
		t.names[i] = newNameCache(im.Sites)
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
	funcs []symFunc // by id, ascending
}

type symFunc struct {
	id uint32
	Func
}

func (s *symFile) Func(id uint32) (Func, bool) {
	// Ids count from 1, mostly without holes.
	if i := int(id) - 1; i >= 0 && i < len(s.funcs) && s.funcs[i].id == id {
		return s.funcs[i].Func, true
	}
	i, ok := slices.BinarySearchFunc(s.funcs, id, func(f symFunc, id uint32) int { return cmp.Compare(f.id, id) })
	if !ok {
		return Func{}, false
	}
	return s.funcs[i].Func, true
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
			key, val, _ := strings.Cut(strings.TrimLeft(string(line), "# "), ": ")
			val, err := unescape(val)
			if err != nil {
				return nil, fmt.Errorf("line %d: %w", n, err)
			}
			switch key {
			case "path":
				s.image.Path = val
			case "build-id":
				s.image.BuildID = val
			case "machine":
				s.image.Machine = val
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
	f := strings.SplitN(string(line), "\t", 7)
	if len(f) != 6 {
		return fmt.Errorf("%d fields, want 6", len(f))
	}
	id, err := strconv.ParseUint(f[0], 10, 32)
	if err != nil || id >= reservedBase {
		return fmt.Errorf("bad id %.20q", f[0])
	}
	if id == 0 {
		return nil
	}
	if n := len(s.funcs); n > 0 && id <= uint64(s.funcs[n-1].id) {
		return fmt.Errorf("id %d behind %d: ids ascend", id, s.funcs[n-1].id)
	}
	fn := symFunc{id: uint32(id)}
	for i, v := range []*uint64{&fn.Addr, &fn.Size, &fn.Site} {
		if *v, err = strconv.ParseUint(f[1+i], 16, 64); err != nil {
			return fmt.Errorf("bad hexadecimal number %.20q", f[1+i])
		}
	}
	if fn.Kind, err = unescape(f[4]); err != nil {
		return err
	}
	if fn.Name, err = unescape(f[5]); err != nil {
		return err
	}
	s.funcs = append(s.funcs, fn)
	return nil
}

// unescape undoes the \xHH that a .sym file has for control characters and
// backslashes.
func unescape(s string) (string, error) {
	if strings.IndexByte(s, '\\') < 0 {
		return s, nil
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' {
			b.WriteByte(s[i])
			continue
		}
		if len(s)-i < 4 || s[i+1] != 'x' {
			return "", fmt.Errorf("bad escape %.10q", s[i:])
		}
		v, err := strconv.ParseUint(s[i+2:i+4], 16, 8)
		if err != nil {
			return "", fmt.Errorf("bad escape %.10q", s[i:])
		}
		b.WriteByte(byte(v))
		i += 3
	}
	return b.String(), nil
}
