//go:build linux

package fentry

// Symbol files of libraries are kept beside their patched copies.
//
// A program loads sixty libraries, of which a run writes sixty symbol files, each from three tables of the library: that takes
// longer than all that is done to the program itself. The names of a library's functions follow from what its copy does,
// and from the files that have names which the library lacks. So what is written into a trace is kept in the cache, with
// what was at the paths where such a file was looked for, and is used as long as that is there. A system that crashes can
// leave anything in a file, so there is a checksum, too.

import (
	"bytes"
	"hash/crc32"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/internal/cache"
	"github.com/fentry-dev/fentry/names"
	"github.com/fentry-dev/fentry/symbol"
	"github.com/fentry-dev/fentry/trace"
)

const (
	// namesKind is the kind of the cache's entries that are symbol files.
	namesKind = "names"
	// namesLimit is how many bytes they may take.
	namesLimit = 256 << 20
)

// aboutNames is what the cache keeps beside a symbol file.
type aboutNames struct {
	Looked  []lookedAt // where names were looked for beside the library
	Missing bool       // and not found
	Sum     uint32     // of the symbol file
}

// lookedAt is a path, and the file that it led to; "": none.
type lookedAt struct{ Path, File string }

// lookAt tells where a path leads.
func lookAt(path string) lookedAt {
	var st unix.Stat_t
	if unix.Stat(path, &st) != nil {
		return lookedAt{Path: path}
	}
	return lookedAt{path, identity(&st)}
}

// aboutTable is about the names of a table.
func aboutTable(tab *symbol.Table) (a aboutNames) {
	paths, found := tab.Looked()
	for _, p := range paths {
		a.Looked = append(a.Looked, lookAt(p))
	}
	a.Missing = len(paths) > 0 && !found
	return a
}

// holds tells whether names are still the same.
func (a *aboutNames) holds(o *symbol.Options) bool {
	for _, l := range a.Looked {
		if lookAt(l.Path) != l {
			return false
		}
	}
	return !a.Missing || o.Fetch == nil
}

// writeNames writes the symbol file of a library, by the id of its patched image. done is false if it is none of these.
func (l *libraries) writeNames(id trace.ImageID, w io.Writer) (done bool, err error) {
	lib := l.image(id)
	if lib == nil {
		return false, nil
	}
	if done, err := copyNames(l.cache, lib.key, &l.symbols, w); done {
		return true, err
	}
	t, about, err := l.namesOf(lib)
	if err != nil {
		return true, err
	}
	if about != nil && lib.key != "" {
		kept := keepNames(l.cache, lib.key, *about, t)
		l.mu.Lock()
		l.keptNames = l.keptNames || kept
		l.mu.Unlock()
	}
	return true, names.Write(w, t)
}

// keepNames keeps a symbol file, and tells whether it could.
func keepNames(c *cache.Cache, key string, about aboutNames, t *names.Table) bool {
	c.Drop(namesKind, key) // if there is one, it is out of date
	var b bytes.Buffer
	if names.Write(&b, t) != nil {
		return false
	}
	about.Sum = namesSum(b.Bytes())
	kept, err := c.Put(namesKind, key, "names", &about, func(f *os.File) error {
		_, err := f.Write(b.Bytes())
		return err
	})
	if err == nil {
		kept.Close()
	}
	return err == nil
}

// namesSum is the checksum of a symbol file.
func namesSum(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }

// copyNames writes a symbol file that is kept. done is false if there is none.
func copyNames(c *cache.Cache, key string, o *symbol.Options, w io.Writer) (done bool, err error) {
	if key == "" {
		return false, nil
	}
	var about aboutNames
	kept, err := c.Get(namesKind, key, &about)
	if err != nil || kept == nil {
		return false, nil
	}
	defer kept.Close()
	if !about.holds(o) {
		return false, nil
	}
	b, err := readKept(kept, namesLimit)
	if err != nil || namesSum(b) != about.Sum {
		c.Drop(namesKind, key) // it is damaged
		return false, nil
	}
	_, err = w.Write(b)
	return true, err
}
