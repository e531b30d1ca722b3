//go:build linux

package fentry

import (
	"errors"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/internal/mapped"
	"github.com/fentry-dev/fentry/patch"
	"github.com/fentry-dev/fentry/record"
	"github.com/fentry-dev/fentry/session"
)

// Libraries of processes that run already.
//
// They are loaded, so no copy can take their place: each is planned like the program itself, in the memory of its process.
// What is added has its address there, so a plan is for one process, unlike those of programs. What is found in a library is
// the same for all.

// loadedLibraries are those that were planned.
type loadedLibraries struct {
	*libraries
	executed *executed
	files    []*executedFile // guarded by executed.mu
	plans    map[loadedFile]*loadedPlan
	found    map[loadedFile]*loadedProgram // of all places
}

// loadedPlan is one of them. Others who want it wait until it is made.
type loadedPlan struct {
	made   chan struct{}
	memory *patch.Memory
}

// loadedProgram is the file of a library.
type loadedProgram struct {
	made    sync.Once
	program *Program
	err     error
}

// loadedFile is what a library's plan depends on: the file as it is, where there is room, and whether a pattern names it.
type loadedFile struct {
	identity, path string
	at             uint64
	named          bool
}

// libraries returns what plans libraries of processes that run already; nil: none are to be recorded, or else matter.
func (e *executed) libraries(o *Options, pids []int) (func(path string, f *os.File, at uint64) *patch.Memory, error) {
	if o.onlySwaps() && !(o.swaps() && slices.ContainsFunc(pids, processLoadsSwaps)) {
		return nil, nil
	}
	l, err := newLibraries(&Program{}, o, true)
	if err != nil {
		return nil, err
	}
	e.loaded = &loadedLibraries{libraries: l, executed: e, plans: make(map[loadedFile]*loadedPlan),
		found: make(map[loadedFile]*loadedProgram)}
	return e.loaded.plan, nil
}

// all are the libraries that have plans.
func (l *loadedLibraries) all() []*executedFile {
	if l == nil {
		return nil
	}
	return l.files
}

// results are the libraries that patterns name, and the patterns that named none.
func (l *loadedLibraries) results() ([]Library, []string) {
	if l == nil {
		return nil, nil
	}
	return l.libraries.results()
}

// plan plans a library of a process, which has it at a path. One that is loaded again at the same place has the same plan. To make
// one takes long, and nobody who wants another one waits for that.
func (l *loadedLibraries) plan(path string, f *os.File, at uint64) *patch.Memory {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil || !isLibrary(f, l.machine) {
		return nil
	}
	l.mu.Lock()
	named, _ := l.named(path, path, f)
	key := loadedFile{identity(&st), path, at, named}
	if p := l.plans[key]; p != nil {
		l.mu.Unlock()
		<-p.made
		return p.memory
	}
	swaps := !named && l.maySwap(path, f)
	if !named && !l.syscalls && !swaps {
		l.mu.Unlock()
		return nil
	}
	p := &loadedPlan{made: make(chan struct{})}
	l.plans[key] = p
	key.at = 0
	found := l.found[key]
	if found == nil {
		found = &loadedProgram{}
		l.found[key] = found
	}
	lib, first := l.note(identity(&st), path)
	lib.silent = !named
	l.mu.Unlock()
	defer close(p.made)

	x := &executedFile{}
	var err error
	x.program, x.plan, x.memory, err = l.make(found, path, f, at, named, swaps)
	p.memory = x.memory
	l.executed.mu.Lock()
	l.files = append(l.files, x)
	l.executed.mu.Unlock()
	if say := l.planned(lib, first, named, x.plan, err); say != "" {
		l.logf("%s: %s", path, say)
	}
	if swaps && err != nil && !errors.Is(err, patch.ErrNoSites) {
		l.logf(unsafeSwaps, path, err)
	}
	return x.memory
}

// planned notes what has become of a library, and returns what is to be said of it.
func (l *loadedLibraries) planned(lib *library, first, named bool, plan *patch.Plan, err error) (say string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case first && err == nil:
		lib.Traced = plan.Traced()
	case first:
		lib.Untraced = err.Error()
		if named && !errors.Is(err, patch.ErrNoSites) {
			return "not traced: " + err.Error()
		}
	case err != nil && named && lib.Untraced == "":
		return "not traced where it is loaded now: " + err.Error()
	}
	return ""
}

// note notes that a library is there. first: no other process has had it.
func (l *loadedLibraries) note(id, path string) (lib *library, first bool) {
	if known := l.libraries.files[id]; len(known) > 0 {
		return known[0], false
	}
	lib = &library{Library: Library{Path: path}}
	l.libraries.files[id] = []*library{lib}
	l.order = append(l.order, lib)
	return lib, true
}

// find finds what can be traced in a library: its functions if a pattern names it, or it may swap pieces of its stack, else its
// system calls alone.
func (l *loadedLibraries) find(path string, f *os.File, named, swaps bool) (*Program, error) {
	m, err := mapped.MapFD(int(f.Fd()), path)
	if err != nil {
		return nil, err
	}
	p := &Program{Path: path, symbols: l.symbols, mapped: m, keeps: true, prepare: l.prepares}
	find := l.libraries.find
	if !named {
		find = unnamed(find, swaps)
	}
	if err := mapped.Guard(func() error { return p.find(find) }); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// make plans a library.
func (l *loadedLibraries) make(found *loadedProgram, path string, f *os.File, at uint64, named, swaps bool) (p *Program, plan *patch.Plan,
	memory *patch.Memory, err error) {
	if at == 0 {
		return nil, nil, nil, errors.New("there is no room for the tracer behind it in its process")
	}
	found.made.Do(func() { found.program, found.err = l.find(path, f, named, swaps) })
	if p, err = found.program, found.err; err != nil {
		return nil, nil, nil, err
	}
	err = mapped.Guard(func() (err error) {
		o := l.executed.options
		o.Path, o.Copy, o.At, o.NoFunctions = path, true, at, o.NoFunctions || !named
		switch {
		case p.Patched:
			return errors.New("it is patched already, and traces itself")
		case p.Untraced != "" && p.Syscalls == nil:
			return errors.New(p.Untraced)
		}
		if p.Syscalls != nil {
			o.Syscalls = &p.Syscalls
		}
		if plan, err = patch.New(p.File, p.Sites, o); err == nil {
			memory, err = plan.Memory()
		}
		return err
	})
	if err != nil {
		plan, memory = nil, nil
	}
	return p, plan, memory, err
}

// processLoadsSwaps is record.LoadsSwaps of the program of a process.
func processLoadsSwaps(pid int) bool {
	f, err := os.Open(session.ProcessDir(pid) + "/exe")
	if err != nil {
		return false
	}
	defer f.Close()
	return imageIs(f, record.LoadsSwaps)
}
