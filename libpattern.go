//go:build linux

package fentry

import (
	"fmt"
	"path"
	"strings"
)

// libraryPattern chooses libraries by name.
type libraryPattern struct {
	text    string
	matched bool
}

// parseLibraryPattern returns an error for a pattern that can match nothing.
func parseLibraryPattern(s string) (libraryPattern, error) {
	if _, err := path.Match(s, ""); err != nil || s == "" {
		return libraryPattern{}, fmt.Errorf("library pattern %q: not a name, nor a pattern such as 'libssl*'", s)
	}
	return libraryPattern{text: s}, nil
}

// match tells whether a library is meant that has the given path or name. A pattern with a slash is matched with the
// whole path. One without is matched with the last part of it, also without what follows ".so" there, which are the
// versions: libz is libz.so.1 and libz.so.1.2.13, but not libzstd.so.1.
func (p *libraryPattern) match(name string) bool {
	if name == "" {
		return false
	}
	if strings.Contains(p.text, "/") {
		return glob(p.text, name)
	}
	base := path.Base(name)
	if glob(p.text, base) {
		return true
	}
	stem, _, versions := strings.Cut(base, ".so")
	return versions && (glob(p.text, stem) || glob(p.text, stem+".so"))
}

func glob(pattern, name string) bool {
	ok, _ := path.Match(pattern, name) // the pattern was checked before
	return ok
}
