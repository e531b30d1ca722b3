package patch

import (
	"github.com/fentry-dev/fentry/arch"
	"github.com/fentry-dev/fentry/record"
)

// More functions of an image that is traced already.
//
// The image is planned once more, beside what it has: the second plan brings thunks and a runtime of its own, which joins the
// process's as that of a library does, and changes sites that no other plan of the image has changed. Sites that can be
// traced share no byte with each other, so it does not matter which plan has which. The rule by which unwinders look behind
// thunks is in all entries of the image since the first plan, so its tables stay as they are: what is moved is in the search
// table of the runtime alone, as in an image that runs when it is planned first.

// An Addition says which functions a plan adds to an image that others have been put into.
type Addition struct {
	sites map[uint64]bool   // by address
	nops  map[uint64][]byte // what others have made of profiling calls of these functions
	first bool              // there are no others
}

// beside tells whether a plan is put into an image beside others.
func (a *Addition) beside() bool { return a != nil && !a.first }

// NewAddition adds the functions, of those of a plan and its image, that a function chooses. It leaves out those that a plan
// traces already, and those that cannot be added. The plans are of the same sites. It returns nil if there are none.
func NewAddition(before []*Plan, sites []record.Site, chooses func(*record.Site) bool) *Addition {
	a := &Addition{sites: make(map[uint64]bool), nops: make(map[uint64][]byte), first: len(before) == 0}
	for i := range sites {
		if s := &sites[i]; Addable(s) && chooses(s) {
			a.sites[s.Addr] = true
		}
	}
	for _, p := range before {
		for i := range p.Functions {
			fn := &p.Functions[i]
			if !a.sites[fn.Addr] {
				continue
			}
			switch fn.Action {
			case Trace:
				delete(a.sites, fn.Addr)
			case Nop:
				a.nops[fn.Addr] = p.m.appendNops(nil, fn.Len)
			}
		}
	}
	if len(a.sites) == 0 {
		return nil
	}
	return a
}

// Addable tells whether a function is one that can be added: not calls of another image's, which are changed where they are
// made.
func Addable(s *record.Site) bool { return s.Traceable() && s.Kind != record.KindLibCall && s.Len > 0 }

// Adds tells whether the function of a site is added.
func (a *Addition) Adds(s *record.Site) bool { return a.sites[s.Addr] }

// behind has edits find what is there now.
func (a *Addition) behind(edits []arch.Edit) {
	for i := range edits {
		if nops := a.nops[edits[i].Addr]; len(nops) == len(edits[i].Old) && nops != nil {
			edits[i].Old = nops
		}
	}
}
