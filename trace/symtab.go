package trace

import (
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"

	"github.com/fentry-dev/fentry/internal/symfile"
)

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
			im.merge(tab.image())
			if n := len(tab.Entries); im.Sites == 0 && n > 0 {
				im.Sites = int(tab.Entries[n-1].ID)
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

// A symFile is a parsed .sym file.
type symFile struct{ *symfile.File }

func (s symFile) Func(id uint32) (Func, bool) {
	e, ok := s.ByID(id)
	if !ok {
		return Func{}, false
	}
	return Func{Name: e.Name, Addr: e.Func, Size: e.Size, Site: e.Site, Kind: e.Kind}, true
}

// image is what the file says of the image itself.
func (s symFile) image() *Image {
	return &Image{Path: s.Path, BuildID: hex.EncodeToString(s.BuildID), Machine: s.Machine}
}

func openSym(path string) (symFile, error) {
	f, err := os.Open(path)
	if err != nil {
		return symFile{}, err
	}
	defer f.Close()
	s, err := symfile.Read(f)
	if err != nil {
		return symFile{}, fmt.Errorf("%s: %w", path, err)
	}
	return symFile{s}, nil
}
