package plain

import (
	"maps"
	"slices"
)

// Functions that nothing lists.
//
// A program without symbols and unwind tables says of no function where it begins. Two things do: calls, in code that is
// certain to be executed, and addresses that something has. What is called is a function. What only has its address
// taken can be anything, a label of a switch as well; it says where other calls may be found.

// Unlisted returns the addresses of functions that are called and not listed, and others at which one may begin.
func (f *Finder) Unlisted() (called, others []uint64) {
	if f.foreign != "" || !f.decoded {
		return nil, nil
	}
	w := f.m.explorer(f)
	if w == nil || !f.hasUnlisted() {
		return nil, nil
	}
	e := explored{f: f, w: w, called: map[uint64]bool{}, seen: map[uint64]bool{}}
	for _, u := range f.units() {
		if u.fn >= 0 {
			e.take(w.calls(u.lo, u.hi))
		}
	}
	e.follow()
	var labels []uint64
	maybe := map[uint64]bool{}
	for _, u := range f.units() {
		if u.fn >= 0 {
			continue
		}
		for at := u.lo; at < u.hi; at++ {
			switch m := f.marks.get(at); {
			case at != f.file.Header.Entry && m&(pointed|tableEntry) == 0 || !f.unlisted(at):
			case m&tableEntry != 0:
				labels = append(labels, at)
			case !e.seen[at] && w.first(at):
				maybe[at] = true
				e.root(at)
			}
		}
	}
	for _, at := range labels {
		e.root(at)
	}
	for at := range e.called {
		delete(maybe, at)
	}
	return slices.Sorted(maps.Keys(e.called)), slices.Sorted(maps.Keys(maybe))
}

// explorer reads code that nothing lists.
type explorer interface {
	// calls returns where the code from lo to hi calls.
	calls(lo, hi uint64) []uint64
	// explore follows control from an address, through code that nothing lists and that has not been seen, and returns
	// what it calls; false: it comes to what is no code.
	explore(addr uint64, seen map[uint64]bool) ([]uint64, bool)
	// first reports whether a function may begin at an address, by what stands before it.
	first(addr uint64) bool
}

// explored is what has been found.
type explored struct {
	f      *Finder
	w      explorer
	called map[uint64]bool
	seen   map[uint64]bool
	todo   []uint64
}

// take notes what is called.
func (e *explored) take(calls []uint64) {
	for _, to := range calls {
		if !e.called[to] && e.f.unlisted(to) {
			e.called[to] = true
			e.todo = append(e.todo, to)
		}
	}
}

// root follows control from an address, and from all that is called there.
func (e *explored) root(addr uint64) {
	e.todo = append(e.todo, addr)
	e.follow()
}

func (e *explored) follow() {
	for len(e.todo) > 0 {
		at := e.todo[len(e.todo)-1]
		e.todo = e.todo[:len(e.todo)-1]
		if calls, ok := e.w.explore(at, e.seen); ok {
			e.take(calls)
		}
	}
}

// startFiles is how many bytes of start files' code are in an image that nothing lists, if it has such.
const startFiles = 512

// hasUnlisted reports whether there is more code that nothing lists than start files have: these come with .init.
func (f *Finder) hasUnlisted() bool {
	n, most := uint64(0), uint64(startFiles)
	if len(f.file.Sections) > 0 && f.file.SectionIndex(".init") < 0 {
		most = 0
	}
	for _, u := range f.units() {
		if r := &f.text.Regions[u.region]; u.fn < 0 && f.unlisted(u.lo) && !f.m.padding(r.Data[u.lo-r.Addr:u.hi-r.Addr]) {
			n += u.hi - u.lo
		}
	}
	return n > most
}

// unlisted reports whether an address is that of code that neither a symbol nor an unwind entry tells of.
func (f *Finder) unlisted(addr uint64) bool {
	k := f.containing(addr)
	if k >= 0 && addr < f.end(k) {
		return false
	}
	text := *f.text
	r := text.Region(addr)
	if r == nil || together(r.Name) {
		return false
	}
	_, covered := f.index.Find(addr)
	return !covered
}
