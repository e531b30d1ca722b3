package trace

import (
	"sync/atomic"

	"github.com/fentry-dev/fentry/arguments"
	"github.com/fentry-dev/fentry/internal/safetext"
)

const (
	// maxCachedIDs bounds a name cache when ids are damaged.
	maxCachedIDs = 1 << 22
	namePageBits = 10
)

// A nameCache remembers the functions of an image and their names: every event
// needs one, demangling is slow, and the table is text (names.SymFile). Goroutines
// that race for an entry store equal ones.
type nameCache struct {
	pages []atomic.Pointer[namePage]
}

type namePage [1 << namePageBits]atomic.Pointer[knownFunc]

// A knownFunc is a function with its names for people.
type knownFunc struct {
	name  string
	label string // the name as it is safe to print
	fn    Func

	capture *arguments.Capture // nil: nothing is captured
}

func newNameCache(sites int) nameCache {
	return nameCache{pages: make([]atomic.Pointer[namePage], min(sites, maxCachedIDs)>>namePageBits+1)}
}

// get returns what is known of a function, nil for an id beyond those that are remembered.
func (c *nameCache) get(t *Trace, id FuncID) *knownFunc {
	i := id.ID >> namePageBits
	if int64(i) >= int64(len(c.pages)) {
		return nil
	}
	page := c.pages[i].Load()
	if page == nil {
		c.pages[i].CompareAndSwap(nil, new(namePage))
		page = c.pages[i].Load()
	}
	p := page[id.ID&(1<<namePageBits-1)].Load()
	if p == nil {
		p = &knownFunc{fn: t.lookup(id)}
		p.name = t.makeName(id, p.fn)
		p.label = safetext.Line(p.name)
		p.capture = t.newCapture(id)
		page[id.ID&(1<<namePageBits-1)].Store(p)
	}
	return p
}
