//go:build linux

package launch

// The way in which a program is started depends on what is to be done with it and on what is allowed here. All of that
// is asked in one place, and what follows from it is one table: each way of running a program is a row, and the first
// row that fits is taken. What is not known without trying, whether the program can be held at its exec stop, is tried
// once, with the program itself, which has not run an instruction then; if that is refused, the table is asked again.
// Where a copy can be is asked in the same way (package places).

import (
	"errors"

	"github.com/fentry-dev/fentry/session/internal/tracee"
)

// A way of starting a program.
type way int

const (
	asItIs way = iota
	underEmulator
	inPlace // held at its exec stop, and changed there
	asCopy  // a patched copy of it
)

// facts are what a way is chosen by.
type facts struct {
	planned   bool  // there is something to put into the program
	libraries bool  // its libraries are to be traced
	others    bool  // another program that it turns out to be is to be traced, such as a script's interpreter
	observed  bool  // somebody wants to know of it before it runs
	emulator  bool  // the kernel does not run it
	watched   bool  // the emulator can be stopped where the program's dynamic loader opens libraries
	hold      error // why it cannot be held at its exec stop; nil: it can, as far as is known
}

// held tells whether there is anything to be done at the exec stop.
func (f facts) held() bool { return f.planned || f.libraries || f.others || f.observed }

// Reasons that are known before it is tried.
var (
	errNotWanted  = errors.New("ptrace is not to be used")
	errPrivileges = errors.New("it has the privileges of its file")
	errEmulated   = errors.New("the program runs under an emulator")
)

// ask finds out what is known before the program is started.
func (l *Launcher) ask() facts {
	f := facts{planned: l.Memory != nil, libraries: l.Library != nil, others: l.Other != nil, observed: l.Observed,
		emulator: len(l.Emulator) > 0}
	f.watched = f.emulator && f.libraries && !l.NoPtrace
	switch {
	case !f.held():
		// It is not to be held.
	case f.emulator:
		f.hold = errEmulated
	case l.NoPtrace:
		f.hold = errNotWanted
	case LosesPrivileges(l.Path):
		// Traced by ptrace it would not have them either, and be told so (AT_SECURE), at which the runtime keeps out.
		f.hold = errPrivileges
	}
	return f
}

// table has a row for each way, in the order of preference. The last one fits all.
var table = []struct {
	way  way
	fits func(facts) bool
}{
	{asItIs, func(f facts) bool { return !f.held() }},
	{inPlace, func(f facts) bool { return f.hold == nil }},
	{underEmulator, func(f facts) bool { return f.watched }},
	{asItIs, func(f facts) bool { return !f.planned }}, // all else needs a held program
	{underEmulator, func(f facts) bool { return f.emulator }},
	{asCopy, func(facts) bool { return true }},
}

// decide chooses the way.
func decide(f facts) way {
	for _, row := range table {
		if row.fits(f) {
			return row.way
		}
	}
	panic("unreachable: the last row fits all")
}

// launch starts the program on a thread that nothing else runs on, in the way that decide finds.
func (l *Launcher) launch() (started, error) {
	f := l.ask()
	w := decide(f)
	if w == inPlace {
		held, err := l.traced()
		var refused *tracee.RefusedError
		if !errors.As(err, &refused) {
			return held, err
		}
		f.hold = refused
		w = decide(f)
	}
	l.Release()
	if w == underEmulator {
		return l.emulated()
	}
	if f.libraries {
		l.Logf("%s: libraries are not traced: %v", l.Path, f.hold)
	}
	var s Started
	var err error
	switch w {
	case asCopy:
		switch f.hold {
		case errNotWanted:
		case errPrivileges:
			l.Logf("%s: running a patched copy, without the privileges of the file", l.Path)
		default:
			l.Logf("%s: cannot be traced in place (%v); running a patched copy", l.Path, f.hold)
		}
		s, err = l.patched(f.hold)
	default:
		s, err = l.plain()
	}
	return started{Started: s}, err
}
