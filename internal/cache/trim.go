package cache

import (
	"cmp"
	"encoding/hex"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// DefaultLimit is how many bytes the entries of a kind may take.
const DefaultLimit = 1 << 30

// maxEntries bounds how many files of a directory are looked at.
const maxEntries = 1 << 16

// left is how old a directory must be that did not become an entry: nobody fills it any more.
const left = time.Hour

// Trim removes what was not used for the longest time, until the entries of a kind take at most limit bytes.
func (c *Cache) Trim(kind string, limit int64) error {
	if c == nil {
		return nil
	}
	k, err := open(c.root, kind, false)
	if err != nil {
		return nil // nothing was kept
	}
	defer k.Close()
	list, err := k.ReadDir(maxEntries)
	if err != nil {
		return err
	}
	type entry struct {
		name string
		used time.Time
		size int64
	}
	var all []entry
	var total int64
	for _, d := range list {
		name := d.Name()
		key, err := hex.DecodeString(name)
		old := strings.HasPrefix(name, unborn)
		if !old && (err != nil || len(key) == 0) {
			continue // not made by this package
		}
		e, err := open(k, name, false)
		if err != nil {
			continue
		}
		en := entry{name: name}
		if st, err := e.Stat(); err == nil {
			en.used = time.Unix(st.Mtim.Unix())
		}
		if files, err := e.ReadDir(maxEntries); err == nil {
			for _, f := range files {
				if st, err := e.Lstat(f.Name()); err == nil && st.Mode&unix.S_IFMT == unix.S_IFREG {
					en.size += st.Blocks * 512
				}
			}
		}
		switch {
		case old && time.Since(en.used) > left:
			remove(k, e, name)
			continue
		case !old:
			all = append(all, en)
			total += en.size
		}
		e.Close()
	}
	slices.SortFunc(all, func(a, b entry) int { return cmp.Or(a.used.Compare(b.used), cmp.Compare(a.name, b.name)) })
	for _, en := range all {
		if total <= limit {
			break
		}
		if e, err := open(k, en.name, false); err == nil {
			remove(k, e, en.name)
		}
		total -= en.size
	}
	return nil
}
