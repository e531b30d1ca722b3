package patch

import (
	"github.com/fentry-dev/fentry/arch"
	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/record"
)

// A flavour is what the code of an image agrees on with its callers, as far as tracing depends on it: where
// return addresses are kept, what may be done to a stack, and what unwinders believe. It says which sites can
// be traced, what a thunk does and what becomes of unwind information. How that is encoded is the machine's.
type flavour interface {
	// check returns an error for images none of whose functions can be traced.
	check(f *elfio.File) error
	// refuses says why a site that record has found cannot be traced: its own reason, or one more; "": it can.
	refuses(s *record.Site) record.Reason
	// hasThunk reports whether a site leads to a thunk; else thunk and routines are not asked. Functions that have one are
	// those of the first ids.
	hasThunk(s *record.Site) bool
	// place adds what sites lead to, see machine.
	place(l *layout) error
	// swaps reports whether a site is that of a function that is not recorded, and always traced, as it swaps pieces of its
	// stack.
	swaps(s *record.Site) bool
	// thunk is the kind of thunk that serves a site.
	thunk(s *record.Site) arch.ThunkKind
	// routines are the runtime's, by name, that thunks of a kind call. exit is "" for those that have none.
	routines(k arch.ThunkKind, r role) (enter, exit string)
	// hides reports whether return addresses are not where unwinders look for them while a function is traced: then
	// the image's unwind information has to say where they are.
	hides() bool
}

// A role is what a function is to the runtime.
type role uint8

const (
	usual      role = iota
	hiding          // it is left out with all inside it
	swapping        // it swaps pieces of its stack, and is not recorded
	actingOnly      // something is done when it is called
	actingExit      // and when it returns
	roles
)

// cCode is the flavour of what C compilers make, in any language: the caller's return address is in one word, on the
// stack or in a register, and stays there until the function returns; stacks do not move. The runtime keeps that word
// in shadow memory and gives the function a thunk's, except with the tracers [Function] and [Count], which only look.
type cCode struct{ o *Options }

// looks reports whether return addresses stay what they are.
func (c cCode) looks() bool { return c.o.Tracer == Function || c.o.Tracer == Count }

func (c cCode) check(f *elfio.File) error {
	if c.looks() {
		return nil
	}
	return checkSanitizer(f)
}

// refuses adds a reason for functions that have signed the return address where their site is: it must not be
// replaced.
func (c cCode) refuses(s *record.Site) record.Reason {
	if inPlace(s) && (c.o.Running || c.o.Addition != nil || c.o.Flat) {
		return record.ReasonInPlace
	}
	if s.Reason == "" && s.Ret == record.RetSigned && !c.looks() {
		return record.ReasonSignedReturn
	}
	return s.Reason
}

// swaps reports whether a function has to have return addresses be its callers' again, whoever is traced. Its thunk leaves
// its own where it is.
func (c cCode) swaps(s *record.Site) bool { return s.Swaps && !c.looks() }

func (c cCode) thunk(s *record.Site) arch.ThunkKind {
	switch behind := behindPrologue(s); {
	case c.swaps(s):
		return arch.ThunkFunc
	case behind && c.o.Tracer == Count:
		return arch.ThunkMcountCount
	case c.o.Tracer == Count:
		return arch.ThunkCount
	case behind && c.looks():
		return arch.ThunkMcountFunc
	case behind:
		return arch.ThunkMcount
	case c.looks():
		return arch.ThunkFunc
	}
	return arch.ThunkGraph
}

// behindPrologue reports whether the function has set up its frame at the site.
func behindPrologue(s *record.Site) bool {
	return s.Ret == record.RetFP || s.Ret == record.RetSigned
}

func (c cCode) routines(k arch.ThunkKind, r role) (enter, exit string) {
	tracer := "graph"
	switch o := c.o; {
	case r == hiding:
		tracer = "hide"
	case o.Tracer == Function:
		tracer = "func"
	case o.Tracer == Profile:
		tracer = "profile"
	case o.Tracer == Count:
		tracer = "count"
	case o.selective():
		tracer = "opt"
	case o.NoClock:
		tracer = "order"
	}
	exit = "fentry_" + tracer + "_exit"
	if c.o.Flat {
		tracer = "flat" // its calls have no exit, until they are led to those that have
	}
	if r == actingExit {
		exit = "fentry_act_exit"
	}
	if r >= actingOnly {
		tracer = "act"
		if c.o.Tracer == Function {
			tracer = "actfunc"
		}
	}
	if r == swapping {
		tracer = "swap"
	}
	enter = "fentry_" + tracer + "_enter"
	switch k {
	case arch.ThunkMcount, arch.ThunkMcountFunc, arch.ThunkMcountCount:
		enter = "fentry_mcount_" + tracer + "_enter"
	}
	switch k {
	case arch.ThunkFunc, arch.ThunkMcountFunc, arch.ThunkCount, arch.ThunkMcountCount:
		exit = ""
	}
	return enter, exit
}

func (cCode) hasThunk(s *record.Site) bool { return !inPlace(s) }

func (cCode) place(l *layout) error {
	if err := l.p.m.place(l); err != nil {
		return err
	}
	return l.placeMoved()
}

func (c cCode) hides() bool { return !c.looks() }
