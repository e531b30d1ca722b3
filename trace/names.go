package trace

import "sync/atomic"

// maxCachedIDs bounds a name cache when ids are damaged.
const maxCachedIDs = 1 << 20

// A nameCache remembers the names of an image's functions: every event needs
// one, and demangling is slow. Goroutines that race for an entry store equal
// strings.
type nameCache struct {
	names []atomic.Pointer[string]
}

func (c *nameCache) get(t *Trace, id FuncID) string {
	if int64(id.ID) >= int64(len(c.names)) {
		return t.makeName(id)
	}
	p := c.names[id.ID].Load()
	if p == nil {
		s := t.makeName(id)
		p = &s
		c.names[id.ID].Store(p)
	}
	return *p
}

func makeNames(sites int) []atomic.Pointer[string] {
	return make([]atomic.Pointer[string], min(sites, maxCachedIDs)+1)
}
