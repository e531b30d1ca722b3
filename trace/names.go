package trace

import "sync/atomic"

const (
	// maxCachedIDs bounds a name cache when ids are damaged.
	maxCachedIDs = 1 << 22
	namePageBits = 10
)

// A nameCache remembers the names of an image's functions: every event needs
// one, and demangling is slow. Goroutines that race for an entry store equal
// strings.
type nameCache struct {
	pages []atomic.Pointer[namePage]
}

type namePage [1 << namePageBits]atomic.Pointer[string]

func newNameCache(sites int) nameCache {
	return nameCache{pages: make([]atomic.Pointer[namePage], min(sites, maxCachedIDs)>>namePageBits+1)}
}

func (c *nameCache) get(t *Trace, id FuncID) string {
	i := id.ID >> namePageBits
	if int64(i) >= int64(len(c.pages)) {
		return t.makeName(id)
	}
	page := c.pages[i].Load()
	if page == nil {
		c.pages[i].CompareAndSwap(nil, new(namePage))
		page = c.pages[i].Load()
	}
	p := page[id.ID&(1<<namePageBits-1)].Load()
	if p == nil {
		s := t.makeName(id)
		p = &s
		page[id.ID&(1<<namePageBits-1)].Store(p)
	}
	return *p
}
